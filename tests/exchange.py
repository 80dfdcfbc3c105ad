"""Talking to the application in tests: streams event by event, requests in threads, holding."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from services.engine.engine import Engine
from services.errors import UnavailableError
from services.runtime import Runtime
from tests.tiny import ScriptedForward

ANSWER_KEYS = [
    "sentiment", "confidence", "scores", "labels", "response", "finish_reason", "session_id",
    "usage", "timings", "model",
]  # fmt: skip
PROBLEM_KEYS = ["type", "title", "status", "detail", "errors", "request_id"]


def copy_prompts(folder: Path, **more: str) -> None:
    """The shipped prompt files, and `more` of them by name."""
    for path in (Path(__file__).parent.parent / "prompts").glob("*.yaml"):
        (folder / path.name).write_bytes(path.read_bytes())
    for name, text in more.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")


def runtime_of(app: Flask) -> Runtime:
    runtime: Runtime = app.extensions["aio"]
    return runtime


def engine_of(app: Flask) -> Engine:
    return runtime_of(app).ready().engine


def problem_of(response: TestResponse, status: int) -> dict[str, Any]:
    """The problem object of an answer, once its shape has been looked at."""
    assert response.status_code == status, response.text
    assert response.mimetype == "application/problem+json"
    body: dict[str, Any] = response.get_json()
    assert list(body) == PROBLEM_KEYS
    assert body["status"] == status
    assert body["request_id"] == response.headers["X-Request-ID"]
    return body


def ask(client: FlaskClient, text: str = "the food was bad", **fields: Any) -> dict[str, Any]:
    """The JSON answer to a request, once its shape has been looked at."""
    response = client.post("/analyze", json={"text": text, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.get_json()
    assert list(body) == ANSWER_KEYS
    return body


def events_of(chunks: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Server-sent events, each as soon as its frame is there."""
    for chunk in chunks:
        name, data = chunk.decode().removesuffix("\n\n").split("\n")
        yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def open_stream(app: Flask, **fields: Any) -> tuple[TestResponse, Iterator[tuple[str, Any]]]:
    """Begin a stream; the first event has been computed by then, and nothing more."""
    response = app.test_client().post("/analyze", json={"stream": True, **fields})
    assert response.status_code == 200, response.text
    return response, events_of(response.iter_encoded())


def until(condition: Callable[[], bool]) -> None:
    """Return once it is so; fail if it never is."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came to be so"
        time.sleep(0.005)


def is_idle(app: Flask) -> bool:
    """Whether no sequence runs and nothing is reserved."""
    stats = engine_of(app).stats()
    return stats.num_sequences == 0 and stats.reserved_bytes == 0


def places_free(app: Flask) -> bool:
    """Whether every place of the chats can be had."""
    settings = runtime_of(app).settings
    try:
        with ExitStack() as held:
            for _ in range(settings.max_running + settings.max_waiting):
                held.enter_context(runtime_of(app).chat_places.held())
    except UnavailableError:
        return False
    return True


def is_label(prompt: str) -> bool:
    """Whether the scripted forward is asked for the shipped label prompt's answer."""
    return "Answer with one word" in prompt


def hold_after(forward: ScriptedForward, calls: Callable[[str], bool]) -> None:
    """Close the gate behind the step in which `calls` says so about a prompt that is answered."""
    answer = forward.answer

    def hold(prompt: str) -> str:
        if calls(prompt):
            forward.gate.clear()
        return answer(prompt)

    forward.answer = hold


def hold_chat_after(forward: ScriptedForward, num_tokens: int) -> None:
    """Close the gate behind the first chat's `num_tokens`-th token, once."""
    left = [num_tokens]

    def calls(prompt: str) -> bool:
        if is_label(prompt):
            return False
        left[0] -= 1
        return left[0] == 0

    hold_after(forward, calls)


def say(app: Flask, text: str, session_id: str | None = "a", **fields: Any) -> dict[str, Any]:
    """One turn, greedily; the JSON answer."""
    return ask(app.test_client(), text, session_id=session_id, temperature=0, **fields)


def turns_of(app: Flask, session_id: str = "a") -> list[tuple[str, str]]:
    """Text and response of each turn that a session keeps."""
    session = runtime_of(app).sessions.find(session_id)
    assert session is not None
    return [(turn.text, turn.response) for turn in session.turns]


def num_in_line(app: Flask, session_id: str = "a") -> int:
    """How many talk in a session or wait for it."""
    session = runtime_of(app).sessions.find(session_id)
    return len(session.line) if session is not None else 0


def last_prompt(forward: ScriptedForward) -> str:
    """What the model last began a reply to, control tokens included."""
    text: str = forward.tokenizer.decode(forward.prompts[-1])
    return text
