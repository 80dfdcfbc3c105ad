"""Who is admitted in which order, on the store alone: no thread, no model."""

from services.engine.admission import Admission
from services.engine.kv_cache import KVCache, KVSpec, KVStore, reserved_tokens
from services.engine.sequence import EngineSequence, Status
from services.engine.tasks import ChatTask, LabelTask, SequenceHandle

SPEC = KVSpec(num_layers=1, num_kv_heads=1, head_dim=1)  # 8 bytes a token
BLOCK = reserved_tokens(1)


def label(num_tokens: int) -> EngineSequence:
    return EngineSequence(LabelTask(range(num_tokens), ((1,), (2,))), SequenceHandle())


def chat(num_tokens: int, key: str | None = None) -> EngineSequence:
    """A chat that needs `num_tokens`, all but one for its prompt."""
    prompt = range(num_tokens - 1)
    return EngineSequence(ChatTask(prompt, frozenset(), 1, key=key), SequenceHandle())


def admission_of(budget_tokens: int, max_running: int = 16) -> tuple[Admission, KVStore]:
    store = KVStore(budget_tokens * SPEC.token_bytes)
    return Admission(store, SPEC, max_running), store


def admitted(admission: Admission, *sequences: EngineSequence) -> list[EngineSequence]:
    """Which of the waiting ones are admitted now."""
    waiting = [s for s in sequences if s.status is Status.WAITING]
    admission.admit(sequences)
    return [s for s in waiting if s.status is not Status.WAITING]


def end(admission: Admission, sequence: EngineSequence) -> None:
    sequence.status = Status.FINISHED
    admission.release(sequence)


def test_labels_get_memory_before_chats_that_came_earlier() -> None:
    admission, _ = admission_of(BLOCK)
    early, late = chat(BLOCK), label(BLOCK)
    assert admitted(admission, early, late) == [late]


def test_chat_that_does_not_fit_holds_up_smaller_ones() -> None:
    admission, _ = admission_of(3 * BLOCK)
    runs, large, small = chat(2 * BLOCK), chat(2 * BLOCK), chat(BLOCK)
    assert admitted(admission, runs, large, small) == [runs]
    end(admission, runs)
    assert admitted(admission, large, small) == [large, small]


def test_label_that_does_not_fit_is_not_starved_by_chats() -> None:
    """Small chats that keep coming would each take what the last one gave back."""
    admission, _ = admission_of(3 * BLOCK)
    runs = [chat(BLOCK) for _ in range(3)]
    assert admitted(admission, *runs) == runs
    large = label(2 * BLOCK)
    end(admission, runs[0])
    assert admitted(admission, *runs[1:], chat(BLOCK), large) == []
    end(admission, runs[1])
    assert admitted(admission, runs[2], chat(BLOCK), large) == [large]


def test_chat_that_does_not_fit_is_not_starved_by_labels() -> None:
    """Labels that keep coming would each take what the last one gave back."""
    admission, _ = admission_of(4 * BLOCK)
    labels = [label(2 * BLOCK) for _ in range(4)]
    large, small = chat(4 * BLOCK), chat(BLOCK)
    assert admitted(admission, *labels[:2], large, small) == labels[:2]
    end(admission, labels[0])
    assert admitted(admission, labels[1], large, small, *labels[2:]) == []
    end(admission, labels[1])
    assert admitted(admission, large, small, *labels[2:]) == [large]
    end(admission, large)
    assert admitted(admission, small, *labels[2:]) == labels[2:]


def test_small_chat_is_not_starved_by_a_label_that_waits_for_labels() -> None:
    admission, _ = admission_of(5 * BLOCK)
    labels = [label(2 * BLOCK) for _ in range(3)]
    small = chat(BLOCK)
    assert admitted(admission, *labels, small) == [*labels[:2], small]


def test_overdue_chat_is_not_overtaken_by_later_ones() -> None:
    admission, _ = admission_of(4 * BLOCK)
    first, large, small, runs = label(2 * BLOCK), chat(4 * BLOCK), chat(BLOCK), chat(BLOCK)
    assert admitted(admission, first, large, small) == [first]
    assert large.is_overdue
    end(admission, first)
    assert admitted(admission, runs) == [runs]  # as if it had come before
    late = label(BLOCK)
    assert admitted(admission, runs, large, small, late) == [late]


def test_labels_pass_a_chat_that_waits_for_chats() -> None:
    admission, _ = admission_of(3 * BLOCK)
    runs, waits, late = chat(2 * BLOCK), chat(2 * BLOCK), label(BLOCK)
    assert admitted(admission, runs) == [runs]
    assert admitted(admission, runs, waits, late) == [late]


def test_places_are_for_chats_alone() -> None:
    admission, _ = admission_of(100 * BLOCK, max_running=1)
    first, second, mine = chat(BLOCK), chat(BLOCK), label(BLOCK)
    assert admitted(admission, mine, first, second) == [mine, first]
    assert admitted(admission, mine, first, second) == []
    end(admission, first)
    assert admitted(admission, mine, second) == [second]


def test_what_is_kept_without_room_stays_kept() -> None:
    admission, store = admission_of(2 * BLOCK)
    first, other = chat(BLOCK, key="a"), chat(BLOCK)
    admitted(admission, first)
    assert first.kv is not None
    first.kv.extend(first.task.prompt_ids)
    end(admission, first)
    kept = store.bytes_of("a")
    admitted(admission, other)
    assert admitted(admission, other, chat(2 * BLOCK, key="a")) == []
    assert store.bytes_of("a") == kept > 0


def test_kv_behind_another_prefix_is_not_reused() -> None:
    """It would have more tokens of its own than are reserved."""
    admission, store = admission_of(100 * BLOCK)
    old, prefix = KVCache(SPEC), KVCache(SPEC)
    old.extend(range(290))
    prefix.extend(range(70))
    store.keep("a", old)
    admission.add_prefix(prefix)
    sequence = chat(300, key="a")
    assert admitted(admission, sequence) == [sequence]
    assert sequence.kv is not None
    sequence.kv.extend(sequence.task.prompt_ids[len(sequence.kv) :])
    assert sequence.kv.num_bytes <= sequence.reserved_bytes == store.reserved_bytes
