"""Streams: exact frames, and which format a request gets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from services.settings import Settings
from tests.exchange import copy_prompts, events_of, is_label
from tests.tiny import ScriptedForward

SSE, NDJSON, JSON = "text/event-stream", "application/x-ndjson", "application/json"


MOOD = """\
name: mood
kind: label
description: How someone feels.
system: Answer with one word.
user: "{text}"
labels: [Positive, Negative]
budget: {max_new_tokens: 2}
cache: none
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """With a further label task."""
    copy_prompts(tmp_path, mood=MOOD)
    return replace(settings, prompts_dir=tmp_path)


def post(client: FlaskClient, accept: str | None = None, **fields: Any) -> TestResponse:
    headers = {"Accept": accept} if accept is not None else {}
    return client.post("/analyze", json={"text": "bad", **fields}, headers=headers)


def test_frames_of_server_sent_events(client: FlaskClient) -> None:
    frames = list(post(client, stream=True).iter_encoded())
    assert frames[0].startswith(b'event: sentiment\ndata: {"sentiment":"Negative","confidence":')
    assert frames[1].startswith(b'event: delta\ndata: {"text":"')
    assert frames[-1].startswith(b'event: done\ndata: {"finish_reason":"stop","session_id":null,')
    for frame in frames:
        assert frame.endswith(b"\n\n")
        assert frame.count(b"\n") == 3


def test_data_of_each_event(client: FlaskClient) -> None:
    events = list(events_of(post(client, stream=True, session_id="a").iter_encoded()))
    names = [name for name, _ in events]
    assert names == ["sentiment", *["delta"] * (len(events) - 2), "done"]
    assert list(events[0][1]) == ["sentiment", "confidence", "scores"]
    assert all(list(data) == ["text"] for _, data in events[1:-1])
    done = events[-1][1]
    assert list(done) == ["finish_reason", "session_id", "usage", "timings", "model"]
    assert (done["session_id"], done["finish_reason"]) == ("a", "stop")


def test_joined_deltas_are_the_reply_of_the_json_answer(client: FlaskClient) -> None:
    whole = post(client, temperature=0).get_json()
    events = list(events_of(post(client, stream=True, temperature=0).iter_encoded()))
    assert "".join(data["text"] for name, data in events if name == "delta") == whole["response"]
    assert {key: whole[key] for key in events[0][1]} == events[0][1]
    assert events[-1][1]["usage"] == whole["usage"]


def test_lines_of_ndjson_are_the_same_events(client: FlaskClient) -> None:
    fields = {"stream": True, "temperature": 0, "session_id": "a"}
    frames = list(post(client, NDJSON, **fields).iter_encoded())
    assert all(frame.endswith(b"\n") and frame.count(b"\n") == 1 for frame in frames)
    lines = [json.loads(frame) for frame in frames]
    assert all(next(iter(line)) == "event" for line in lines)
    client.delete("/sessions/a")
    for line, (name, data) in zip(
        lines, events_of(post(client, **fields).iter_encoded()), strict=True
    ):
        assert line.pop("event") == name
        assert list(line) == list(data)
        if name != "done":
            assert line == data


def test_further_label_tasks_have_events_of_their_own(client: FlaskClient) -> None:
    fields = {"tasks": ["mood", "sentiment", "chat"], "stream": True}
    events = list(events_of(post(client, **fields).iter_encoded()))
    assert [name for name, _ in events[:3]] == ["label", "sentiment", "delta"]
    assert list(events[0][1]) == ["task", "label", "confidence", "scores"]
    assert events[0][1]["task"] == "mood"


def test_label_alone_is_a_stream_of_two(client: FlaskClient) -> None:
    events = list(events_of(post(client, stream=True, tasks=["sentiment"]).iter_encoded()))
    assert [name for name, _ in events] == ["sentiment", "done"]
    assert events[1][1]["usage"] is None


def test_text_in_a_frame_is_one_line_of_plain_json(
    client: FlaskClient, forward: ScriptedForward
) -> None:
    reply = "两行\r\nand \u2028 </script>\n\nevent: done\ndata: {}"
    forward.answer = lambda prompt: "Negative" if is_label(prompt) else reply
    events = list(events_of(post(client, stream=True).iter_encoded()))
    assert "".join(data["text"] for name, data in events if name == "delta") == reply


@pytest.mark.parametrize(
    ("stream", "accept", "mimetype"),
    [
        (None, None, JSON),
        (None, "*/*", JSON),
        (None, JSON, JSON),
        (None, "text/html,application/xhtml+xml,*/*;q=0.8", JSON),
        (None, "image/png", JSON),
        (None, SSE, SSE),
        (None, NDJSON, NDJSON),
        (None, f"{SSE}; charset=utf-8", SSE),
        (None, f"{NDJSON}; charset=utf-8; q=0.4, {JSON}; q=0.2", NDJSON),
        (None, f"{SSE}, {JSON};q=0.5", SSE),
        (None, f"{SSE};q=0.5, {JSON}", JSON),
        (None, f"{SSE}, {JSON}", JSON),
        (None, f"{SSE}, */*", SSE),
        (None, f"{NDJSON}, {SSE};q=0.9", NDJSON),
        (True, None, SSE),
        (True, "*/*", SSE),
        (True, JSON, SSE),
        (True, SSE, SSE),
        (True, NDJSON, NDJSON),
        (True, f"{SSE}, {NDJSON}", SSE),
        (True, f"{SSE};q=0.2, {NDJSON};q=0.3", NDJSON),
        (False, None, JSON),
        (False, SSE, JSON),
        (False, NDJSON, JSON),
    ],
)
def test_explicit_stream_wins_and_accept_chooses_the_format(
    client: FlaskClient, stream: bool | None, accept: str | None, mimetype: str
) -> None:
    response = post(client, accept, stream=stream, max_new_tokens=1)
    assert (response.status_code, response.mimetype) == (200, mimetype)


@pytest.mark.parametrize("accept", [SSE, NDJSON])
def test_headers_of_a_stream(client: FlaskClient, accept: str) -> None:
    headers = post(client, accept).headers
    assert headers["X-Accel-Buffering"] == "no"
    assert headers["Cache-Control"] == "no-cache, no-transform"
    assert headers["X-Request-ID"]
    assert "Content-Length" not in headers


def test_form_can_ask_for_a_stream(client: FlaskClient) -> None:
    response = client.post("/analyze", data={"text": "bad", "stream": "on"})
    assert response.mimetype == SSE
