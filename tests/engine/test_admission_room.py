"""What K/V an admitted sequence gets, what is reserved for it, and who is refused."""

from collections.abc import Callable

import pytest

from services.engine.kv_cache import BLOCK_TOKENS as BLOCK
from services.engine.kv_cache import MAX_COPIED_TOKENS
from services.engine.sequence import EngineSequence, Status
from tests.engine.admissions import (
    MAX_POSITIONS,
    SPEC,
    admission_of,
    admitted,
    chat,
    end,
    label,
    prefix_of,
)


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
    store.keep("a", prefix_of(290))
    admission.add_prefix(prefix_of(70))
    sequence = chat(300, key="a")
    assert admitted(admission, sequence) == [sequence]
    assert sequence.kv is not None
    sequence.kv.extend(sequence.task.prompt_ids[len(sequence.kv) :])
    assert sequence.kv.num_bytes <= sequence.reserved_bytes == store.reserved_bytes


@pytest.mark.parametrize("make", [chat, label])
@pytest.mark.parametrize("prefix_len", [1, MAX_COPIED_TOKENS, MAX_COPIED_TOKENS + 1, 290])
def test_reserved_is_what_it_comes_to_hold(
    make: Callable[[int], EngineSequence], prefix_len: int
) -> None:
    """A chat holds a short prefix itself, whatever is longer is shared; a label shares all."""
    admission, store = admission_of(100 * BLOCK)
    admission.add_prefix(prefix_of(prefix_len))
    sequence = make(300)
    is_copied = make is chat and prefix_len <= MAX_COPIED_TOKENS
    assert admitted(admission, sequence) == [sequence]
    assert sequence.kv is not None
    assert (len(sequence.kv), sequence.kv.prefix_len) == (prefix_len, prefix_len)
    assert sequence.kv.num_bytes == (SPEC.bytes_of(prefix_len) if is_copied else 0)
    own = 300 - (0 if is_copied else prefix_len)
    assert store.reserved_bytes == sequence.reserved_bytes == SPEC.bytes_of(own)


def test_kv_with_a_copied_prefix_is_reused() -> None:
    admission, store = admission_of(100 * BLOCK)
    admission.add_prefix(prefix_of(MAX_COPIED_TOKENS))
    first, second = chat(200, key="a"), chat(300, key="a")
    admitted(admission, first)
    assert first.kv is not None
    first.kv.extend(first.task.prompt_ids[len(first.kv) :])
    end(admission, first)
    assert store.bytes_of("a") == SPEC.bytes_of(199)
    admitted(admission, second)
    assert (second.cached_len, store.idle_bytes) == (199, 0)


def test_nothing_is_kept_of_a_chat_that_failed_within_its_copied_prefix() -> None:
    admission, store = admission_of(100 * BLOCK)
    admission.add_prefix(prefix_of(MAX_COPIED_TOKENS))
    sequence = chat(200, key="a")
    admitted(admission, sequence)
    sequence.status = Status.FAILED
    admission.release(sequence)
    assert (store.reserved_bytes, store.idle_bytes) == (0, 0)


def test_chat_over_its_limit_is_refused_and_a_label_of_that_length_is_not() -> None:
    admission, _ = admission_of(100 * BLOCK, max_chat_tokens=200)
    assert "200 positions" in str(admission.refusal(chat(201)))
    assert admission.refusal(chat(200)) is None
    assert admission.refusal(label(201)) is None


@pytest.mark.parametrize("max_chat_tokens", [None, MAX_POSITIONS + 1])
def test_no_limit_exceeds_the_models_positions(max_chat_tokens: int | None) -> None:
    admission, _ = admission_of(100 * BLOCK, max_chat_tokens=max_chat_tokens)
    assert admission.refusal(chat(MAX_POSITIONS)) is None
    for sequence in (chat(MAX_POSITIONS + 1), label(MAX_POSITIONS)):  # a label's answer is one more
        assert f"{MAX_POSITIONS} positions" in str(admission.refusal(sequence))


def test_longest_chat_has_room_behind_any_prefix() -> None:
    admission, _ = admission_of(100 * BLOCK, max_chat_tokens=200)
    for prefix in (prefix_of(10), prefix_of(100)):
        admission.add_prefix(prefix)
        sequence = chat(200)
        admitted(admission, sequence)
        assert sequence.kv is not None
        sequence.kv.extend(range(200 - len(sequence.kv)))
        assert len(sequence.kv) == 200
