"""K/V of sequences: blocks grown behind a shared prefix, reused by token ids, counted in bytes."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch

MIN_BLOCK_TOKENS = 64
MAX_BLOCK_TOKENS = 256


@dataclass(frozen=True, slots=True)
class KVSpec:
    """Shape of one token's K/V in all layers."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.float32

    @property
    def token_bytes(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


class KVBlock:
    """K and V of consecutive tokens, each `[num_layers, num_kv_heads, num_tokens, head_dim]`."""

    __slots__ = ("keys", "num_tokens", "values")

    def __init__(self, spec: KVSpec, num_tokens: int) -> None:
        shape = (spec.num_layers, spec.num_kv_heads, num_tokens, spec.head_dim)
        self.num_tokens = num_tokens
        self.keys = torch.empty(shape, dtype=spec.dtype)
        self.values = torch.empty(shape, dtype=spec.dtype)


@dataclass(frozen=True, slots=True)
class Span:
    """The first `used` tokens of a block."""

    block: KVBlock
    used: int


@dataclass(frozen=True, slots=True)
class Slot:
    """Where rows `first_row:last_row` of a segment go: `block[..., start : start + rows]`."""

    block: KVBlock
    start: int
    first_row: int
    last_row: int


def _block_tokens(own_len: int) -> int:
    """As long as what stands there already: few blocks, and at most half of them empty."""
    return min(max(MIN_BLOCK_TOKENS, own_len), MAX_BLOCK_TOKENS)


def reserved_tokens(own_len: int) -> int:
    """Tokens that the blocks of a sequence of `own_len` own tokens have room for."""
    total = 0
    while total < own_len:
        total += _block_tokens(total)
    return total


class KVCache:
    """One sequence's K/V: a read-only `prefix` that others share, then blocks of its own.

    Blocks are never copied and depend on the position alone, so that a sequence computes the
    same whatever ran beside or before it.
    """

    __slots__ = ("_blocks", "_prefix", "first_block_tokens", "prefix_len", "spec", "token_ids")

    def __init__(
        self,
        spec: KVSpec,
        prefix: Sequence[Span] = (),
        prefix_ids: Sequence[int] = (),
        first_block_tokens: int = MIN_BLOCK_TOKENS,
    ) -> None:
        self.spec = spec
        self.token_ids = list(prefix_ids)
        self.prefix_len = len(prefix_ids)
        self._prefix = tuple(prefix)
        self._blocks: list[KVBlock] = []
        self.first_block_tokens = first_block_tokens

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def capacity(self) -> int:
        return self.prefix_len + sum(block.num_tokens for block in self._blocks)

    @property
    def num_bytes(self) -> int:
        """Bytes of its own blocks, room not yet filled included; the prefix is not its own."""
        return (self.capacity - self.prefix_len) * self.spec.token_bytes

    def extend(self, token_ids: Sequence[int]) -> list[Slot]:
        """Make room for these tokens, whose K/V the caller now writes; return where."""
        start = len(self)
        self.token_ids.extend(token_ids)
        while self.capacity < len(self):
            own = self.capacity - self.prefix_len
            size = _block_tokens(own) if own else self.first_block_tokens
            self._blocks.append(KVBlock(self.spec, size))
        slots, first, row = [], self.prefix_len, 0
        for block in self._blocks:
            begin, end = max(start, first), min(len(self), first + block.num_tokens)
            if begin < end:
                slots.append(Slot(block, begin - first, row, row + end - begin))
                row += end - begin
            first += block.num_tokens
        return slots

    def spans(self) -> list[Span]:
        """All K/V in order of position."""
        spans, left = list(self._prefix), len(self) - self.prefix_len
        for block in self._blocks:
            if left <= 0:
                break
            spans.append(Span(block, min(left, block.num_tokens)))
            left -= block.num_tokens
        return spans

    def truncate(self, length: int) -> None:
        """Forget what stands behind the first `length` tokens, and its blocks."""
        length = max(length, self.prefix_len)
        del self.token_ids[length:]
        while self._blocks and self.capacity - self._blocks[-1].num_tokens >= length:
            self._blocks.pop()

    def branch(self, num_tokens: int) -> "KVCache":
        """A continuation of `num_tokens` tokens that reads this one's K/V and never writes it."""
        return KVCache(self.spec, self.spans(), self.token_ids, first_block_tokens=num_tokens)

    def common_len(self, token_ids: Sequence[int]) -> int:
        """Length of the longest common token prefix."""
        common = 0
        for mine, theirs in zip(self.token_ids, token_ids, strict=False):
            if mine != theirs:
                break
            common += 1
        return common


@dataclass(slots=True)
class KVStore:
    """One byte budget for the K/V of running sequences (reserved) and idle sessions (kept)."""

    budget_bytes: int
    reserved_bytes: int = 0
    idle_bytes: int = 0
    evictions: int = 0
    _idle: OrderedDict[Hashable, KVCache] = field(default_factory=OrderedDict)

    def reserve(self, num_bytes: int) -> bool:
        """Set bytes aside, at the cost of the least recently used idle K/V; False if it can't."""
        if self.reserved_bytes + num_bytes > self.budget_bytes:
            return False
        while self.reserved_bytes + num_bytes + self.idle_bytes > self.budget_bytes:
            self.forget(next(iter(self._idle)))
            self.evictions += 1
        self.reserved_bytes += num_bytes
        return True

    def unreserve(self, num_bytes: int) -> None:
        self.reserved_bytes -= num_bytes

    def take(self, key: Hashable) -> KVCache | None:
        """The idle K/V kept under `key`, which is the caller's from now on."""
        cache = self._idle.pop(key, None)
        if cache is not None:
            self.idle_bytes -= cache.num_bytes
        return cache

    def keep(self, key: Hashable, cache: KVCache) -> None:
        """Keep K/V for the next turn, as the most recently used."""
        self.forget(key)
        self._idle[key] = cache
        self.idle_bytes += cache.num_bytes

    def forget(self, key: Hashable) -> None:
        self.take(key)

    def clear(self) -> None:
        """Drop all that is kept, and what was reserved."""
        self._idle.clear()
        self.idle_bytes = self.reserved_bytes = 0

    def bytes_of(self, key: Hashable) -> int:
        cache = self._idle.get(key)
        return cache.num_bytes if cache is not None else 0
