from collections.abc import Callable

import pytest

from services.engine.kv_cache import KVCache, KVSpec
from services.engine.scheduler import CHUNK_TOKENS, MAX_PREFILL_TOKENS, Work, next_chunk, schedule
from services.engine.sequence import EngineSequence, Status
from services.engine.tasks import ChatTask, EngineError, FailedEvent, LabelTask, SequenceHandle

SPEC = KVSpec(num_layers=1, num_kv_heads=1, head_dim=1)


def label(prompt_len: int = 50, kv_len: int = 0) -> EngineSequence:
    return admitted(LabelTask(range(prompt_len), ((1,), (2,))), kv_len)


def chat(
    prompt_len: int = 50, kv_len: int = 0, after: tuple[SequenceHandle, ...] = ()
) -> EngineSequence:
    task = ChatTask(range(prompt_len), frozenset({0}), max_new_tokens=8, after=after)
    return admitted(task, kv_len)


def admitted(task: LabelTask | ChatTask, kv_len: int) -> EngineSequence:
    kv = KVCache(SPEC, len(task.prompt_ids))
    kv.extend(range(kv_len))
    return EngineSequence(task, SequenceHandle(), status=Status.PREFILL, kv=kv)


def decoding(sequence: EngineSequence) -> EngineSequence:
    sequence.status = Status.DECODE
    return sequence


def chunks(prompt_len: int, start: int = 0) -> list[int]:
    """Where a prompt is cut when it runs alone."""
    cuts, at = [], start
    while at < prompt_len:
        at += next_chunk(at, prompt_len)
        cuts.append(at)
    return cuts


def test_nothing_to_do() -> None:
    assert schedule([]) == []


@pytest.mark.parametrize("status", [Status.WAITING, Status.FINISHED, Status.FAILED])
def test_only_the_admitted_run(status: Status) -> None:
    sequence = chat()
    sequence.status = status
    assert schedule([sequence]) == []


@pytest.mark.parametrize("prompt_len", [1, 63, 64, 65, 127, 128, 129, 300])
@pytest.mark.parametrize("start", [0, 1, 63, 64, 127, 128, 200])
def test_chunks_end_at_multiples_whatever_the_start(prompt_len: int, start: int) -> None:
    cuts = chunks(prompt_len, start)
    assert all(cut % CHUNK_TOKENS == 0 for cut in cuts[:-1])
    assert cuts[-1:] == ([prompt_len] if start < prompt_len else [])
    assert set(cuts) == {cut for cut in chunks(prompt_len) if cut > start}


@pytest.mark.parametrize("num_others", [0, 1, 7, 30])
def test_chunks_do_not_depend_on_load(num_others: int) -> None:
    others = [decoding(chat()) for _ in range(num_others)] + [label(100 + n) for n in range(3)]
    mine = chat(300, kv_len=10)
    assert Work(mine, CHUNK_TOKENS - 10) in schedule([*others, mine])


@pytest.mark.parametrize("make", [label, chat])
def test_chunks_are_counted_behind_the_prefix(make: Callable[[int], EngineSequence]) -> None:
    sequence = make(300)
    prefix = KVCache(SPEC, 10)
    prefix.extend(range(10))
    sequence.kv = KVCache(SPEC, 300, prefix)
    assert schedule([sequence]) == [Work(sequence, CHUNK_TOKENS)]
    sequence.kv.extend(range(5))
    assert schedule([sequence]) == [Work(sequence, CHUNK_TOKENS - 5)]


def test_labels_run_before_chats_that_came_earlier() -> None:
    early, late = chat(100), label(100)
    assert [work.sequence for work in schedule([early, late])] == [late, early]


def test_every_reply_gets_its_token() -> None:
    replies = [decoding(chat()) for _ in range(40)]
    work = schedule([*replies[:20], label(300), chat(300), *replies[20:]])
    assert [w for w in work if w.sequence in replies] == [Work(reply, 1) for reply in replies]


def test_branching_label_goes_on_like_a_reply() -> None:
    sequence = decoding(label())
    assert schedule([sequence]) == [Work(sequence, 1)]


def test_chat_waits_for_all_that_it_follows() -> None:
    handles = SequenceHandle(), SequenceHandle()
    sequence = chat(after=handles)
    for handle in handles:
        assert schedule([sequence]) == []
        handle.put(FailedEvent(EngineError("an end like any other")))
    assert schedule([sequence]) == [Work(sequence, 50)]


@pytest.mark.parametrize("num_labels", [1, 5, 100])
def test_oldest_chat_advances_however_many_labels_come(num_labels: int) -> None:
    oldest, newer = chat(300), chat(300)
    work = schedule([*(label(300) for _ in range(num_labels)), oldest, newer])
    assert Work(oldest, CHUNK_TOKENS) in work
    assert num_labels == 1 or newer not in [w.sequence for w in work]


def test_first_label_runs_even_beside_a_long_chat() -> None:
    sequence = label(300)
    assert Work(sequence, CHUNK_TOKENS) in schedule([chat(300), chat(300), sequence])


@pytest.mark.parametrize("kind", [label, chat])
def test_prompts_share_the_allowance(kind: type) -> None:
    sequences = [kind(MAX_PREFILL_TOKENS // 2 - 5) for _ in range(5)]
    assert [work.sequence for work in schedule(sequences)] == sequences[:2]


def test_short_ones_do_not_overtake_what_does_not_fit() -> None:
    size = MAX_PREFILL_TOKENS // 2 - 5  # two leave room for the short one, and not for a third
    sequences = [chat(size), chat(size), chat(size), chat(5)]
    assert [work.sequence for work in schedule(sequences)] == sequences[:2]


def test_prefill_of_a_step_is_bounded() -> None:
    sequences = [kind(300) for _ in range(20) for kind in (label, chat)]
    tokens = sum(work.num_tokens for work in schedule(sequences))
    assert tokens <= MAX_PREFILL_TOKENS + CHUNK_TOKENS  # the oldest chat's chunk may exceed it
