"""The seam: tasks go into the engine, events come out. Plain integers, strings and floats."""

import queue
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


class EngineError(Exception):
    """A sequence failed inside the engine."""


class EngineStoppedError(EngineError):
    """The engine's thread is gone, or is about to be."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How logits become a token. Temperature 0 is greedy; `top_k` 0 means all.

    `repetition_penalty` divides the positive logits and multiplies the negative ones of the
    tokens of this reply (Keskar et al., 2019, CTRL); the prompt's tokens are left alone, since
    a reply has to be able to repeat the user's facts.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class LabelTask:
    """Score each of `choices`, token ids each, as what follows the prompt."""

    prompt_ids: Sequence[int]
    choices: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ChatTask:
    """Generate what follows the prompt, up to one of `end_ids` or `max_new_tokens` tokens.

    K/V kept under `key` is reused as far as its tokens agree, and kept there again. It isn't
    scheduled before every sequence in `after` has ended. With `may_draft`, likely tokens are run
    ahead of their turn (`drafting`), which changes none of them.
    """

    prompt_ids: Sequence[int]
    end_ids: frozenset[int]
    max_new_tokens: int
    sampling: Sampling = Sampling()
    key: Hashable | None = None
    after: tuple["SequenceHandle", ...] = ()
    may_draft: bool = True


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One more token of the reply."""

    token_id: int


@dataclass(frozen=True, slots=True)
class ScoredEvent:
    """The end of a label task: log-probabilities of its choices, each summed over its tokens."""

    log_probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The end of a reply. `cached_tokens` came from the key's K/V, a prefix not counted."""

    reason: str  # "stop" or "length"
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """The end of a task that could not be done."""

    error: EngineError


Event = TokenEvent | ScoredEvent | FinishedEvent | FailedEvent


class SequenceHandle:
    """The caller's end of a sequence: its events, and the wish to cancel it."""

    __slots__ = ("_events", "is_cancelled", "is_ended")

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.is_cancelled = False
        self.is_ended = False

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event, or None after `timeout_s` without one."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Ask the engine to end it before its next step; harmless if it has ended."""
        self.is_cancelled = True

    def put(self, event: Event) -> None:
        """For the engine: hand an event over; every one but a token ends the sequence."""
        if not isinstance(event, TokenEvent):
            self.is_ended = True
        self._events.put(event)
