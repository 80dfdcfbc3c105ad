"""Who is admitted in which order."""

from services.engine.kv_cache import BLOCK_TOKENS as BLOCK
from tests.engine.admissions import admission_of, admitted, chat, end, label


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
