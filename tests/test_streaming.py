"""Streams: the label before the reply begins, one end, and what closing stops."""

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.exchange import (
    PROBLEM_KEYS,
    engine_of,
    events_of,
    hold_after,
    hold_chat_after,
    is_idle,
    is_label,
    open_stream,
    places_free,
    problem_of,
    runtime_of,
    until,
)
from tests.tiny import ScriptedForward

SSE, NDJSON, JSON = "text/event-stream", "application/x-ndjson", "application/json"


def post(client: FlaskClient, accept: str | None = None, **fields: Any) -> TestResponse:
    headers = {"Accept": accept} if accept is not None else {}
    return client.post("/analyze", json={"text": "bad", **fields}, headers=headers)


def test_label_is_written_before_the_replys_prefill(
    app: Flask, client: FlaskClient, forward: ScriptedForward
) -> None:
    forward.prompts.clear()
    hold_after(forward, is_label)
    frames = post(client, stream=True).iter_encoded()
    assert next(frames).startswith(b"event: sentiment\n")
    assert not forward.gate.is_set()
    assert len(forward.prompts) == 1  # the label's alone
    forward.gate.set()
    assert list(frames)[-1].startswith(b"event: done\n")


def test_first_piece_is_written_before_the_reply_is_whole(
    client: FlaskClient, forward: ScriptedForward
) -> None:
    hold_chat_after(forward, 1)
    frames = post(client, stream=True).iter_encoded()
    assert next(frames).startswith(b"event: sentiment\n")
    assert next(frames).startswith(b"event: delta\n")
    assert not forward.gate.is_set()
    forward.gate.set()
    assert list(frames)[-1].startswith(b"event: done\n")


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"text": ""}, 422), ({"tasks": ["poem"]}, 404), ({"text": "，" * 1100}, 422)],
)
def test_error_before_the_first_event_has_its_status(
    client: FlaskClient, fields: dict[str, Any], status: int
) -> None:
    problem_of(post(client, SSE, **fields), status)


def test_label_that_fails_has_its_status(
    app: Flask, client: FlaskClient, forward: ScriptedForward
) -> None:
    forward.poison = float("nan")
    problem_of(post(client, stream=True), 500)
    until(lambda: is_idle(app))
    assert places_free(app)


@pytest.mark.parametrize("accept", [SSE, NDJSON])
def test_error_after_the_first_event_ends_the_stream(
    app: Flask, client: FlaskClient, forward: ScriptedForward, accept: str
) -> None:
    hold_chat_after(forward, 2)
    response = post(client, accept, session_id="a")
    frames = response.iter_encoded()
    first = next(frames)
    until(lambda: not forward.gate.is_set())
    forward.poison = float("nan")
    forward.gate.set()
    rest = list(frames)
    names = [_name_and_data(frame, accept)[0] for frame in [first, *rest]]
    assert names[0] == "sentiment"
    assert names.count("error") == 1
    assert (names[-1], "done" in names) == ("error", False)
    data = _name_and_data(rest[-1], accept)[1]
    assert list(data) == PROBLEM_KEYS
    assert data["status"] == 500
    assert data["request_id"] == response.headers["X-Request-ID"]
    until(lambda: is_idle(app))
    assert client.get("/sessions/a").get_json()["turns"] == []


def test_engine_that_stops_ends_the_stream(
    app: Flask, client: FlaskClient, forward: ScriptedForward
) -> None:
    engine = engine_of(app)
    hold_chat_after(forward, 2)
    frames = post(client, stream=True).iter_encoded()
    next(frames)
    until(lambda: not forward.gate.is_set())
    forward.error = RuntimeError("broken")
    forward.gate.set()
    name, data = list(events_of(frames))[-1]
    assert (name, data["status"]) == ("error", 503)
    until(lambda: not engine.is_alive)
    problem_of(client.get("/readyz"), 503)
    problem_of(post(client), 503)


def _name_and_data(frame: bytes, accept: str) -> tuple[str, dict[str, Any]]:
    if accept == SSE:
        return next(events_of([frame]))
    data = json.loads(frame)
    return data.pop("event"), data


def test_closing_cancels_what_runs(app: Flask, forward: ScriptedForward) -> None:
    hold_chat_after(forward, 2)
    response, events = open_stream(app, text="bad", max_new_tokens=512)
    assert [next(events)[0] for _ in range(3)] == ["sentiment", "delta", "delta"]
    steps = len(forward.steps)
    response.close()
    assert places_free(app)
    forward.gate.set()
    until(lambda: is_idle(app))
    assert len(forward.steps) <= steps + 1  # the one that was under way


def test_closing_a_stream_that_nobody_read_cancels_it(app: Flask, forward: ScriptedForward) -> None:
    hold_chat_after(forward, 1)
    response = app.test_client().post("/analyze", json={"text": "bad", "stream": True})
    until(lambda: not forward.gate.is_set())
    response.close()
    assert places_free(app)
    forward.gate.set()
    until(lambda: is_idle(app))


def test_stream_that_is_closed_before_it_began_frees_its_place(app: Flask) -> None:
    """As when headers can't be written: the frames are never asked for."""
    with app.test_request_context(
        "/analyze", method="POST", json={"text": "bad", "stream": True, "session_id": "a"}
    ):
        response = app.full_dispatch_request()
        assert not places_free(app)
        response.close()
    assert places_free(app)
    session = runtime_of(app).sessions.find("a")
    assert session is not None
    assert not session.line
    until(lambda: is_idle(app))


def test_closing_after_the_end_is_harmless(app: Flask) -> None:
    response, events = open_stream(app, text="bad")
    assert list(events)[-1][0] == "done"
    response.close()
    response.close()
    assert places_free(app)
    assert is_idle(app)


def test_streams_that_are_all_closed_leave_nothing(app: Flask) -> None:
    for read in range(24):
        response, events = open_stream(app, text="bad", session_id=f"s{read % 3}")
        for _ in range(read % 5):
            next(events)
        response.close()
    until(lambda: is_idle(app))
    assert places_free(app)
    assert engine_of(app).stats().reserved_bytes == 0
