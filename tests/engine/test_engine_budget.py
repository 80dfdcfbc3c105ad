"""One byte budget for all K/V: what waits, what goes, what is refused."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from services.engine.engine import Engine
from services.engine.kv_cache import reserved_tokens
from services.engine.model import Segment
from services.engine.tasks import (
    Event,
    FailedEvent,
    FinishedEvent,
    LabelTask,
    SequenceHandle,
)
from tests.engine.stepwise import StepwiseForward, assert_free, failure, outcome

Start = Callable[..., Engine]


def room_of(forward: StepwiseForward, text: str, max_new_tokens: int = 64) -> int:
    """Tokens that a chat on this text reserves."""
    return reserved_tokens(len(forward.turn(text)) + max_new_tokens)


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
    assert engine.stats().reserved_bytes == (len(prompt) + 3) * 8
    forward.let_go()
    outcome(handle)


def test_prefix_is_not_reserved_again(start: Start, forward: StepwiseForward) -> None:
    engine, head = start(), forward.ids("good " * 100)
    engine.add_prefix(head)
    forward.hold()
    handle = engine.submit(forward.chat(forward.turn("hello", head)))
    forward.wait_step()
    assert engine.stats().reserved_bytes == room_of(forward, "hello") * 8
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


def test_idle_kv_goes_least_recently_used_first(start: Start, forward: StepwiseForward) -> None:
    room = room_of(forward, "hello")
    engine = start(budget_tokens=3 * room)
    for key in "abca":
        outcome(engine.submit(forward.chat("hello", key=key)))
    kept = engine.cached_bytes("a")
    assert engine.stats().idle_bytes == 3 * kept
    outcome(engine.submit(forward.chat("hello", key="d", max_new_tokens=64)))
    outcome(engine.submit(forward.chat("x" * (room - 20))))
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
    engine = start(budget_tokens=256)
    reply, _ = outcome(engine.submit(first))
    second = forward.next_turn(first.prompt_ids, reply, "x" * 100)
    assert reserved_tokens(len(second) + 64) == 256
    _, end = outcome(engine.submit(forward.chat(second, key="a")))
    assert isinstance(end, FinishedEvent)
    assert end.cached_tokens > 0
    assert engine.stats().evictions == 0


class CountedForward(StepwiseForward):
    """Notes, at every step, how far the K/V in use exceeds what it may be."""

    engine: Engine
    budget_bytes: int

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.excesses: list[str] = []
        self.num_looks = 0

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        logits = super().forward(segments)
        stats, used = self.engine.stats(), sum(segment.kv.num_bytes for segment in segments)
        self.num_looks += 1
        if used > stats.reserved_bytes:
            self.excesses.append(f"{used} used, {stats.reserved_bytes} reserved")
        if stats.reserved_bytes + stats.idle_bytes > self.budget_bytes:
            self.excesses.append(f"{stats} over {self.budget_bytes}")
        return logits


@pytest.mark.parametrize("seed", range(4))
def test_budget_is_never_exceeded(tiny_folder: Path, seed: int) -> None:
    """Random dialogues, labels, cancels and forgets in a budget that they don't all fit into."""
    forward, generator = CountedForward(tiny_folder), random.Random(seed)
    forward.budget_bytes = 700 * 8
    engine = Engine(lambda: forward, kv_budget_bytes=forward.budget_bytes, max_running=4)
    forward.engine = engine
    engine.start()
    head = forward.ids("<|im_start|>system\ngood<|im_end|>\n")
    engine.wait_loaded()
    engine.add_prefix(head)
    forward.excesses.clear()  # the prefix is outside the budget
    handles: list[SequenceHandle] = []
    ends: list[Event] = []
    for _ in range(80):
        text = generator.choice(["hello", "x" * generator.randrange(1, 300), "bad food"])
        start_ids = generator.choice([[], head])
        if generator.random() < 0.4:
            choices = generator.choice([((1,), (2,)), ((1, 2, 3), (1, 4, 3))])
            handles.append(engine.submit(LabelTask(forward.turn(text, start_ids), choices)))
        else:
            task = forward.chat(
                forward.turn(text, start_ids),
                key=generator.choice([None, *"abcde"]),
                max_new_tokens=generator.randrange(1, 40),
            )
            handles.append(engine.submit(task))
        if generator.random() < 0.2:
            generator.choice(handles).cancel()
        if generator.random() < 0.1:
            engine.forget(generator.choice("abcde"))
        if generator.random() < 0.1:  # let what is there run out now and then
            ends += [outcome(handle)[1] for handle in handles]
            handles.clear()
    ends += [outcome(handle)[1] for handle in handles]
    engine.stop()
    assert forward.excesses == []
    assert forward.num_looks > 100
    assert sum(isinstance(end, FailedEvent) for end in ends) < len(ends) / 2


@pytest.mark.parametrize(
    ("num_tokens", "named"), [(128, None), (129, "K/V budget"), (8193, "8192 positions")]
)
def test_shortage_is_told_beforehand(start: Start, num_tokens: int, named: str | None) -> None:
    reason = start(budget_tokens=128).shortage(num_tokens)
    assert reason is None if named is None else named in str(reason)
