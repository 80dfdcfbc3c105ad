import pytest
import torch

from services.engine.kv_cache import (
    MAX_BLOCK_TOKENS,
    MIN_BLOCK_TOKENS,
    KVCache,
    KVSpec,
    reserved_tokens,
)

SPEC = KVSpec(num_layers=2, num_kv_heads=3, head_dim=5)


def cache_of(num_tokens: int) -> KVCache:
    kv = KVCache(SPEC)
    kv.extend(range(num_tokens))
    return kv


def write(kv: KVCache, token_ids: list[int]) -> None:
    """Extend, with each token's id as its K/V."""
    for slot in kv.extend(token_ids):
        ids = torch.tensor(token_ids[slot.first_row : slot.last_row]).float()
        end = slot.start + len(ids)
        slot.block.keys[:, :, slot.start : end] = ids[None, None, :, None]
        slot.block.values[:, :, slot.start : end] = -ids[None, None, :, None]


def read(kv: KVCache) -> list[int]:
    return [
        int(value)
        for span in kv.spans()
        for value in span.block.keys[1, 2, : span.used, 4].tolist()
    ]


# --- one sequence ---


@pytest.mark.parametrize(("dtype", "num_bytes"), [(torch.float32, 240), (torch.bfloat16, 120)])
def test_bytes_of_a_token(dtype: torch.dtype, num_bytes: int) -> None:
    assert KVSpec(2, 3, 5, dtype).token_bytes == num_bytes  # K and V, 2 layers, 3 heads of 5


@pytest.mark.parametrize("size", [1, 3, 63, 64, 65, 500])
def test_what_is_written_is_read_in_order(size: int) -> None:
    ids, kv = list(range(900)), KVCache(SPEC)
    for at in range(0, len(ids), size):
        write(kv, ids[at : at + size])
    assert read(kv) == ids == kv.token_ids


def test_slots_cover_the_new_tokens_once() -> None:
    kv = cache_of(60)
    slots = kv.extend(range(200))
    assert [(s.first_row, s.last_row) for s in slots] == [(0, 4), (4, 68), (68, 196), (196, 200)]
    assert [s.start for s in slots] == [60, 0, 0, 0]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129, 256, 257, 1000, 2304])
def test_room_is_what_is_reserved(length: int) -> None:
    kv = cache_of(length)
    assert kv.capacity == reserved_tokens(length) >= length
    assert kv.num_bytes == reserved_tokens(length) * 240


@pytest.mark.parametrize("length", [1, 65, 129, 700, 2304])
def test_room_is_at_most_twice_what_is_used(length: int) -> None:
    assert reserved_tokens(length) - length < max(MIN_BLOCK_TOKENS, min(length, MAX_BLOCK_TOKENS))


def test_bytes_are_those_of_the_tensors() -> None:
    kv = cache_of(300)
    blocks = {id(span.block): span.block for span in kv.spans()}.values()
    assert kv.num_bytes == sum(b.keys.nbytes + b.values.nbytes for b in blocks)


def test_first_block_may_fit_exactly() -> None:
    kv = KVCache(SPEC, first_block_tokens=37)
    kv.extend(range(37))
    assert kv.capacity == 37


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 128, 299, 300, 400])
def test_truncated_is_as_if_the_rest_had_never_been(length: int) -> None:
    ids = list(range(300))
    kv = KVCache(SPEC)
    write(kv, ids)
    kv.truncate(length)
    assert read(kv) == kv.token_ids == ids[:length]
    assert kv.capacity == reserved_tokens(min(length, 300))


def test_truncated_takes_other_tokens() -> None:
    kv = KVCache(SPEC)
    write(kv, list(range(300)))
    kv.truncate(100)
    write(kv, list(range(700, 900)))
    assert read(kv) == [*range(100), *range(700, 900)]


@pytest.mark.parametrize(
    ("token_ids", "common"),
    [([0, 1, 2, 3, 4], 4), ([0, 1, 2], 3), ([0, 9, 2, 3], 1), ([9], 0), ([], 0)],
)
def test_common_length(token_ids: list[int], common: int) -> None:
    assert cache_of(4).common_len(token_ids) == common


# --- sharing ---


def test_behind_a_prefix_only_own_tokens_count() -> None:
    prefix = cache_of(70)
    kv = KVCache(SPEC, prefix.spans(), prefix.token_ids)
    assert (len(kv), kv.num_bytes) == (70, 0)
    kv.extend(range(65))
    assert kv.num_bytes == reserved_tokens(65) * 240


def test_truncating_stops_at_the_prefix() -> None:
    prefix = cache_of(70)
    kv = KVCache(SPEC, prefix.spans(), prefix.token_ids)
    kv.extend(range(10))
    kv.truncate(3)
    assert (len(kv), kv.num_bytes) == (70, 0)


def test_branch_reads_its_parent_and_never_writes_it() -> None:
    parent = KVCache(SPEC)
    write(parent, list(range(70)))
    before = [span.block.keys.clone() for span in parent.spans()]
    branch = parent.branch(3)
    write(branch, [500, 501, 502])
    assert read(branch) == [*range(70), 500, 501, 502]
    assert branch.num_bytes == 3 * 240
    # Equal NaNs too: the room behind the tokens has never been written.
    after = [span.block.keys for span in parent.spans()]
    assert all(
        torch.equal(old.view(torch.int32), new.view(torch.int32))
        for old, new in zip(before, after, strict=True)
    )


def test_parent_grows_beside_its_branch() -> None:
    parent = KVCache(SPEC)
    write(parent, [1, 2])
    branch = parent.branch(1)
    write(branch, [7])
    write(parent, [3])
    assert (read(parent), read(branch)) == ([1, 2, 3], [1, 2, 7])
