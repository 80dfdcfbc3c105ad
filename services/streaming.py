"""Events -> frames of server-sent events or NDJSON lines."""

import json
from collections.abc import Generator, Iterator
from itertools import chain
from typing import Any

from flask import Response

from services.errors import ServiceError, internal_error, problem
from services.events import Event
from services.replies import event_data

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"


def stream(events: Generator[Event], mimetype: str, request_id: str) -> Response:
    """Answer with a stream once the first event is there; until then an error has its status.

    Raises:
        ServiceError: what the first event's computing raises.
    """
    first = next(events)
    frames = _frames(chain([first], events), mimetype, request_id)
    response = Response(frames, mimetype=mimetype)
    # Closing the events cancels what runs, also where the frames were never begun.
    response.call_on_close(events.close)
    response.headers["X-Accel-Buffering"] = "no"
    response.headers["Cache-Control"] = "no-cache, no-transform"
    return response


def _frames(events: Iterator[Event], mimetype: str, request_id: str) -> Iterator[bytes]:
    """A frame each; what fails on the way becomes one last `error` frame."""
    try:
        for event in events:
            yield _frame(*event_data(event), mimetype)
    except ServiceError as error:
        yield _frame("error", problem(error, request_id), mimetype)
    except Exception as error:
        failure = internal_error(error, request_id)
        yield _frame("error", problem(failure, request_id), mimetype)


def _frame(name: str, data: dict[str, Any], mimetype: str) -> bytes:
    if mimetype == NDJSON:
        return _json({"event": name, **data}) + b"\n"
    return b"event: " + name.encode() + b"\ndata: " + _json(data) + b"\n\n"


def _json(data: dict[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
