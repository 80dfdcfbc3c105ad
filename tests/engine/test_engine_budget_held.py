"""The byte budget under a load that does not fit into it."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from services.engine.attention import Segment
from services.engine.engine import Engine
from services.engine.kv_cache import MAX_COPIED_TOKENS
from services.engine.tasks import Event, FailedEvent, LabelTask, SequenceHandle
from tests.engine.stepwise import StepwiseForward, outcome


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
    copied = forward.ids("<|im_start|>system\ngood<|im_end|>\n")
    shared = copied * (1 + MAX_COPIED_TOKENS // len(copied))
    engine.wait_loaded()
    for prefix in (copied, shared):
        engine.add_prefix(prefix)
    forward.excesses.clear()  # the prefixes are outside the budget
    handles: list[SequenceHandle] = []
    ends: list[Event] = []
    for _ in range(80):
        text = generator.choice(["hello", "x" * generator.randrange(1, 300), "bad food"])
        start_ids = generator.choice([[], copied, shared])
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
