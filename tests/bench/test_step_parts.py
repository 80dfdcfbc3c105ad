"""The clock in the forward: it changes nothing, and notes the steps that it is to watch."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch

from bench.step_parts import ClockedForward, Step, StepClock, put_clock
from services.engine.attention import Segment
from services.engine.kv_cache import KVCache
from services.engine.loading import load_model
from services.engine.model import Qwen2Model
from services.engine.precision import Precision
from tests.weights.tiny_checkpoint import write_checkpoint

PROMPT, NEXT = [3, 1, 4, 1, 5], [9]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Qwen2Model]:
    yield load_model(write_checkpoint(tmp_path / "tiny"), Precision("fp32"))
    mock.patch.stopall()


def _prefill_and_decode(forward: Qwen2Model | ClockedForward, sequences: int) -> torch.Tensor:
    caches = [KVCache(forward.kv_spec, 16) for _ in range(sequences)]
    forward.forward([Segment(PROMPT, kv, 1) for kv in caches])
    return forward.forward([Segment(NEXT, kv, 1) for kv in caches])


def test_clock_does_not_change_the_logits(model: Qwen2Model) -> None:
    plain = _prefill_and_decode(model, 2)
    clocked = ClockedForward(put_clock(model, clock := StepClock()), clock)
    assert torch.equal(_prefill_and_decode(clocked, 2), plain)


def test_only_steps_of_the_watched_number_of_sequences_are_noted(model: Qwen2Model) -> None:
    clocked = ClockedForward(put_clock(model, clock := StepClock()), clock)
    clock.watch(2)
    for sequences in (1, 2, 3):
        _prefill_and_decode(clocked, sequences)
    assert len(clock.steps) == 1


def test_both_parts_are_timed(model: Qwen2Model) -> None:
    clocked = ClockedForward(put_clock(model, clock := StepClock()), clock)
    clock.watch(1)
    _prefill_and_decode(clocked, 1)
    (step,) = clock.steps
    assert step.products > 0
    assert step.attention > 0
    assert step.products + step.attention < step.ended - step.begun


def test_parts_of_a_step_add_up() -> None:
    clock = StepClock()
    clock.steps = [Step(0.0, 0.010, 0.006, 0.003), Step(0.012, 0.022, 0.006, 0.003)]
    figures = clock.figures()
    assert figures["step"] == pytest.approx(12)
    assert figures["rest"] == pytest.approx(1)
    assert figures["engine"] == pytest.approx(2)
    assert figures["step"] == pytest.approx(sum(figures.values()) - figures["step"])
