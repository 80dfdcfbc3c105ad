import random

from services.engine.kv_cache import BLOCK_TOKENS, KVCache, KVSpec
from services.engine.kv_store import KVStore

SPEC = KVSpec(num_layers=2, num_kv_heads=3, head_dim=5)  # 240 bytes a token
BLOCK = BLOCK_TOKENS * 240


def cache_of(num_tokens: int) -> KVCache:
    kv = KVCache(SPEC, num_tokens)
    kv.extend(range(num_tokens))
    return kv


def test_kept_is_given_back_once() -> None:
    store, kv = KVStore(budget_bytes=10**6), cache_of(10)
    store.keep("a", kv)
    assert store.take("a") is kv
    assert store.take("a") is None
    assert store.idle_bytes == 0


def test_idle_bytes_are_the_sum_of_what_is_kept() -> None:
    store = KVStore(budget_bytes=10**6)
    store.keep("a", cache_of(10))
    store.keep("b", cache_of(100))
    assert store.idle_bytes == store.bytes_of("a") + store.bytes_of("b") == (1 + 4) * BLOCK
    store.keep("a", cache_of(100))  # in the place of the old one
    assert store.idle_bytes == 2 * 4 * BLOCK
    store.forget("a")
    store.forget("nobody")
    assert (store.idle_bytes, store.bytes_of("a")) == (4 * BLOCK, 0)


def test_least_recently_used_goes_first() -> None:
    store = KVStore(budget_bytes=3 * BLOCK)
    for key in "abc":
        store.keep(key, cache_of(1))
    kept = store.take("a")
    assert kept is not None
    store.keep("a", kept)
    assert store.reserve(2 * BLOCK)
    assert [key for key in "abc" if store.bytes_of(key)] == ["a"]
    assert store.evictions == 2


def test_no_more_is_evicted_than_needed() -> None:
    store = KVStore(budget_bytes=3 * BLOCK)
    store.keep("a", cache_of(1))
    assert store.reserve(2 * BLOCK)
    assert (store.evictions, store.bytes_of("a")) == (0, BLOCK)


def test_what_can_not_be_reserved_evicts_nobody() -> None:
    store = KVStore(budget_bytes=2 * BLOCK)
    assert store.reserve(BLOCK)
    store.keep("a", cache_of(1))
    assert not store.reserve(BLOCK + 1)
    assert (store.reserved_bytes, store.bytes_of("a")) == (BLOCK, BLOCK)


def test_reserved_and_kept_never_exceed_the_budget() -> None:
    store = KVStore(budget_bytes=20_000)
    generator = random.Random(0)
    reserved: list[int] = []
    for step in range(500):
        wish = generator.randrange(1, 16_000)
        if store.reserve(wish):
            reserved.append(wish)
        if reserved and step % 3:
            freed = reserved.pop(0)
            store.unreserve(freed)
            if freed >= BLOCK:
                store.keep(step % 5, cache_of(1))
        assert store.reserved_bytes == sum(reserved)
        assert store.reserved_bytes + store.idle_bytes <= 20_000
    assert store.evictions > 0


def test_clear_drops_all() -> None:
    store = KVStore(budget_bytes=10**6)
    store.reserve(100)
    store.keep("a", cache_of(1))
    store.clear()
    assert (store.reserved_bytes, store.idle_bytes, store.bytes_of("a")) == (0, 0, 0)
