"""What the API answers with: the JSON answer, and the data of each stream event."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from services.events import SENTIMENT, Delta, Done, Event
from services.sentiment import Verdict

NUM_DIGITS = 6


def answer(events: Iterable[Event]) -> dict[str, Any]:
    """The JSON answer: all keys always, in this order, null where not asked for."""
    sentiment: dict[str, Any] = {"sentiment": None, "confidence": None, "scores": None}
    labels: dict[str, Any] = {}
    response: str | None = None
    for event in events:
        if isinstance(event, Delta):
            response = (response or "") + event.text
        elif isinstance(event, Done):
            done = _done(event)
        elif event.task == SENTIMENT:
            sentiment = _sentiment(event.verdict)
        else:
            labels[event.task] = _label(event.verdict)
    if done["finish_reason"] is not None and response is None:
        response = ""  # the model ended its turn at once
    return {**sentiment, "labels": labels, "response": response, **done}


def event_data(event: Event) -> tuple[str, dict[str, Any]]:
    """An event's name in a stream, and its data."""
    if isinstance(event, Delta):
        return "delta", {"text": event.text}
    if isinstance(event, Done):
        return "done", _done(event)
    if event.task == SENTIMENT:
        return "sentiment", _sentiment(event.verdict)
    return "label", {"task": event.task, **_label(event.verdict)}


def _sentiment(verdict: Verdict) -> dict[str, Any]:
    fields = _label(verdict)
    return {"sentiment": fields.pop("label"), **fields}


def _label(verdict: Verdict) -> dict[str, Any]:
    return {
        "label": verdict.label,
        "confidence": round(verdict.confidence, NUM_DIGITS),
        "scores": {label: round(score, NUM_DIGITS) for label, score in verdict.scores.items()},
    }


def _done(event: Done) -> dict[str, Any]:
    return asdict(event)
