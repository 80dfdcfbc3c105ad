"""Users' texts never enter the log, whatever goes wrong."""

import logging
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from services.sentiment import LabelScorer
from tests.exchange import events_of, hold_chat_after, problem_of, until
from tests.tiny import ScriptedForward

SECRET = "my cat Mimi is bad"


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All lines, tracebacks included."""
    return caplog.text


def fail(*_: Any) -> Any:
    raise RuntimeError(f"cannot read {SECRET}")


def test_normal_requests_log_no_text(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    client.post("/analyze", json={"text": SECRET, "session_id": "a"})
    client.post("/analyze", json={"text": SECRET, "colour": SECRET})
    client.post("/analyze", json={"text": SECRET, "tasks": [SECRET]})
    client.post("/analyze", data=f'{{"{SECRET}', content_type="application/json")
    assert "Mimi" not in logged(caplog)


def test_unforeseen_error_is_logged_by_type_place_and_request(
    client: FlaskClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LabelScorer, "decide", fail)
    response = client.post("/analyze", json={"text": SECRET})
    body = problem_of(response, 500)
    assert "Mimi" not in response.text
    assert "Mimi" not in logged(caplog)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    for word in ("RuntimeError", "test_logs.py", body["request_id"]):
        assert word in record.getMessage()


def test_unforeseen_error_in_a_stream_is_logged_alike(
    client: FlaskClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.analysis.Detokenizer.push", fail)
    response = client.post("/analyze", json={"text": SECRET, "stream": True})
    name, data = list(events_of(response.iter_encoded()))[-1]
    assert (name, data["status"]) == ("error", 500)
    assert "Mimi" not in str(data)
    assert "Mimi" not in logged(caplog)
    assert response.headers["X-Request-ID"] in logged(caplog)


def test_forward_that_fails_logs_no_text(
    app: Flask,
    client: FlaskClient,
    forward: ScriptedForward,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hold_chat_after(forward, 2)
    response = client.post("/analyze", json={"text": SECRET, "stream": True})
    until(lambda: not forward.gate.is_set())
    forward.error = RuntimeError(f"cannot read {SECRET}")
    forward.gate.set()
    name, data = list(events_of(response.iter_encoded()))[-1]
    assert name == "error"
    assert "Mimi" not in str(data)
    assert "RuntimeError" in logged(caplog)
    assert "Mimi" not in logged(caplog)
