"""One byte budget for all K/V: what waits, what goes, what is refused."""

from collections.abc import Callable

import pytest

from services.engine.engine import Engine
from services.engine.kv_cache import BLOCK_TOKENS, MAX_COPIED_TOKENS
from services.engine.tasks import (
    FinishedEvent,
    LabelTask,
    ScoredEvent,
)
from tests.engine.stepwise import StepwiseForward, assert_free, failure, outcome

Start = Callable[..., Engine]


def in_blocks(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_TOKENS) * BLOCK_TOKENS


def room_of(forward: StepwiseForward, text: str, max_new_tokens: int = 64) -> int:
    """Tokens that a chat on this text reserves."""
    return in_blocks(len(forward.turn(text)) + max_new_tokens)


def test_worst_case_is_reserved_at_admission(start: Start, forward: StepwiseForward) -> None:
    engine = start()
    forward.hold()
    handle = engine.submit(forward.chat("hello"))
    forward.wait_step()
    assert engine.stats().reserved_bytes == room_of(forward, "hello") * 8
    forward.let_go()
    outcome(handle)
    assert_free(engine)


def test_label_reserves_its_prompt_and_its_branches(start: Start, forward: StepwiseForward) -> None:
    engine, prompt = start(), forward.turn("hello")
    forward.hold()
    handle = engine.submit(LabelTask(prompt, ((1, 2, 3), (1, 4), (5,))))
    forward.wait_step()
    assert engine.stats().reserved_bytes == (in_blocks(len(prompt)) + 2 * BLOCK_TOKENS) * 8
    forward.let_go()
    outcome(handle)


@pytest.mark.parametrize("head_len", [MAX_COPIED_TOKENS, MAX_COPIED_TOKENS + 1])
def test_long_prefix_is_not_reserved_again(
    start: Start, forward: StepwiseForward, head_len: int
) -> None:
    engine, head = start(), forward.ids("good " * 100)[:head_len]
    engine.add_prefix(head)
    forward.hold()
    task = forward.chat(forward.turn("hello", head))
    handle = engine.submit(task)
    forward.wait_step()
    own = len(task.prompt_ids) - (0 if head_len <= MAX_COPIED_TOKENS else head_len)
    assert engine.stats().reserved_bytes == in_blocks(own + 64) * 8
    forward.let_go()
    outcome(handle)


def test_what_does_not_fit_waits_and_then_runs(start: Start, forward: StepwiseForward) -> None:
    engine = start(budget_tokens=room_of(forward, "hello"))
    forward.hold()
    first = engine.submit(forward.chat("hello"))
    forward.wait_step()
    second = engine.submit(forward.chat("world"))
    forward.let_go()
    assert all(isinstance(outcome(handle)[1], FinishedEvent) for handle in (first, second))
    assert max(len(step) for step in forward.steps) == 1


def test_what_can_never_fit_is_refused(start: Start, forward: StepwiseForward) -> None:
    engine = start(budget_tokens=room_of(forward, "hello"))
    assert "K/V budget" in str(failure(engine.submit(forward.chat("x" * 300))))
    label = LabelTask(forward.turn("x" * 300), ((1,), (2,)))
    assert "K/V budget" in str(failure(engine.submit(label)))
    assert isinstance(outcome(engine.submit(forward.chat("hello")))[1], FinishedEvent)


def test_positions_beyond_the_models_are_refused(start: Start, forward: StepwiseForward) -> None:
    forward.max_positions = 80
    engine, room = start(), 80 - len(forward.turn("hello"))
    handle = engine.submit(forward.chat("hello", max_new_tokens=room + 1))
    assert "80 positions" in str(failure(handle))
    handle = engine.submit(forward.chat("hello", max_new_tokens=room))
    assert isinstance(outcome(handle)[1], FinishedEvent)


def test_chat_over_its_own_limit_is_refused_and_no_label(
    start: Start, forward: StepwiseForward
) -> None:
    prompt = forward.turn("hello")
    engine = start(max_chat_tokens=len(prompt) + 9)
    assert "positions" in str(failure(engine.submit(forward.chat("hello", max_new_tokens=10))))
    assert isinstance(
        outcome(engine.submit(forward.chat("hello", max_new_tokens=9)))[1], FinishedEvent
    )
    label = LabelTask(forward.turn("hello" * 20), ((1,), (2,)))
    assert len(label.prompt_ids) > len(prompt) + 10
    assert isinstance(outcome(engine.submit(label))[1], ScoredEvent)


def test_idle_kv_goes_least_recently_used_first(start: Start, forward: StepwiseForward) -> None:
    room = room_of(forward, "hello")
    engine = start(budget_tokens=3 * room)
    for key in "abca":
        outcome(engine.submit(forward.chat("hello", key=key)))
    kept = engine.cached_bytes("a")
    assert engine.stats().idle_bytes == 3 * kept
    outcome(engine.submit(forward.chat("hello", key="d", max_new_tokens=64)))
    large = "x" * 140
    assert room_of(forward, large) * 8 == 3 * room * 8 - 2 * kept
    outcome(engine.submit(forward.chat(large)))
    assert [key for key in "abcd" if engine.cached_bytes(key)] == ["a", "d"]
    assert engine.stats().evictions == 2


def test_evicted_dialogue_is_prefilled_anew(start: Start, forward: StepwiseForward) -> None:
    engine = start(budget_tokens=room_of(forward, "x" * 200))
    first = forward.chat("hello", key="a")
    reply, _ = outcome(engine.submit(first))
    outcome(engine.submit(forward.chat("x" * 200, key="b")))
    assert engine.cached_bytes("a") == 0
    second = forward.next_turn(first.prompt_ids, reply, "good food")
    tokens, end = outcome(engine.submit(forward.chat(second, key="a")))
    assert forward.tokenizer.decode(tokens) == "You said good food in turn 2"
    assert isinstance(end, FinishedEvent)
    assert end.cached_tokens == 0


def test_own_kv_does_not_go_for_its_next_turn(start: Start, forward: StepwiseForward) -> None:
    first = forward.chat("hello", key="a")
    engine = start(budget_tokens=224)
    reply, _ = outcome(engine.submit(first))
    second = forward.next_turn(first.prompt_ids, reply, "x" * 100)
    assert in_blocks(len(second) + 64) == 224
    _, end = outcome(engine.submit(forward.chat(second, key="a")))
    assert isinstance(end, FinishedEvent)
    assert end.cached_tokens > 0
    assert engine.stats().evictions == 0


@pytest.mark.parametrize(
    ("num_tokens", "named"), [(128, None), (129, "K/V budget"), (8193, "8192 positions")]
)
def test_shortage_is_told_beforehand(start: Start, num_tokens: int, named: str | None) -> None:
    reason = start(budget_tokens=128).shortage(num_tokens)
    assert reason is None if named is None else named in str(reason)
