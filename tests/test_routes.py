"""The other routes: sessions, tasks, health, the page."""

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app import create_app
from services.settings import Settings
from tests.exchange import engine_of, problem_of, runtime_of, until


@pytest.fixture
def bare_app(settings: Settings) -> Flask:
    """The application as a command has it: nothing is started."""
    return create_app(settings)


def say(client: FlaskClient, text: str, session_id: str) -> dict[str, Any]:
    response = client.post("/analyze", json={"text": text, "session_id": session_id})
    assert response.status_code == 200
    body: dict[str, Any] = response.get_json()
    return body


def test_session_is_issued(client: FlaskClient) -> None:
    response = client.post("/sessions")
    assert response.status_code == 201
    assert list(response.get_json()) == ["session_id"]
    assert client.post("/sessions").get_json() != response.get_json()


def test_issued_session_is_taken_by_analyze(client: FlaskClient) -> None:
    session_id = client.post("/sessions").get_json()["session_id"]
    assert say(client, "hello", session_id)["session_id"] == session_id


def test_issued_session_shows_its_turns(app: Flask, client: FlaskClient) -> None:
    session_id = client.post("/sessions").get_json()["session_id"]
    say(client, "the food was bad", session_id)
    body = client.get(f"/sessions/{session_id}").get_json()
    assert list(body) == ["session_id", "turns", "num_tokens", "cached_bytes"]
    assert body["session_id"] == session_id
    assert body["turns"] == [
        {
            "text": "the food was bad",
            "response": "You said the food was bad in turn 1",
            "sentiment": "Negative",
        }
    ]
    assert list(body["turns"][0]) == ["text", "response", "sentiment"]


def test_session_that_the_client_named_shows_no_texts(client: FlaskClient) -> None:
    say(client, "the food was bad", "a")
    body = client.get("/sessions/a").get_json()
    assert body["turns"] == [{"text": None, "response": None, "sentiment": "Negative"}]


def test_issued_id_that_was_deleted_counts_as_named_by_the_client(client: FlaskClient) -> None:
    session_id = client.post("/sessions").get_json()["session_id"]
    client.delete(f"/sessions/{session_id}")
    say(client, "hello", session_id)
    assert client.get(f"/sessions/{session_id}").get_json()["turns"][0]["text"] is None


def test_new_session_is_empty(client: FlaskClient) -> None:
    session_id = client.post("/sessions").get_json()["session_id"]
    body = client.get(f"/sessions/{session_id}").get_json()
    assert (body["turns"], body["num_tokens"], body["cached_bytes"]) == ([], 0, 0)


def test_sizes_of_a_session(app: Flask, client: FlaskClient) -> None:
    usage = say(client, "hello", "a")["usage"]
    body = client.get("/sessions/a").get_json()
    assert body["num_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert body["cached_bytes"] == engine_of(app).stats().idle_bytes > 0


def test_deleted_session_is_gone(app: Flask, client: FlaskClient) -> None:
    say(client, "hello", "a")
    response = client.delete("/sessions/a")
    assert (response.status_code, response.data) == (204, b"")
    problem_of(client.get("/sessions/a"), 404)
    problem_of(client.delete("/sessions/a"), 404)
    until(lambda: engine_of(app).stats().idle_bytes == 0)


@pytest.mark.parametrize("session_id", ["never", "a%00b", "é", "a" * 5000, "%ff"])
def test_unknown_session_is_not_found(client: FlaskClient, session_id: str) -> None:
    problem_of(client.get(f"/sessions/{session_id}"), 404)
    problem_of(client.delete(f"/sessions/{session_id}"), 404)


def test_looking_makes_no_session(app: Flask, client: FlaskClient) -> None:
    client.get("/sessions/a")
    client.delete("/sessions/a")
    assert len(runtime_of(app).sessions) == 0


def test_tasks_are_listed(client: FlaskClient) -> None:
    tasks = client.get("/tasks").get_json()["tasks"]
    assert [list(task) for task in tasks] == [["name", "kind", "description", "labels"]] * 2
    assert {task["name"]: task["labels"] for task in tasks} == {
        "chat": [],
        "sentiment": ["Positive", "Negative"],
    }


def test_healthz_lives_while_nothing_is_loaded(bare_app: Flask) -> None:
    response = bare_app.test_client().get("/healthz")
    assert (response.status_code, response.get_json()) == (200, {"status": "ok"})


def test_readyz_tells_what_answers(client: FlaskClient, app: Flask) -> None:
    body = client.get("/readyz").get_json()
    assert list(body) == ["status", "model", "stand_in", "precision"]
    assert (body["status"], body["stand_in"]) == ("ready", False)
    assert body["model"] == runtime_of(app).ready().files.name
    assert body["precision"] in ("int8", "bf16", "fp32")


@pytest.mark.parametrize("path", ["/", "/static/page.js"])
def test_page_is_served(client: FlaskClient, path: str) -> None:
    with client.get(path) as response:
        assert response.status_code == 200


def test_page_may_reach_this_service_alone(client: FlaskClient) -> None:
    with client.get("/") as response:
        assert response.mimetype == "text/html"
        policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy


@pytest.mark.parametrize(("method", "path"), [("GET", "/readyz"), ("POST", "/analyze")])
def test_what_needs_the_model_says_why_it_is_not_there(
    bare_app: Flask, method: str, path: str
) -> None:
    response = bare_app.test_client().open(path, method=method, json={"text": "hi"})
    assert "not loaded" in problem_of(response, 503)["detail"]
    assert int(response.headers["Retry-After"]) > 0


def test_bad_request_is_told_even_before_the_model_is_there(bare_app: Flask) -> None:
    client = bare_app.test_client()
    problem_of(client.post("/analyze", json={"text": ""}), 422)
    problem_of(client.post("/analyze", json={"text": "hi", "tasks": ["poem"]}), 404)
