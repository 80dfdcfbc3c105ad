import pytest
import torch

from services.engine.kv_cache import BLOCK_TOKENS, KVCache, KVSpec

SPEC = KVSpec(num_layers=2, num_kv_heads=3, head_dim=5)
# Pages are given back by whole ones: here a block is one or more of them in each layer and head.
PAGED = {
    dtype: KVSpec(num_layers=2, num_kv_heads=3, head_dim=64, dtype=dtype)
    for dtype in (torch.float32, torch.bfloat16)
}
MAX_TOKENS = 1024


def cache_of(num_tokens: int, spec: KVSpec = SPEC, prefix: KVCache | None = None) -> KVCache:
    """A cache with the K/V of tokens 0, 1, 2 ... of its own."""
    kv = KVCache(spec, MAX_TOKENS, prefix)
    write(kv, range(num_tokens))
    return kv


def write(kv: KVCache, token_ids: range | list[int]) -> None:
    """Extend, with each token's id as its keys, and the negative as its values."""
    keys, values = kv.extend(token_ids).unbind(1)
    ids = torch.tensor(list(token_ids)).float()
    keys[:] = ids.unsqueeze(1)
    values[:] = -ids.unsqueeze(1)


def read(kv: KVCache) -> list[int]:
    """The ids that stand as keys, which all layers, heads and values have to agree with."""
    held = torch.cat(kv.spans(), dim=3)
    ids = held[0, 0, 0, :, 0]
    assert torch.equal(held[:, 0], ids.unsqueeze(1).expand(held[:, 0].shape))
    assert torch.equal(held[:, 1], -held[:, 0])
    return [int(value) for value in ids.tolist()]


# --- one sequence ---


@pytest.mark.parametrize(("dtype", "num_bytes"), [(torch.float32, 240), (torch.bfloat16, 120)])
def test_bytes_of_a_token(dtype: torch.dtype, num_bytes: int) -> None:
    assert KVSpec(2, 3, 5, dtype).token_bytes == num_bytes  # K and V, 2 layers, 3 heads of 5


@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 500])
def test_what_is_written_is_read_in_order(size: int) -> None:
    ids, kv = list(range(900)), KVCache(SPEC, 900)
    for at in range(0, len(ids), size):
        write(kv, ids[at : at + size])
    assert read(kv) == ids == kv.token_ids


def test_kv_is_in_the_precision_of_the_spec() -> None:
    kv = cache_of(3, PAGED[torch.bfloat16])
    assert kv.spans()[0].dtype == torch.bfloat16
    assert read(kv) == [0, 1, 2]


@pytest.mark.parametrize(
    ("length", "blocks"), [(0, 0), (1, 1), (31, 1), (32, 1), (33, 2), (320, 10)]
)
def test_bytes_are_those_of_whole_blocks(length: int, blocks: int) -> None:
    assert BLOCK_TOKENS == 32
    assert SPEC.bytes_of(length) == cache_of(length).num_bytes == blocks * 32 * 240


def test_longer_than_it_may_be_is_an_error() -> None:
    kv = KVCache(SPEC, 33)  # the room is two blocks all the same
    kv.extend(range(33))
    with pytest.raises(AssertionError):
        kv.extend([33])


def test_longer_than_it_may_be_behind_a_prefix_is_an_error() -> None:
    kv = KVCache(SPEC, 71, cache_of(70))
    kv.extend([70])
    with pytest.raises(AssertionError):
        kv.extend([71])


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 128, 299, 300, 400])
def test_truncated_is_as_if_the_rest_had_never_been(length: int) -> None:
    kv = cache_of(300)
    kv.truncate(length)
    assert kv.token_ids == list(range(min(length, 300)))
    assert kv.num_bytes == SPEC.bytes_of(min(length, 300))
    write(kv, [7])
    assert read(kv) == [*range(min(length, 300)), 7]


@pytest.mark.parametrize("spec", [SPEC, *PAGED.values()], ids=["tiny", "fp32", "bf16"])
def test_truncated_takes_other_tokens(spec: KVSpec) -> None:
    kv = cache_of(200, spec)
    kv.truncate(100)
    write(kv, list(range(150, 250)))
    assert read(kv) == [*range(100), *range(150, 250)]


@pytest.mark.parametrize("spec", PAGED.values(), ids=["fp32", "bf16"])
@pytest.mark.parametrize(("length", "kept"), [(0, 0), (100, 128), (128, 128), (129, 256)])
def test_no_page_is_kept_behind_what_is_truncated(spec: KVSpec, length: int, kept: int) -> None:
    """A page that the system was given back reads as zero."""
    kv = KVCache(spec, MAX_TOKENS)
    kv.extend(range(MAX_TOKENS))[:] = 1
    kv.truncate(length)
    behind = kv.extend(range(MAX_TOKENS - length))
    assert not behind[:, :, :, kept - length :].any()
    assert (kv.spans()[0][:, :, :, :length] == 1).all()


def test_room_of_another_is_not_given_back() -> None:
    spec = PAGED[torch.float32]
    prefix = cache_of(70, spec)
    kv, branch = cache_of(200, spec, prefix), prefix.branch(100)
    write(branch, range(100))
    kv.truncate(70)
    assert read(prefix) == list(range(70))
    assert read(branch) == [*range(70), *range(100)]


@pytest.mark.parametrize(
    ("token_ids", "common"),
    [([0, 1, 2, 3, 4], 4), ([0, 1, 2], 3), ([0, 9, 2, 3], 1), ([9], 0), ([], 0)],
)
def test_common_length(token_ids: list[int], common: int) -> None:
    assert cache_of(4).common_len(token_ids) == common


# --- sharing ---


def test_behind_a_prefix_only_own_tokens_count() -> None:
    kv = KVCache(SPEC, MAX_TOKENS, cache_of(70))
    assert (len(kv), kv.prefix_len, kv.num_bytes) == (70, 70, 0)
    kv.extend(range(65))
    assert kv.num_bytes == SPEC.bytes_of(65)


def test_prefix_is_read_where_it_lies() -> None:
    prefix = cache_of(70)
    kv = cache_of(3, prefix=prefix)
    assert read(kv) == [*range(70), 0, 1, 2]
    assert kv.spans()[0].data_ptr() == prefix.spans()[0].data_ptr()


def test_truncating_stops_at_the_prefix() -> None:
    kv = cache_of(10, prefix=cache_of(70))
    kv.truncate(3)
    assert (len(kv), kv.num_bytes) == (70, 0)


def test_copied_prefix_counts_as_its_own() -> None:
    kv = KVCache.copying(SPEC, MAX_TOKENS, cache_of(40))
    assert (len(kv), kv.prefix_len, kv.num_bytes) == (40, 40, SPEC.bytes_of(40))
    write(kv, [7] * 20)
    assert kv.num_bytes == SPEC.bytes_of(60) < SPEC.bytes_of(40) + SPEC.bytes_of(20)
    assert len(kv.spans()) == 1
    assert read(kv) == [*range(40), *[7] * 20]


def test_copied_prefix_may_lie_in_several_parts() -> None:
    kv = KVCache.copying(SPEC, MAX_TOKENS, cache_of(3, prefix=cache_of(40)))
    assert read(kv) == [*range(40), 0, 1, 2]


@pytest.mark.parametrize("spec", [SPEC, PAGED[torch.float32]], ids=["tiny", "paged"])
def test_original_is_untouched_by_its_copy(spec: KVSpec) -> None:
    prefix = cache_of(40, spec)
    kv = KVCache.copying(spec, MAX_TOKENS, prefix)
    write(kv, range(300))
    kv.truncate(0)
    kv.spans()[0][:] = 9
    assert read(prefix) == list(range(40))
    assert len(kv) == 40  # the prefix is never forgotten, copied or not


def test_branch_reads_its_parent_and_never_writes_it() -> None:
    parent = cache_of(70)
    branch = parent.branch(3)
    write(branch, [500, 501, 502])
    assert read(branch) == [*range(70), 500, 501, 502]
    assert branch.num_bytes == SPEC.bytes_of(3)
    assert read(parent) == parent.token_ids == list(range(70))


def test_parent_grows_beside_its_branch() -> None:
    parent = KVCache(SPEC, MAX_TOKENS)
    write(parent, [1, 2])
    branch = parent.branch(1)
    write(branch, [7])
    write(parent, [3])
    assert (read(parent), read(branch)) == ([1, 2, 3], [1, 2, 7])
