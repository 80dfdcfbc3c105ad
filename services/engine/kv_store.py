"""All K/V that the service keeps, under one budget of bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from services.engine.kv_cache import KVCache


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
