"""The scripted forward, one step at a time, and the tasks that engine tests give it."""

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from services.engine.attention import Segment
from services.engine.engine import Engine
from services.engine.tasks import (
    ChatTask,
    EngineError,
    Event,
    FailedEvent,
    Sampling,
    SequenceHandle,
    TokenEvent,
)
from tests.tiny import ScriptedForward

GREEDY = Sampling()
WAIT_S = 20.0  # longer than any step; a test that runs into it has failed


class StepwiseForward(ScriptedForward):
    """Once `hold` was called, a step runs only when a test says so.

    `poisoned` is a token id: logits of whoever has it become NaN.
    """

    def __init__(self, folder: Path, answer: Callable[[str], str] | None = None) -> None:
        super().__init__(folder, answer)
        self.poisoned: int | None = None
        self._is_held = False
        self._arrived = threading.Semaphore(0)
        self._permits = threading.Semaphore(0)

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        if self._is_held:
            self._arrived.release()
            assert self._permits.acquire(timeout=WAIT_S), "a test forgot a step"
        logits = super().forward(segments)
        rows = logits.split([segment.num_logits for segment in segments])
        for segment, own in zip(segments, rows, strict=True):
            if self.poisoned in segment.kv.token_ids:
                own.fill_(float("nan"))
        return logits

    def hold(self) -> None:
        self._is_held = True

    def wait_step(self) -> None:
        """Return once the next step is made up, and waits to run."""
        assert self._arrived.acquire(timeout=WAIT_S), "no step came"

    def run_step(self) -> None:
        """Run the next step."""
        self.wait_step()
        self._permits.release()

    def pass_step(self) -> None:
        """Run the step that `wait_step` waited for."""
        self._permits.release()

    def let_go(self) -> None:
        """Run whatever comes, from the step on that waits now."""
        self._is_held = False
        self._permits.release()

    def ran(self) -> list[list[int]]:
        """Token ids of every segment so far, whatever its step."""
        return [segment for step in self.steps for segment in step]

    # --- texts and tasks ---

    def ids(self, text: str) -> list[int]:
        token_ids: list[int] = self.tokenizer.encode(text)
        return token_ids

    def turn(self, text: str, history: Iterable[int] = ()) -> list[int]:
        """A prompt that ends in this text's turn."""
        frame = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        return [*history, *self.ids(frame)]

    def next_turn(self, prompt: Iterable[int], reply: Iterable[int], text: str) -> list[int]:
        return self.turn(text, [*prompt, *reply, *self.ids("<|im_end|>\n")])

    def chat(
        self,
        prompt: str | Sequence[int],
        *,
        key: str | None = None,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
        after: tuple[SequenceHandle, ...] = (),
    ) -> ChatTask:
        prompt_ids = self.turn(prompt) if isinstance(prompt, str) else prompt
        ends = frozenset(self.ids("<|im_end|><|endoftext|>"))
        return ChatTask(prompt_ids, ends, max_new_tokens, sampling, key, after)


def outcome(handle: SequenceHandle) -> tuple[list[int], Event]:
    """The tokens of a sequence and the event that ended it, after which there is no other."""
    tokens: list[int] = []
    while isinstance(event := handle.next_event(WAIT_S), TokenEvent):
        tokens.append(event.token_id)
    assert event is not None, "no event came"
    assert handle.next_event(0) is None
    return tokens, event


def failure(handle: SequenceHandle) -> EngineError:
    """The error that ended a sequence."""
    _, end = outcome(handle)
    assert isinstance(end, FailedEvent)
    return end.error


def assert_free(engine: Engine) -> None:
    """Nothing runs or waits, and no running sequence's bytes are reserved."""
    stats = engine.stats()
    assert (stats.num_sequences, stats.reserved_bytes) == (0, 0)
