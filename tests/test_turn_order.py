"""Turns of one session run one after the other, also where it is deleted meanwhile."""

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.exchange import (
    engine_of,
    hold_chat_after,
    is_idle,
    num_in_line,
    open_stream,
    problem_of,
    runtime_of,
    say,
    turns_of,
    until,
)
from tests.tiny import ScriptedForward


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(12) as pool:
        yield pool


def start(pool: ThreadPoolExecutor, app: Flask, **fields: Any) -> "Future[TestResponse]":
    return pool.submit(lambda: app.test_client().post("/analyze", json=fields))


def test_second_chat_waits_but_its_label_does_not(app: Flask) -> None:
    first, first_events = open_stream(app, text="one", session_id="a")
    second, second_events = open_stream(app, text="two is bad", session_id="a")
    name, data = next(second_events)  # the first turn hasn't ended: nobody has read its reply
    assert (name, data["sentiment"]) == ("sentiment", "Negative")
    assert turns_of(app) == []
    assert [name for name, _ in first_events][-1] == "done"
    first.close()
    assert [name for name, _ in second_events][-1] == "done"
    second.close()
    assert turns_of(app) == [
        ("one", "You said one in turn 1"),
        ("two is bad", "You said two is bad in turn 2"),
    ]


def test_parallel_turns_of_a_session_each_appear_once(app: Flask, pool: ThreadPoolExecutor) -> None:
    texts = [f"text {index}" for index in range(7)]
    answers = list(pool.map(lambda text: say(app, text, max_new_tokens=64), texts))
    kept = turns_of(app)
    assert sorted(text for text, _ in kept) == texts
    assert [response for _, response in kept] == [
        f"You said {text} in turn {turn}" for turn, (text, _) in enumerate(kept, 1)
    ]
    assert {answer["response"] for answer in answers} == {response for _, response in kept}


def test_waiting_turn_that_gives_up_is_skipped(app: Flask, pool: ThreadPoolExecutor) -> None:
    first, first_events = open_stream(app, text="one", session_id="a")
    second, _ = open_stream(app, text="two", session_id="a")
    third = start(pool, app, text="three", session_id="a")
    until(lambda: num_in_line(app) == 3)
    second.close()
    assert list(first_events)[-1][0] == "done"
    first.close()
    assert third.result(20).get_json()["response"] == "You said three in turn 2"
    assert [text for text, _ in turns_of(app)] == ["one", "three"]


def test_other_sessions_do_not_wait(app: Flask, pool: ThreadPoolExecutor) -> None:
    ticket = runtime_of(app).sessions.join("a")
    held = start(pool, app, text="one", session_id="a")
    until(lambda: num_in_line(app) == 2)
    assert say(app, "hello", "b")["response"] == "You said hello in turn 1"
    assert not held.done()
    ticket.release()
    assert held.result(20).get_json()["response"] == "You said one in turn 1"


def test_session_deleted_during_a_turn_keeps_nothing(
    app: Flask, client: FlaskClient, forward: ScriptedForward
) -> None:
    say(app, "hello")
    hold_chat_after(forward, 2)
    _, events = open_stream(app, text="again", session_id="a")
    until(lambda: not forward.gate.is_set())
    assert client.delete("/sessions/a").status_code == 204
    forward.gate.set()
    assert list(events)[-1][0] == "done"
    assert client.get("/sessions/a").status_code == 404
    until(lambda: is_idle(app) and engine_of(app).stats().idle_bytes == 0)
    assert say(app, "anew")["response"] == "You said anew in turn 1"


def test_session_deleted_while_a_turn_waits_keeps_nothing(
    app: Flask, client: FlaskClient, pool: ThreadPoolExecutor
) -> None:
    say(app, "hello")
    ticket = runtime_of(app).sessions.join("a")
    held = start(pool, app, text="again", session_id="a")
    until(lambda: num_in_line(app) == 2)
    assert client.delete("/sessions/a").status_code == 204
    ticket.release()
    # It is answered, as the first turn of a dialogue that nobody will find.
    assert held.result(20).get_json()["response"] == "You said again in turn 1"
    assert client.get("/sessions/a").status_code == 404
    until(lambda: is_idle(app) and engine_of(app).stats().idle_bytes == 0)


def test_session_deleted_just_before_its_turn_is_submitted_leaves_no_cache(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, sessions = engine_of(app), runtime_of(app).sessions
    submit = engine.submit

    def late(task: Any) -> Any:
        if hasattr(task, "key"):
            sessions.forget("a")
        return submit(task)

    monkeypatch.setattr(engine, "submit", late)
    assert say(app, "hello")["response"] == "You said hello in turn 1"
    until(lambda: is_idle(app) and engine.stats().idle_bytes == 0)
    assert sessions.find("a") is None


def test_client_that_leaves_while_it_waits_leaves_the_line(
    app: Flask, pool: ThreadPoolExecutor
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ticket = runtime_of(app).sessions.join("a")
        held = pool.submit(
            lambda: app.test_client().post(
                "/analyze",
                json={"text": "again", "session_id": "a"},
                environ_overrides={"gunicorn.socket": ours},
            )
        )
        until(lambda: num_in_line(app) == 2)
        theirs.close()
        problem_of(held.result(20), 400)
    assert num_in_line(app) == 1
    ticket.release()
