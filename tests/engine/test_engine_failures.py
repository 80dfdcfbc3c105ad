"""Sequences that fail: each ends alone, and the others go on."""

import pytest

from services.engine.engine import Engine
from services.engine.sampler import Sampler
from services.engine.tasks import ChatTask, EngineError, FinishedEvent, LabelTask, Sampling
from tests.engine.stepwise import StepwiseForward, assert_free, failure, outcome


def test_failed_sampling_ends_alone(engine: Engine, forward: StepwiseForward) -> None:
    forward.poisoned = forward.ids("差")[0]
    forward.hold()
    good = engine.submit(forward.chat("hello"))
    bad = engine.submit(forward.chat("差", key="a"))
    worse = engine.submit(LabelTask(forward.turn("差"), ((1,), (2,))))
    forward.let_go()
    assert "not finite" in str(failure(bad))
    assert "not finite" in str(failure(worse))
    tokens, _ = outcome(good)
    assert forward.tokenizer.decode(tokens) == "You said hello in turn 1"
    assert engine.cached_bytes("a") == 0
    assert_free(engine)


def test_failed_sampling_in_a_reply_rolls_back(engine: Engine, forward: StepwiseForward) -> None:
    first = forward.chat("hello", key="a")
    reply, _ = outcome(engine.submit(first))
    before = engine.cached_bytes("a")
    forward.poisoned = forward.ids("差")[0]
    bad = forward.next_turn(first.prompt_ids, reply, "差" + "x" * 100)
    assert "not finite" in str(failure(engine.submit(forward.chat(bad, key="a"))))
    assert engine.cached_bytes("a") == before


def test_unforeseen_error_ends_one_and_is_logged(
    engine: Engine,
    forward: StepwiseForward,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sample = Sampler.next_id

    def fail_at_five(self: Sampler, logits: object, reply_ids: list[int]) -> int:
        if len(reply_ids) == 5:
            raise ZeroDivisionError("a bug of ours")
        return sample(self, logits, reply_ids)  # type: ignore[arg-type]

    monkeypatch.setattr(Sampler, "next_id", fail_at_five)
    bad = engine.submit(forward.chat("hello", max_new_tokens=6))
    good = engine.submit(forward.chat("hello", max_new_tokens=4))
    assert str(failure(bad)) == "ZeroDivisionError"
    assert isinstance(outcome(good)[1], FinishedEvent)
    assert "ZeroDivisionError" in caplog.text
    assert "in fail_at_five" in caplog.text
    assert_free(engine)


@pytest.mark.parametrize(
    "task",
    [
        ChatTask([], frozenset({1}), 5),
        ChatTask([1], frozenset({1}), 0),
        ChatTask([1], frozenset({1}), 9000),
        ChatTask([1] * 9000, frozenset({1}), 1),
        ChatTask([1], frozenset({1}), 5, Sampling(seed=2**70)),
        LabelTask([], ((1,),)),
        LabelTask([1], ()),
        LabelTask([1], ((1,), ())),
        LabelTask([1] * 9000, ((1,),)),
    ],
    ids=lambda task: repr(task)[:40],
)
def test_task_that_can_not_run_is_refused_alone(
    engine: Engine, forward: StepwiseForward, task: ChatTask | LabelTask
) -> None:
    assert isinstance(failure(engine.submit(task)), EngineError)
    assert isinstance(outcome(engine.submit(forward.chat("hello")))[1], FinishedEvent)
    assert_free(engine)


def test_choice_outside_the_vocabulary_fails_alone(
    engine: Engine, forward: StepwiseForward
) -> None:
    label = LabelTask(forward.turn("hello"), ((10**6,),))
    assert str(failure(engine.submit(label))) == "IndexError"
    assert isinstance(outcome(engine.submit(forward.chat("hello")))[1], FinishedEvent)


def test_prefix_too_long_is_refused(engine: Engine, forward: StepwiseForward) -> None:
    with pytest.raises(EngineError, match="8192 positions"):
        engine.add_prefix([1] * 8193)
    assert engine.is_alive


def test_prefix_that_fails_is_told_and_ends_nothing(
    engine: Engine, forward: StepwiseForward
) -> None:
    forward.error = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.add_prefix([1, 2, 3])
    forward.error = None
    assert isinstance(outcome(engine.submit(forward.chat("hello")))[1], FinishedEvent)
