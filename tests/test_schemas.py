"""The fields of `POST /analyze`: types, ranges, texts with nothing in them."""

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from services.schemas import AnalyzeRequest, AnalyzeSchema
from services.settings import Settings
from tests.exchange import problem_of, runtime_of


def load(**fields: Any) -> AnalyzeRequest:
    wanted: AnalyzeRequest = AnalyzeSchema().load(fields)
    return wanted


def errors_of(client: FlaskClient, **fields: Any) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = problem_of(client.post("/analyze", json=fields), 422)["errors"]
    assert all(reason for reasons in errors.values() for reason in reasons)
    return errors


def test_text_alone_is_enough() -> None:
    assert load(text="hi") == AnalyzeRequest("hi", tasks=("sentiment", "chat"))


def test_every_field_is_taken() -> None:
    wanted = load(
        text="hi",
        session_id="a_B-9",
        replace_last=True,
        tasks=["chat"],
        stream=False,
        max_new_tokens=512,
        temperature=2,
        top_p=1,
        seed=2**63 - 1,
    )
    assert wanted == AnalyzeRequest("hi", "a_B-9", True, ("chat",), False, 512, 2.0, 1.0, 2**63 - 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("text", value) for value in (1, True, [], {}, None, ["hi"])],
        *[("session_id", value) for value in (1, True, "", "a b", "a" * 65, "é", "a\n", "../x")],
        *[("replace_last", value) for value in ("true", 1, 0, "", [])],
        *[("stream", value) for value in ("false", 1, 0, {})],
        *[("tasks", value) for value in ("chat", [], {}, 1, ["chat"] * 17)],
        *[("max_new_tokens", value) for value in ("8", True, 0, -1, 513, 10**9, 1.5, 8.0, [])],
        *[("temperature", value) for value in ("0.5", True, False, -0.1, 2.1, [])],
        *[("top_p", value) for value in ("0.5", True, 0, -1, 1.01)],
        *[("seed", value) for value in ("1", True, -1, 2**63, 0.5)],
    ],
)
def test_bad_value_is_refused_by_name(client: FlaskClient, field: str, value: object) -> None:
    assert list(errors_of(client, **{"text": "hi", "session_id": "a", field: value})) == [field]


def test_task_that_is_no_text_is_refused_by_its_place(client: FlaskClient) -> None:
    assert list(errors_of(client, text="hi", tasks=["chat", 1])) == ["tasks.1"]


def test_all_bad_fields_are_named_at_once(client: FlaskClient) -> None:
    errors = errors_of(client, seed="x", top_p=7, colour="blue")
    assert set(errors) == {"text", "seed", "top_p", "colour"}


@pytest.mark.parametrize("value", ["x", None, [], 0])
def test_unknown_field_is_refused_whatever_it_holds(client: FlaskClient, value: object) -> None:
    assert list(errors_of(client, text="hi", colour=value)) == ["colour"]


def test_null_counts_as_absent() -> None:
    optional = ["session_id", "replace_last", "tasks", "stream", "max_new_tokens", "temperature",
                "top_p", "seed"]  # fmt: skip
    assert load(text="hi", **dict.fromkeys(optional)) == AnalyzeRequest("hi")


def test_replacing_the_last_turn_needs_a_session(client: FlaskClient) -> None:
    assert list(errors_of(client, text="hi", replace_last=True)) == ["replace_last"]
    assert load(text="hi", replace_last=False).replace_last is False


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "\n\t", "\u3000\u00a0", "\u200b\u200d\ufeff", "\u2800", "\u0000",
        "\u0000 \u0007", "\u2060", "\u00ad", "\u3164", "\ufe0f", "\u202e\u202c", "\u2028",
        "\U000e0041", "\u180e",
    ],
)  # fmt: skip
def test_text_with_nothing_in_it_is_refused_and_touches_nothing(
    app: Flask, client: FlaskClient, text: str
) -> None:
    assert list(errors_of(client, text=text, session_id="t08")) == ["text"]
    assert runtime_of(app).sessions.find("t08") is None


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "?",
        "🙂",
        "é",
        "\u200bhi",
        "لا",
    ],
)
def test_text_with_something_in_it_is_taken(text: str) -> None:
    assert load(text=text).text == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("I hated it.\u0000 I loved it.", "I hated it. I loved it."),
        ("\u0000hi\u0007\u001b[31m", "hi[31m"),
        (" \u3000hi\n", "hi"),
        ("a\r\n\tb", "a\r\n\tb"),
        ("page\u000cbreak\u0085line", "page\nbreak\nline"),
    ],
)
def test_control_characters_and_outer_white_space_are_dropped(text: str, kept: str) -> None:
    assert load(text=text).text == kept


@pytest.mark.parametrize("tasks", [["sentiment"], ["chat"], ["sentiment", "chat"]])
def test_text_over_the_limit_is_refused_with_both_numbers(
    client: FlaskClient, settings: Settings, tasks: list[str]
) -> None:
    text = "，" * settings.max_text_tokens  # more than a token each
    (reason,) = errors_of(client, text=text, tasks=tasks)["text"]
    counted, limit = [int(word) for word in reason.replace(";", "").split() if word.isdigit()]
    assert counted > limit == settings.max_text_tokens


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_limit_of_tokens_is_exact(
    app: Flask, client: FlaskClient, settings: Settings, excess: int
) -> None:
    encode = runtime_of(app).ready().encoder.encode_text
    text = "!" * (settings.max_text_tokens + excess)
    assert len(encode(text)) == settings.max_text_tokens + excess
    response = client.post("/analyze", json={"text": text, "tasks": ["sentiment"]})
    assert response.status_code == (422 if excess > 0 else 200)
