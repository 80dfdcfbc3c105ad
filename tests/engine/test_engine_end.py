"""The loop's end: everyone is told exactly once, also those who come later."""

import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from services.engine.admission import Admission
from services.engine.engine import Engine
from services.engine.tasks import EngineStoppedError, FinishedEvent, LabelTask, SequenceHandle
from tests.engine.stepwise import WAIT_S, StepwiseForward, assert_free, failure, outcome


def everyone(engine: Engine, forward: StepwiseForward) -> list[SequenceHandle]:
    """Sequences that run, wait for a place and wait for one another."""
    label = engine.submit(LabelTask(forward.turn("x" * 300), ((1,), (2,))))
    return [
        label,
        engine.submit(forward.chat("hello")),
        engine.submit(forward.chat("food", key="a")),
        engine.submit(forward.chat("weather", after=(label,))),
    ]


def stop_it(engine: Engine, forward: StepwiseForward) -> None:
    forward.gate.set()
    engine.stop()


def break_it(engine: Engine, forward: StepwiseForward) -> None:
    forward.error = RuntimeError("out of memory")
    forward.gate.set()


@pytest.mark.parametrize("end_it", [stop_it, break_it])
def test_end_of_the_loop_tells_everyone_once(
    start: Callable[..., Engine],
    forward: StepwiseForward,
    end_it: Callable[[Engine, StepwiseForward], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = start(max_running=1)
    outcome(engine.submit(forward.chat("kept", key="b")))
    caplog.set_level(logging.CRITICAL, "services.engine")
    forward.gate.clear()
    handles = everyone(engine, forward)
    end_it(engine, forward)
    handles += everyone(engine, forward)
    for handle in handles:
        assert isinstance(failure(handle), EngineStoppedError)
    late = everyone(engine, forward)
    assert all(isinstance(failure(handle), EngineStoppedError) for handle in late)
    assert not engine.is_alive


@pytest.mark.parametrize("end_it", [stop_it, break_it])
def test_end_of_the_loop_frees_all(
    engine: Engine, forward: StepwiseForward, end_it: Callable[[Engine, StepwiseForward], None]
) -> None:
    outcome(engine.submit(forward.chat("kept", key="b")))
    forward.gate.clear()
    handle = engine.submit(forward.chat("hello"))
    end_it(engine, forward)
    failure(handle)
    engine.stop()
    assert_free(engine)
    assert engine.stats().idle_bytes == engine.cached_bytes("b") == 0


def test_dead_engine_takes_messages_without_harm(engine: Engine, forward: StepwiseForward) -> None:
    engine.stop()
    engine.forget("a")
    with pytest.raises(EngineStoppedError):
        engine.add_prefix([1, 2, 3])
    engine.stop()
    assert not engine.is_alive


def test_failed_load_tells_who_waits_for_it_and_who_submitted(forward: StepwiseForward) -> None:
    def load() -> StepwiseForward:
        raise OSError("no such file")

    engine = Engine(load, kv_budget_bytes=1, max_running=1)
    early = engine.submit(forward.chat("hello"))
    engine.start()
    with pytest.raises(OSError, match="no such file"):
        engine.wait_loaded()
    assert isinstance(failure(early), EngineStoppedError)
    assert isinstance(failure(engine.submit(forward.chat("hello"))), EngineStoppedError)
    assert not engine.is_alive
    engine.stop()


def test_stopped_before_it_started(forward: StepwiseForward) -> None:
    engine = Engine(partial(pytest.fail, "it loaded"), kv_budget_bytes=1, max_running=1)
    early = engine.submit(forward.chat("hello"))
    engine.stop()
    assert isinstance(failure(early), EngineStoppedError)
    assert isinstance(failure(engine.submit(forward.chat("hello"))), EngineStoppedError)
    engine.start()
    with pytest.raises(EngineStoppedError):
        engine.wait_loaded()


def test_fault_while_freeing_still_tells_the_caller(
    engine: Engine, forward: StepwiseForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Admission, sequence: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Admission, "release", fail)
    forward.answer = lambda prompt: "good" if "short" in prompt else "the food was cold"
    forward.hold()
    handles = [engine.submit(forward.chat(text)) for text in ("short", "long")]
    forward.let_go()
    assert isinstance(outcome(handles[0])[1], FinishedEvent)
    assert isinstance(failure(handles[1]), EngineStoppedError)


def test_inbox_that_never_empties_holds_nobody_up(engine: Engine, forward: StepwiseForward) -> None:
    class Echo:
        """A key that is forgotten again each time the engine looks it up."""

        def __hash__(self) -> int:
            engine.forget(self)
            return 1

    engine.forget(Echo())
    assert isinstance(outcome(engine.submit(forward.chat("hello")))[1], FinishedEvent)
    engine.stop()
    assert not engine.is_alive


@pytest.fixture
def frantic() -> Iterator[None]:
    """Threads change places as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frantic")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("end_it", [stop_it, break_it])
def test_exactly_one_end_for_each_that_is_submitted_meanwhile(
    engine: Engine,
    forward: StepwiseForward,
    end_it: Callable[[Engine, StepwiseForward], None],
    seed: int,
) -> None:
    handles: list[SequenceHandle] = []
    has_begun = threading.Event()

    def submit_all(number: int) -> None:
        generator, num_late = random.Random(f"{seed} {number}"), 0
        while num_late < 5:
            num_late += not engine.is_alive
            label = engine.submit(LabelTask(forward.turn("food"), ((1,), (2,))))
            chat = engine.submit(forward.chat("food", key="a", max_new_tokens=2, after=(label,)))
            handles.extend([label, chat])
            if generator.random() < 0.3:
                chat.cancel()
            if generator.random() < 0.3:
                engine.forget("a")
            if len(handles) > 60:
                has_begun.set()

    threads = [threading.Thread(target=submit_all, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert has_begun.wait(WAIT_S)
    end_it(engine, forward)
    for thread in threads:
        thread.join()
    assert len([outcome(handle) for handle in handles]) > 60  # which looks for a second end too
    engine.stop()
    assert_free(engine)
