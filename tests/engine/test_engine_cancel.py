"""Sequences that are cancelled: what they held is freed, their key's K/V rolled back."""

from collections.abc import Callable

import pytest

from services.engine.engine import Engine
from services.engine.tasks import FailedEvent, FinishedEvent, LabelTask, TokenEvent
from tests.engine.stepwise import StepwiseForward, assert_free, failure, outcome


def test_cancelled_while_waiting(start: Callable[..., Engine], forward: StepwiseForward) -> None:
    engine = start(max_running=1)
    forward.hold()
    running = engine.submit(forward.chat("hello"))
    forward.wait_step()
    waiting = engine.submit(forward.chat("waits"))
    waiting.cancel()
    forward.let_go()
    assert str(failure(waiting)) == "cancelled"
    assert isinstance(outcome(running)[1], FinishedEvent)
    assert forward.turn("waits") not in forward.ran()
    assert_free(engine)


def test_cancelled_in_prefill(engine: Engine, forward: StepwiseForward) -> None:
    forward.hold()
    handle = engine.submit(forward.chat("x" * 500))
    forward.wait_step()
    assert engine.stats().reserved_bytes > 0
    handle.cancel()
    forward.let_go()
    assert str(failure(handle)) == "cancelled"
    assert len(forward.steps) == 1
    assert_free(engine)


def test_cancelled_in_decode(engine: Engine, forward: StepwiseForward) -> None:
    forward.hold()
    handle = engine.submit(forward.chat("hello"))
    forward.run_step()
    forward.wait_step()
    handle.cancel()
    forward.let_go()
    assert isinstance(handle.next_event(), TokenEvent)
    assert str(failure(handle)) == "cancelled"
    assert_free(engine)


def test_cancelled_label(engine: Engine, forward: StepwiseForward) -> None:
    forward.hold()
    handle = engine.submit(LabelTask(forward.turn("x" * 300), ((1,), (2,))))
    forward.wait_step()
    handle.cancel()
    forward.let_go()
    assert str(failure(handle)) == "cancelled"
    assert_free(engine)


def test_cancelling_what_has_ended_is_harmless(engine: Engine, forward: StepwiseForward) -> None:
    handle = engine.submit(forward.chat("hello"))
    assert isinstance(outcome(handle)[1], FinishedEvent)
    handle.cancel()
    assert isinstance(outcome(engine.submit(forward.chat("hello")))[1], FinishedEvent)
    assert handle.next_event(0) is None


@pytest.mark.parametrize("num_steps", [1, 2, 4])
def test_cancelled_turn_rolls_its_keys_kv_back(
    engine: Engine, forward: StepwiseForward, num_steps: int
) -> None:
    first = forward.chat("hello", key="a")
    reply, _ = outcome(engine.submit(first))
    before = engine.cached_bytes("a")
    forward.hold()
    task = forward.chat(forward.next_turn(first.prompt_ids, reply, "x" * 200), key="a")
    handle = engine.submit(task)
    for _ in range(num_steps):
        forward.run_step()
    forward.wait_step()
    handle.cancel()
    forward.let_go()
    while isinstance(event := handle.next_event(), TokenEvent):
        pass
    assert isinstance(event, FailedEvent)
    assert engine.cached_bytes("a") == before
    # Another turn instead: it finds all that stood there before, and nothing of the cancelled.
    other = forward.next_turn(first.prompt_ids, reply, "good food")
    tokens, end = outcome(engine.submit(forward.chat(other, key="a")))
    assert forward.tokenizer.decode(tokens) == "You said good food in turn 2"
    assert isinstance(end, FinishedEvent)
    assert end.cached_tokens == len(first.prompt_ids) + len(reply)
