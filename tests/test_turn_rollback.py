"""Turns that are replaced, forgotten, or fail: whole or not at all."""

import pytest
from flask import Flask

from services.dialogue import RESET_RESPONSES
from tests.exchange import (
    engine_of,
    hold_chat_after,
    is_idle,
    last_prompt,
    open_stream,
    problem_of,
    say,
    turns_of,
    until,
)
from tests.tiny import ScriptedForward


def test_last_turn_is_replaced(app: Flask, forward: ScriptedForward) -> None:
    say(app, "hello")
    say(app, "helo")
    assert say(app, "bye", replace_last=True)["response"] == "You said bye in turn 2"
    assert [text for text, _ in turns_of(app)] == ["hello", "bye"]
    assert "helo" not in last_prompt(forward).replace("hello", "")


def test_replacing_in_an_empty_session_is_a_first_turn(app: Flask) -> None:
    assert say(app, "hello", replace_last=True)["response"] == "You said hello in turn 1"


def test_replacing_turn_that_fails_keeps_the_old_one(app: Flask, forward: ScriptedForward) -> None:
    say(app, "hello")
    forward.poison = float("nan")
    response = app.test_client().post(
        "/analyze",
        json={"text": "bye", "session_id": "a", "replace_last": True, "tasks": ["chat"]},
    )
    problem_of(response, 500)
    forward.poison = None
    assert [text for text, _ in turns_of(app)] == ["hello"]


@pytest.mark.parametrize("word", ["重新开始", "/reset", "  /reset\n", "\u3000重新开始 "])
def test_reset_word_forgets_the_turns_without_the_model(
    app: Flask, forward: ScriptedForward, word: str
) -> None:
    say(app, "hello")
    steps = len(forward.steps)
    body = say(app, word)
    assert len(forward.steps) == steps
    assert body["response"] == RESET_RESPONSES[word.strip()]
    assert (body["sentiment"], body["labels"], body["finish_reason"]) == (None, {}, "stop")
    assert body["usage"] == {"prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0}
    assert turns_of(app) == []
    assert say(app, "again")["response"] == "You said again in turn 1"


def test_reset_word_frees_the_cache(app: Flask) -> None:
    say(app, "hello")
    assert engine_of(app).stats().idle_bytes > 0
    say(app, "/reset")
    until(lambda: engine_of(app).stats().idle_bytes == 0)


def test_reset_word_in_a_stream(app: Flask) -> None:
    say(app, "hello")
    _, events = open_stream(app, text="/reset", session_id="a")
    names, data = zip(*events, strict=True)
    assert names == ("delta", "done")
    assert data[0] == {"text": RESET_RESPONSES["/reset"]}
    assert turns_of(app) == []


@pytest.mark.parametrize("text", ["please /reset", "/RESET", "/reset!", "重新开始吧"])
def test_other_words_are_only_text(app: Flask, text: str) -> None:
    say(app, "hello")
    assert say(app, text)["response"] == f"You said {text} in turn 2"


def test_reset_word_without_a_dialogue_is_only_text(app: Flask) -> None:
    say(app, "hello")
    assert say(app, "/reset", tasks=["sentiment"])["sentiment"] is not None
    assert len(turns_of(app)) == 1
    assert say(app, "/reset", None)["response"] == "You said /reset in turn 1"


def test_failed_turn_leaves_nothing(app: Flask, forward: ScriptedForward) -> None:
    say(app, "hello")
    before, bytes_before = turns_of(app), engine_of(app).stats().idle_bytes
    forward.poison = float("nan")
    response = app.test_client().post(
        "/analyze", json={"text": "again", "session_id": "a", "tasks": ["chat"]}
    )
    problem_of(response, 500)
    forward.poison = None
    assert turns_of(app) == before
    until(lambda: is_idle(app))
    assert engine_of(app).stats().idle_bytes == bytes_before
    answer = say(app, "once more")
    assert answer["response"] == "You said once more in turn 2"
    assert answer["usage"]["cached_tokens"] > 0
    assert "again" not in last_prompt(forward)


def test_turn_that_is_stopped_leaves_nothing(app: Flask, forward: ScriptedForward) -> None:
    say(app, "hello")
    hold_chat_after(forward, 3)
    response, events = open_stream(app, text="again", session_id="a")
    assert [next(events)[0] for _ in range(4)] == ["sentiment", "delta", "delta", "delta"]
    response.close()
    forward.gate.set()
    until(lambda: is_idle(app))
    assert [text for text, _ in turns_of(app)] == ["hello"]
    assert say(app, "once more")["response"] == "You said once more in turn 2"
    assert "again" not in last_prompt(forward)


def test_turn_that_is_stopped_before_its_first_token_leaves_nothing(
    app: Flask, forward: ScriptedForward
) -> None:
    hold_chat_after(forward, 1)
    response, _ = open_stream(app, text="again", session_id="a")
    until(lambda: not forward.gate.is_set())
    response.close()
    forward.gate.set()
    until(lambda: is_idle(app))
    assert turns_of(app) == []
    assert say(app, "hello")["response"] == "You said hello in turn 1"
