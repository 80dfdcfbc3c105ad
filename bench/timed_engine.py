"""The engine with a clock beside it: tasks go in, the times of their tokens come out."""

import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from services.engine.engine import Engine
from services.engine.tasks import (
    ChatTask,
    EngineError,
    Event,
    FailedEvent,
    LabelTask,
    Sampling,
    SequenceHandle,
    TokenEvent,
)

GREEDY = Sampling()
WAIT_S = 600.0
_NO_END: frozenset[int] = frozenset()  # every reply has just as many tokens as asked for


@dataclass(frozen=True, slots=True)
class Reply:
    """The tokens of a reply, and when each came (`time.perf_counter` seconds)."""

    token_ids: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


class TimedEngine:
    """What the jobs share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def submit(
        self,
        prompt_ids: Sequence[int],
        new_tokens: int,
        key: Hashable | None = None,
        sampling: Sampling = GREEDY,
        after: tuple[SequenceHandle, ...] = (),
        *,
        may_draft: bool = False,
    ) -> SequenceHandle:
        """A reply of exactly so many tokens. Without speculation: what follows random tokens soon
        goes in a circle, where every draft is right, and would be no measure."""
        task = ChatTask(
            prompt_ids, _NO_END, new_tokens, sampling, key=key, after=after, may_draft=may_draft
        )
        return self._engine.submit(task)

    def submit_label(self, task: LabelTask) -> SequenceHandle:
        return self._engine.submit(task)

    def keep(self, prompt_ids: Sequence[int], key: Hashable) -> None:
        """Prefill a prompt, and keep its K/V under `key`."""
        wait(self.submit(prompt_ids, 1, key))

    def cancel(self, handles: Iterable[SequenceHandle]) -> None:
        """End them, and wait until they have."""
        handles = list(handles)
        for handle in handles:
            handle.cancel()
        for handle in handles:
            while not handle.is_ended:
                handle.next_event(WAIT_S)

    def forget(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            self._engine.forget(key)


def wait(handle: SequenceHandle) -> Reply:
    """The whole reply, once the task has ended; one without tokens for a label.

    Raises:
        EngineError: it failed, or nothing came for `WAIT_S`.
    """
    reply = Reply()
    while isinstance(event := _next(handle), TokenEvent):
        reply.times.append(time.perf_counter())
        reply.token_ids.append(event.token_id)
    return reply


def _next(handle: SequenceHandle) -> Event:
    event = handle.next_event(WAIT_S)
    if event is None:
        raise EngineError(f"nothing came for {WAIT_S:.0f} s")
    if isinstance(event, FailedEvent):
        raise event.error
    return event
