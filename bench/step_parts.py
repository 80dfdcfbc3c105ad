"""Our engine with a clock around the parts of its forward: a contender for `bench.steps`.

The clock sits around the model's own objects, so that what runs is what serves.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bench.changed_model import make_ready_with
from bench.contender import Figures
from bench.ours import Ours, with_room
from services.engine import model as forward_module
from services.engine.attention import Attention, Segment
from services.engine.model import Forward, Qwen2Model
from services.settings import Settings


@dataclass(frozen=True, slots=True)
class Step:
    """One forward over so many sequences' next tokens; seconds."""

    begun: float
    ended: float
    products: float
    attention: float


class StepClock:
    """Notes each step that decodes for as many sequences as it is told to watch."""

    def __init__(self) -> None:
        self.products = self.attention = 0.0  # seconds since the start, of all steps
        self.sequences = 0
        self.steps: list[Step] = []

    def watch(self, sequences: int) -> None:
        self.sequences, self.steps = sequences, []

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, its time added to a part's."""

        @wraps(call)
        def run(*args: Any) -> Any:
            begun = time.perf_counter()
            result = call(*args)
            setattr(self, part, getattr(self, part) + time.perf_counter() - begun)
            return result

        return run

    def figures(self) -> Figures:
        """Means in ms: of a whole `step`, from one forward's begin to the next; of its
        `products` and `attention`, the `rest` of its forward, and what the `engine` does between
        two forwards (drawing tokens, handing them out, planning)."""
        steps = self.steps
        whole = (steps[-1].begun - steps[0].begun) / (len(steps) - 1)
        forward = statistics.fmean(step.ended - step.begun for step in steps)
        products = statistics.fmean(step.products for step in steps)
        attention = statistics.fmean(step.attention for step in steps)
        parts = {
            "step": whole,
            "products": products,
            "attention": attention,
            "rest": forward - products - attention,
            "engine": whole - forward,
        }
        return {name: 1000 * seconds for name, seconds in parts.items()}


class ClockedForward:
    """A `Forward` that notes its steps."""

    def __init__(self, model: Forward, clock: StepClock) -> None:
        self.kv_spec = model.kv_spec
        self.max_positions = model.max_positions
        self._model = model
        self._clock = clock

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        clock = self._clock
        products, attention = clock.products, clock.attention
        begun = time.perf_counter()
        logits = self._model.forward(segments)
        ended = time.perf_counter()
        if [len(segment.token_ids) for segment in segments] == [1] * clock.sequences:
            spent = clock.products - products, clock.attention - attention
            clock.steps.append(Step(begun, ended, *spent))
        return logits


class StepParts:
    """The contender."""

    def __init__(self, ours: Ours, clock: StepClock) -> None:
        self._ours = ours
        self._clock = clock

    def step(self, sequences: int, new_tokens: int, history_tokens: int) -> Figures:
        """See `StepClock.figures`."""
        self._clock.watch(sequences)
        self._ours.decode(sequences, new_tokens, history_tokens)
        return self._clock.figures()


def make(settings: Settings, work_dir: Path) -> StepParts:
    """The engine as `bench.ours` makes it, with the clock in it.

    Raises:
        UnavailableError: the model isn't there.
    """
    clock = StepClock()
    ready = make_ready_with(
        with_room(settings), lambda model: ClockedForward(put_clock(model, clock), clock)
    )
    return StepParts(Ours(ready), clock)


def put_clock(model: Qwen2Model, clock: StepClock) -> Qwen2Model:
    """Around its products, and around the attention of all models of this process."""
    model._head = clock.timed("products", model._head)
    model._layers = [_with_clock(layer, clock) for layer in model._layers]
    # For good: nothing else runs in this process.
    mock.patch.object(forward_module, "Attention", _timed_attention(clock)).start()
    return model


def _with_clock(layer: Any, clock: StepClock) -> Any:
    """A layer's products are what can be called in it; the others are norm weights."""
    parts = {field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)}
    products = {
        name: clock.timed("products", part) for name, part in parts.items() if callable(part)
    }
    return dataclasses.replace(layer, **products)


def _timed_attention(clock: StepClock) -> type[Attention]:
    """The step's attention; its plan, made once a step, counts as its layers do."""

    class TimedAttention(Attention):
        def __init__(self, *args: Any) -> None:
            clock.timed("attention", super().__init__)(*args)

        def run(self, layer: int, rows: torch.Tensor) -> torch.Tensor:
            mixed: torch.Tensor = clock.timed("attention", super().run)(layer, rows)
            return mixed

    return TimedAttention
