"""K/V of one sequence: grown in place behind a shared prefix, reused by token ids."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch

# A block is whole pages of every layer and head, at 64 or 128 values a head in fp32 and bf16.
BLOCK_TOKENS = 32
# A prefix no longer than this is copied: that costs less than attending to it apart in each step.
MAX_COPIED_TOKENS = 64
# Without MAP_NORESERVE the system may count the whole address space as used.
_MAP_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


@dataclass(frozen=True, slots=True)
class KVSpec:
    """Shape and precision of one token's K/V in all layers."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.float32

    @property
    def token_bytes(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    def bytes_of(self, num_tokens: int) -> int:
        """Bytes that the blocks of so many tokens take."""
        return _whole_blocks(num_tokens) * self.token_bytes


def _whole_blocks(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_TOKENS) * BLOCK_TOKENS


class KVRegion:
    """Room for K/V, side by side for each layer and head, so that attention reads it in one go.

    It is address space only: the system gives a page of memory when it is first written
    (Prabhu et al., 2024, vAttention). Thus a sequence grows without a copy and without memory
    set aside for what it may never say.
    """

    __slots__ = ("_map", "_stripe_bytes", "rows")

    def __init__(self, spec: KVSpec, max_tokens: int) -> None:
        capacity = _whole_blocks(max_tokens)
        self._stripe_bytes = capacity * spec.head_dim * spec.dtype.itemsize
        self._map = mmap.mmap(-1, max(capacity * spec.token_bytes, 1), flags=_MAP_FLAGS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            # Else one written token may take 2 MiB in each layer and head.
            self._map.madvise(mmap.MADV_NOHUGEPAGE)
        shape = (spec.num_layers, 2, spec.num_kv_heads, capacity, spec.head_dim)
        # `[num_layers, 2 (K, V), num_kv_heads, capacity, head_dim]`; it keeps the map alive.
        self.rows = torch.frombuffer(self._map, dtype=spec.dtype).view(shape)

    def release(self, num_tokens: int) -> None:
        """Give the system back all pages but those of the first `num_tokens` tokens."""
        kept = _whole_blocks(num_tokens) * self.rows.shape[-1] * self.rows.element_size()
        kept = -(-kept // mmap.PAGESIZE) * mmap.PAGESIZE
        if self._stripe_bytes % mmap.PAGESIZE or kept >= self._stripe_bytes:
            return  # stripes that share pages (tiny models, large pages) can't be released apart
        for start in range(0, len(self._map), self._stripe_bytes):
            self._map.madvise(mmap.MADV_DONTNEED, start + kept, self._stripe_bytes - kept)


class KVCache:
    """One sequence's K/V: a prefix that others share, then tokens of its own.

    Where its K/V lies depends on its own tokens alone, so that a sequence computes the same
    whatever ran beside or before it.
    """

    __slots__ = (
        "_region",
        "_shared",
        "_shared_len",
        "max_tokens",
        "prefix_len",
        "spec",
        "token_ids",
    )

    def __init__(self, spec: KVSpec, max_tokens: int, prefix: "KVCache | None" = None) -> None:
        """Room for `max_tokens` tokens in all. `prefix` is only read, now and later."""
        self.spec = spec
        self.max_tokens = max_tokens
        self.token_ids: list[int] = list(prefix.token_ids) if prefix is not None else []
        self.prefix_len = len(self.token_ids)
        self._shared = tuple(prefix.spans()) if prefix is not None else ()
        self._shared_len = self.prefix_len
        self._region = KVRegion(spec, max_tokens - self._shared_len)

    @classmethod
    def copying(cls, spec: KVSpec, max_tokens: int, prefix: "KVCache") -> "KVCache":
        """Begin with a copy of `prefix`, which counts as this one's own."""
        cache = cls(spec, max_tokens)
        cache.extend(prefix.token_ids).copy_(torch.cat(prefix.spans(), dim=3))
        cache.prefix_len = len(prefix)
        return cache

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_bytes(self) -> int:
        """Bytes of its own blocks; a prefix that it shares is not its own."""
        return self.spec.bytes_of(len(self) - self._shared_len)

    def extend(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Take these tokens; the caller now writes their K/V into what is returned,
        `[num_layers, 2 (K, V), num_kv_heads, num_tokens, head_dim]`."""
        start = len(self) - self._shared_len
        self.token_ids.extend(token_ids)
        assert len(self) <= self.max_tokens  # admission has seen to it
        return self._region.rows[:, :, :, start : start + len(token_ids)]

    def spans(self) -> list[torch.Tensor]:
        """All K/V in order of position, each `[num_layers, 2 (K, V), num_kv_heads, num_tokens,
        head_dim]`."""
        own = len(self) - self._shared_len
        return [*self._shared, self._region.rows[:, :, :, :own]] if own else list(self._shared)

    def truncate(self, length: int) -> None:
        """Forget what stands behind the first `length` tokens, and give its memory back."""
        length = max(length, self.prefix_len)
        held = self.num_bytes
        del self.token_ids[length:]
        if self.num_bytes < held:
            self._region.release(length - self._shared_len)

    def branch(self, num_tokens: int) -> "KVCache":
        """A continuation of `num_tokens` tokens that reads this one's K/V and never writes it."""
        return KVCache(self.spec, len(self) + num_tokens, prefix=self)

    def common_len(self, token_ids: Sequence[int]) -> int:
        """Length of the longest common token prefix."""
        length = min(len(self), len(token_ids))
        if self.token_ids[:length] == list(token_ids[:length]):
            return length
        pairs = enumerate(zip(self.token_ids, token_ids, strict=False))
        return next(index for index, (mine, theirs) in pairs if mine != theirs)
