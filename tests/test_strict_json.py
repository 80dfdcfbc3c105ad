"""JSON that is read, and JSON that is malformed."""

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from services.errors import MalformedError
from services.strict_json import MAX_DEPTH, parse_json
from tests.exchange import problem_of

GOOD = '{"text": "good", "tasks": ["sentiment"]}'


def post(
    client: FlaskClient, body: bytes | str, mimetype: str = "application/json"
) -> TestResponse:
    return client.post("/analyze", data=body, content_type=mimetype)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"text": "a"} b',
        b"{'text': 'a'}",
        b'{"text": "a",}',
        b'{"text": "a\nb"}',
        b'{"text": "a" "tasks": []}',
        b'{"text": "\\x41"}',
        b'"unclosed',
        b'{"text": "a\\',
    ],
)
def test_broken_json_is_malformed(client: FlaskClient, body: bytes) -> None:
    problem_of(post(client, body), 400)


@pytest.mark.parametrize(
    "body",
    [
        '{"text": "a", "text": "b"}',
        '{"text": "a", "seed": 1, "seed": 1}',
        '{"text": "a", "x": {"y": 1, "y": 2}}',
        '[{"a": 1, "\\u0061": 2}]',
    ],
)
def test_repeated_keys_are_malformed(client: FlaskClient, body: str) -> None:
    assert "twice" in problem_of(post(client, body), 400)["detail"]


@pytest.mark.parametrize(
    "number",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "9" * 5000,
        "-" + "9" * 5000,
        "9" * 400 + ".5",
    ],
)
@pytest.mark.parametrize("field", ["temperature", "seed", "anything"])
def test_numbers_that_are_not_finite_are_malformed(
    client: FlaskClient, field: str, number: str
) -> None:
    problem_of(post(client, f'{{"text": "a", "{field}": {number}}}'), 400)


@pytest.mark.parametrize(
    "text",
    ["bad \\ud83d end", "\\udc00", "\\ud83d\\ud83d", "\\udca9\\ud83d"],
)
def test_lone_surrogates_are_malformed(client: FlaskClient, text: str) -> None:
    problem_of(post(client, f'{{"text": "{text}"}}'), 400)
    problem_of(post(client, f'{{"text": "a", "{text}": 1}}'), 400)


def test_surrogate_pair_is_one_character() -> None:
    assert parse_json(b'{"text": "\\ud83d\\udd25"}') == {"text": "🔥"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "\xff"}',
        b'{"text": "\xed\xa0\xbd"}',
        b'{"text": "\xc0\xaf"}',
        '{"text": "a"}'.encode("utf-16"),
        '{"text": "a"}'.encode("utf-16-le"),
        '{"text": "a"}'.encode("utf-32"),
        '{"text": "太差了"}'.encode("gbk"),
    ],
)
def test_other_encodings_are_malformed(client: FlaskClient, body: bytes) -> None:
    problem_of(post(client, body), 400)


def test_byte_order_mark_is_fine(client: FlaskClient) -> None:
    assert post(client, b"\xef\xbb\xbf" + GOOD.encode()).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        '{"text": "a", "x": ' + "[" * 20000 + "]" * 20000 + "}",
        '{"a":' * 10000 + "1" + "}" * 10000,
        "[" * 60000,
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    ],
)
def test_too_deep_json_is_malformed_every_time(client: FlaskClient, body: str) -> None:
    for _ in range(3):
        assert "deeper" in problem_of(post(client, body), 400)["detail"]


def test_brackets_in_texts_are_no_depth(client: FlaskClient) -> None:
    assert post(client, GOOD.replace("good", "[{" * 50 + '\\"]}' + "[{" * 50)).status_code == 200
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None


@pytest.mark.parametrize(
    "body", ['"' + '\\"' * 30000, '"\\' * 30000, '{"' * 30000, '"' * 60000, "\\" * 60000]
)
def test_many_open_quotes_are_malformed(body: str) -> None:
    """A pattern that tried again from every quote would take minutes for each of these."""
    with pytest.raises(MalformedError, match="JSON"):
        parse_json(body.encode())
