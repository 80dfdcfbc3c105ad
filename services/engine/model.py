"""A lean forward for the Qwen2 architecture over a ragged batch.

The tokens of all sequences stand one under the other in one `[num_rows, hidden]` matrix; norms
and products run once over all of them, attention runs sequence by sequence against that
sequence's own K/V. The arithmetic is that of transformers' `Qwen2ForCausalLM`, against which
tests hold it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from services.engine.config import ModelConfig
from services.engine.kv_cache import KVCache, KVSpec, Slot, Span
from services.engine.layer import load_layer
from services.engine.precision import Precision


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence's next tokens, to run behind what its K/V holds.

    Logits are wanted for the last `num_logits` of them.
    """

    token_ids: Sequence[int]
    kv: KVCache
    num_logits: int = 0


class Forward(Protocol):
    """What the engine needs of a model; tests put a scripted one in its place."""

    kv_spec: KVSpec
    max_positions: int

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        """Run the segments, write their K/V; logits `[sum of num_logits, vocab_size]` in fp32."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """One segment's rows in the batch, where its K/V goes and what it attends to."""

    first_row: int
    last_row: int
    slots: list[Slot]
    spans: list[Span]
    mask: torch.Tensor | None  # [num_rows, num_rows], added to the scores of its own rows


class Qwen2Model:
    """Weights and forward. Not thread-safe: the engine's thread alone calls it."""

    def __init__(
        self,
        config: ModelConfig,
        weight: Callable[[str], torch.Tensor],
        precision: Precision,
    ) -> None:
        """Take the weights by their checkpoint names from `weight`; keep them in `precision`."""
        self.config = config
        self.max_positions = config.max_positions
        self.kv_spec = KVSpec(config.num_layers, config.num_kv_heads, config.head_dim)
        table = precision.stored(weight("model.embed_tokens.weight"))
        self._embedding = precision.embedding(table)
        self._head = precision.linear(table if config.is_tied else weight("lm_head.weight"))
        self._norm = weight("model.norm.weight").float()
        self._layers = [
            load_layer(weight, f"model.layers.{index}.", precision.linear)
            for index in range(config.num_layers)
        ]
        self._cos, self._sin = _rotary_tables(config, self.max_positions)

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        """See `Forward`. All positions must be below `max_positions`."""
        starts = [len(segment.kv) for segment in segments]
        parts = _parts(segments)
        token_ids = [token_id for segment in segments for token_id in segment.token_ids]
        positions = torch.cat(
            [
                torch.arange(start, start + len(segment.token_ids))
                for start, segment in zip(starts, segments, strict=True)
            ]
        )
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        hidden = self._embedding(torch.tensor(token_ids))
        for index, layer in enumerate(self._layers):
            hidden = hidden + self._attention(
                index, self._rms(hidden, layer.input_norm), parts, (cos, sin)
            )
            gate, up = layer.gate_up(self._rms(hidden, layer.post_norm)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate) * up)
        wanted = [
            row
            for part, segment in zip(parts, segments, strict=True)
            for row in range(part.last_row - segment.num_logits, part.last_row)
        ]
        return self._head(self._rms(hidden[wanted], self._norm))

    def _rms(self, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        # Written out: with few rows four times as fast as torch.rms_norm.
        scale = torch.rsqrt(rows.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return rows * scale * weight

    def _attention(
        self,
        index: int,
        rows: torch.Tensor,
        parts: list[_Part],
        rotary: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """`[num_rows, hidden]` -> the same, with K/V of the rows written to their slots."""
        config, layer = self.config, self._layers[index]
        num_rotated = config.num_heads + config.num_kv_heads
        qkv = layer.qkv(rows).unflatten(-1, (-1, config.head_dim))
        rotated, values = qkv[:, :num_rotated], qkv[:, num_rotated:]
        cos, sin = rotary
        rotated = rotated * cos + rotated.roll(config.head_dim // 2, -1) * sin
        queries, keys = rotated[:, : config.num_heads], rotated[:, config.num_heads :]
        queries = queries * config.head_dim**-0.5
        mixed = []
        for part in parts:
            for slot in part.slots:
                first, last = part.first_row + slot.first_row, part.first_row + slot.last_row
                end = slot.start + last - first
                slot.block.keys[index, :, slot.start : end] = keys[first:last].transpose(0, 1)
                slot.block.values[index, :, slot.start : end] = values[first:last].transpose(0, 1)
            mixed.append(self._attend(index, queries[part.first_row : part.last_row], part))
        return layer.output(mixed[0] if len(mixed) == 1 else torch.cat(mixed))

    def _attend(self, index: int, queries: torch.Tensor, part: _Part) -> torch.Tensor:
        """`[num_rows, num_heads, head_dim]` of one sequence -> `[num_rows, hidden]`.

        The query heads of a K/V head stand as further rows, so that grouped heads cost one
        product each and K/V is never repeated.
        """
        num_rows, kv_heads = queries.shape[0], self.config.num_kv_heads
        grouped = queries.transpose(0, 1).reshape(kv_heads, -1, self.config.head_dim)
        scores = torch.cat(
            [
                grouped @ span.block.keys[index, :, : span.used].transpose(1, 2)
                for span in part.spans
            ],
            dim=-1,
        )
        if part.mask is not None:
            own = scores.unflatten(1, (-1, num_rows))[..., -num_rows:]
            own += part.mask
        weights = scores.softmax(dim=-1)
        mixed, first = None, 0
        for span in part.spans:
            piece = weights[..., first : first + span.used]
            term = piece @ span.block.values[index, :, : span.used]
            mixed = term if mixed is None else mixed + term
            first += span.used
        assert mixed is not None  # a segment has a row, so there is a span
        return mixed.reshape(self.config.num_heads, num_rows, -1).transpose(0, 1).flatten(1)


def _parts(segments: Sequence[Segment]) -> list[_Part]:
    parts, row = [], 0
    for segment in segments:
        num_rows = len(segment.token_ids)
        slots = segment.kv.extend(segment.token_ids)
        mask = None
        if num_rows > 1:
            mask = torch.full((num_rows, num_rows), float("-inf")).triu_(1)
        parts.append(_Part(row, row + num_rows, slots, segment.kv.spans(), mask))
        row += num_rows
    return parts


def _rotary_tables(config: ModelConfig, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and signed sines `[num_positions, head_dim]` (Su et al., 2021, RoFormer).

    The first half of the sines is negative, so that rotating is one multiplication with the
    halves swapped.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(num_positions).float(), config.rope_theta**-exponents)
    return angles.cos().repeat(1, 2), torch.cat([-angles.sin(), angles.sin()], dim=-1)
