"""Attention of one step's rows: sequence by sequence, each over its own K/V."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from services.engine.config import ModelConfig
from services.engine.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence's next tokens, to run behind what its K/V holds.

    Logits are wanted for the last `num_logits` of them.
    """

    token_ids: Sequence[int]
    kv: KVCache
    num_logits: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """One segment's views, made once a step; tuples have one for each layer."""

    queries: torch.Tensor  # [num_kv_heads, group, num_rows, head_dim]
    new: torch.Tensor  # [2 (K, V), num_kv_heads, num_rows, head_dim]
    places: tuple[torch.Tensor, ...]  # of the same shape, in the K/V, where `new` goes
    keys: tuple[tuple[torch.Tensor, ...], ...]  # of each span, [num_kv_heads, head_dim, num_tokens]
    values: tuple[tuple[torch.Tensor, ...], ...]  # and [num_kv_heads, num_tokens, head_dim]
    output: torch.Tensor  # [num_kv_heads, group, num_rows, head_dim]
    row: torch.Tensor | None  # the same of a single row, [num_kv_heads, group, head_dim]
    mask: torch.Tensor | None  # [num_rows, num_rows], added to the scores of its own rows


class Attention:
    """One step's plan, the same for all layers: where K/V goes, what each row attends to.

    The query heads of a K/V head stand as further rows, so that grouped heads cost one product
    each and K/V is never repeated. Rows pass through two buffers, so that all views of them are
    made once a step and not in every layer.
    """

    def __init__(
        self,
        config: ModelConfig,
        rotary: tuple[torch.Tensor, torch.Tensor],
        segments: Sequence[Segment],
    ) -> None:
        """`rotary` are `rotary_tables`. The segments' tokens are added to their K/V here."""
        lens = [len(segment.token_ids) for segment in segments]
        starts = [len(segment.kv) for segment in segments]
        self._num_rotated = config.num_heads + config.num_kv_heads
        self._cos, self._sin = _at_positions(config, rotary, starts, lens)
        num_heads = self._num_rotated + config.num_kv_heads
        self._qkv = torch.empty(sum(lens), num_heads, config.head_dim)
        self._output = torch.empty(sum(lens), config.num_heads * config.head_dim)
        queries, new = self._qkv.split([config.num_heads, 2 * config.num_kv_heads], dim=1)
        self._parts = [
            _part(segment, *views)
            for segment, *views in zip(
                segments,
                _by_segment(queries, config.num_kv_heads, lens),
                _by_segment(new, 2, lens),
                _by_segment(
                    self._output.unflatten(1, queries.shape[1:]), config.num_kv_heads, lens
                ),
                strict=True,
            )
        ]

    def run(self, layer: int, rows: torch.Tensor) -> torch.Tensor:
        """Queries, keys and values of all heads, `[num_rows, heads * head_dim]` -> mixed values,
        `[num_rows, num_heads * head_dim]`, valid until the next call. Writes the K/V."""
        self._rotate(rows)
        for part in self._parts:
            part.places[layer].copy_(part.new)
            _attend(part, layer)
        return self._output

    def _rotate(self, rows: torch.Tensor) -> None:
        """Into the buffer: queries and keys rotated, queries scaled, values as they are."""
        heads = rows.view(self._qkv.shape)
        plain, rotated = heads[:, : self._num_rotated], self._qkv[:, : self._num_rotated]
        torch.mul(plain, self._cos, out=rotated)
        rotated += plain.roll(plain.shape[-1] // 2, -1).mul_(self._sin)
        self._qkv[:, self._num_rotated :] = heads[:, self._num_rotated :]


def rotary_tables(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and signed sines `[max_positions, head_dim]` (Su et al., 2021, RoFormer).

    The first half of the sines is negative, so that rotating is one multiplication with the
    halves swapped.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    positions = torch.arange(config.max_positions).float()
    angles = torch.outer(positions, config.rope_theta**-exponents)
    return angles.cos().repeat(1, 2), torch.cat([-angles.sin(), angles.sin()], dim=-1)


def _at_positions(
    config: ModelConfig,
    rotary: tuple[torch.Tensor, torch.Tensor],
    starts: Sequence[int],
    lens: Sequence[int],
) -> list[torch.Tensor]:
    """The tables' rows for these positions, `[num_rows, num_heads + num_kv_heads, head_dim]`;
    those of the queries carry the scale of the scores."""
    ranges = [torch.arange(start, start + n) for start, n in zip(starts, lens, strict=True)]
    positions = torch.cat(ranges)
    factors = torch.ones(config.num_heads + config.num_kv_heads, 1)
    factors[: config.num_heads] = config.head_dim**-0.5
    return [table[positions].unsqueeze(1) * factors for table in rotary]


def _by_segment(rows: torch.Tensor, groups: int, lens: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """`[num_rows, heads, head_dim]` -> each segment's `[groups, heads / groups, its rows,
    head_dim]`."""
    grouped = rows.unflatten(1, (groups, -1)).permute(1, 2, 0, 3)
    return torch.split(grouped, list(lens), dim=2)


def _part(
    segment: Segment, queries: torch.Tensor, new: torch.Tensor, output: torch.Tensor
) -> _Part:
    num_rows = len(segment.token_ids)
    places = segment.kv.extend(segment.token_ids).unbind(0)
    spans = segment.kv.spans()
    keys = zip(*(span[:, 0].mT.unbind(0) for span in spans), strict=True)
    values = zip(*(span[:, 1].unbind(0) for span in spans), strict=True)
    mask = torch.full((num_rows, num_rows), float("-inf")).triu_(1) if num_rows > 1 else None
    row = output.squeeze(2) if num_rows == 1 else None
    return _Part(queries, new, places, tuple(keys), tuple(values), output, row, mask)


def _attend(part: _Part, layer: int) -> None:
    """One sequence's rows over all of its K/V.

    K/V in bf16 is widened here, a span at a time: products over bf16 are slower than over fp32,
    yet half the bytes come from memory.
    """
    queries, values = part.queries.flatten(1, 2), part.values[layer]
    pieces = [torch.bmm(queries, keys.float()) for keys in part.keys[layer]]
    scores = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)
    if part.mask is not None:
        num_rows = len(part.mask)
        own = scores.unflatten(1, (-1, num_rows))[..., -num_rows:]
        own += part.mask
    weights = scores.softmax(dim=-1)
    if part.row is not None and len(values) == 1:  # nearly always, in a reply's steps
        torch.bmm(weights, values[0].float(), out=part.row)
        return
    shares = weights.split([piece.shape[-1] for piece in pieces], dim=-1)
    mixed = torch.bmm(shares[0], values[0].float())
    for share, span in zip(shares[1:], values[1:], strict=True):
        mixed += torch.bmm(share, span.float())
    part.output.copy_(mixed.view(part.output.shape))
