"""What a request's analysis tells, in order: `Label`s, `Delta`s, then one `Done`."""

from dataclasses import dataclass

from services.sentiment import Verdict

SENTIMENT = "sentiment"  # the label task whose verdict stands at the top of an answer


@dataclass(frozen=True, slots=True)
class Label:
    """A label task's verdict."""

    task: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the reply, whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the chat; `cached_tokens` were reused from the session."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds since the request arrived; None where there was no such thing."""

    label_ms: float | None
    first_token_ms: float | None
    total_ms: float


@dataclass(frozen=True, slots=True)
class Done:
    """The end. `finish_reason` and `usage` are None where no chat was asked for."""

    finish_reason: str | None
    session_id: str | None
    usage: Usage | None
    timings: Timings
    model: str


Event = Label | Delta | Done
