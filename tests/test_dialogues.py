"""Dialogues over HTTP: turns go on by the tokens that ran, and never mix."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from flask import Flask

from services.prompt_encoding import PromptEncoder
from services.settings import Settings
from tests.exchange import engine_of, last_prompt, runtime_of, say, turns_of, until
from tests.tiny import ScriptedForward

MAX_SESSIONS = 4
SYSTEM = "<|im_start|>system\n你是一个乐于助人的助手。<|im_end|>\n"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(12) as pool:
        yield pool


def asked(text: str, reply: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{reply}" + (
        reply and "<|im_end|>\n"
    )


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With room for a few sessions."""
    return replace(settings, max_sessions=MAX_SESSIONS)


def test_many_sessions_take_no_more_room_than_a_few(app: Flask) -> None:
    say(app, "hello", "s0")
    one = engine_of(app).stats().idle_bytes
    threads = threading.active_count()
    for index in range(1, 40):
        say(app, "hello", f"s{index}")
    assert len(runtime_of(app).sessions) == MAX_SESSIONS
    until(lambda: engine_of(app).stats().idle_bytes == MAX_SESSIONS * one)
    assert threading.active_count() <= threads


def test_without_a_session_nothing_is_kept(app: Flask) -> None:
    say(app, "hello", None)
    assert say(app, "again", None)["response"] == "You said again in turn 1"
    assert len(runtime_of(app).sessions) == 0
    assert engine_of(app).stats().idle_bytes == 0


def test_session_goes_on(app: Flask, forward: ScriptedForward) -> None:
    assert say(app, "hello")["session_id"] == "a"
    assert say(app, "again")["response"] == "You said again in turn 2"
    expected = SYSTEM + asked("hello", "You said hello in turn 1") + asked("again", "")
    assert last_prompt(forward) == expected


def test_second_turn_finds_the_first_ones_tokens(app: Flask, prompt_encoder: PromptEncoder) -> None:
    first, second = say(app, "hello")["usage"], say(app, "again")["usage"]
    assert first["cached_tokens"] == 0
    # All that ran in turn 1, but for the prefix.
    head = len(prompt_encoder.encode(runtime_of(app).prompts["chat"]).head_ids)
    ran = first["prompt_tokens"] + first["completion_tokens"]
    assert second["cached_tokens"] == ran - head


def test_history_is_the_tokens_that_ran(app: Flask, forward: ScriptedForward) -> None:
    """A reply that would encode in another way when read back stands as it was generated."""
    encode, original = forward.tokenizer.encode, forward.answer
    letters = [token_id for letter in "hello" for token_id in encode(letter)]
    assert letters != encode("hello")
    forward.tokenizer.encode = lambda text: letters if text == "hello" else encode(text)
    forward.answer = lambda prompt: "hello" if prompt.endswith("assistant\n") else original(prompt)
    assert say(app, "hi", tasks=["chat"])["response"] == "hello"
    say(app, "hi", tasks=["chat"])
    prompt = forward.prompts[-1]
    at = prompt.index(letters[0])
    assert any(prompt[i : i + len(letters)] == letters for i in range(at, len(prompt)))


def test_label_is_kept_with_the_turn(app: Flask) -> None:
    say(app, "the food was bad")
    say(app, "so", tasks=["chat"])
    session = runtime_of(app).sessions.find("a")
    assert session is not None
    assert [turn.sentiment for turn in session.turns] == ["Negative", None]


def test_label_of_a_text_is_the_same_in_any_session(app: Flask) -> None:
    alone = say(app, "the food was bad", None)["scores"]
    say(app, "hello")
    assert say(app, "the food was bad")["scores"] == alone


def test_sessions_do_not_mix(app: Flask, pool: ThreadPoolExecutor) -> None:
    def talk(name: str) -> list[str]:
        return [say(app, f"{name} says {turn}", name)["response"] for turn in range(3)]

    names = [f"s{index}" for index in range(4)]
    for name, replies in zip(names, pool.map(talk, names), strict=True):
        expected = [f"You said {name} says {turn} in turn {turn + 1}" for turn in range(3)]
        assert replies == expected
        assert [response for _, response in turns_of(app, name)] == expected


def test_long_dialogue_loses_its_oldest_turns_and_goes_on(app: Flask) -> None:
    text = "the weather is nice " * 60
    answers = [say(app, f"{text}{turn}", max_new_tokens=4) for turn in range(12)]
    lengths = [answer["usage"]["prompt_tokens"] for answer in answers]
    limit = runtime_of(app).settings.context_tokens
    assert max(lengths) <= limit
    assert len(turns_of(app)) < 12
    assert turns_of(app)[-1][0] == f"{text}11"
    # After a trim the next turns find the cache again.
    trims = [i for i in range(1, 12) if lengths[i] < lengths[i - 1]]
    assert trims
    after = answers[trims[0] + 1]["usage"]
    assert after["cached_tokens"] > lengths[trims[0]] / 2
