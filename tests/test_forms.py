"""Forms: values parsed as JSON would have them, and what is refused."""

import io
from typing import Any

import pytest
from flask.testing import FlaskClient

from services.errors import MalformedError
from services.forms import MAX_FORM_FIELDS, MULTIPART, URLENCODED, parse_form
from tests.exchange import problem_of


def parsed(body: str) -> dict[str, Any]:
    return parse_form(body.encode(), URLENCODED, {})


def part(name: str, value: str, extra: str = "") -> str:
    return f'--xx\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n{value}\r\n'


def multipart(*parts: str) -> bytes:
    return ("".join(parts) + "--xx--\r\n").encode()


def test_urlencoded_form_is_answered(client: FlaskClient) -> None:
    response = client.post("/analyze", data={"text": "太差了 & bad", "max_new_tokens": "4"})
    assert response.status_code == 200
    assert response.get_json()["sentiment"] == "Negative"
    assert response.get_json()["usage"]["completion_tokens"] == 4


def test_multipart_form_is_answered(client: FlaskClient) -> None:
    response = client.post(
        "/analyze",
        data={"text": "太差了", "tasks": ["sentiment"]},
        content_type=MULTIPART,
    )
    assert response.status_code == 200
    assert response.get_json()["sentiment"] == "Negative"
    assert response.get_json()["response"] is None


def test_values_are_parsed() -> None:
    assert parsed(
        "text=1&session_id=5&replace_last=on&stream=false&max_new_tokens=16&seed=7"
        "&temperature=0&top_p=0.5"
    ) == {
        "text": "1",
        "session_id": "5",
        "replace_last": True,
        "stream": False,
        "max_new_tokens": 16,
        "seed": 7,
        "temperature": 0.0,
        "top_p": 0.5,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("TRUE", True), ("1", True), ("on", True), ("false", False), ("0", False),
     ("off", False), ("perhaps", "perhaps"), ("2", "2")],
)  # fmt: skip
def test_booleans(value: str, expected: bool | str) -> None:
    assert parsed(f"stream={value}") == {"stream": expected}


@pytest.mark.parametrize("value", ["1.5", "1_000", "٣", "0x10", "five", "9" * 5000])
def test_what_is_no_integer_stays_text(value: str) -> None:
    assert parsed(f"seed={value}") == {"seed": value}


def test_number_that_cannot_be_read_is_named(client: FlaskClient) -> None:
    response = client.post("/analyze", data={"text": "a", "seed": "five", "top_p": "half"})
    assert set(problem_of(response, 422)["errors"]) == {"seed", "top_p"}


def test_empty_optional_fields_count_as_absent(client: FlaskClient) -> None:
    optional = ["session_id", "replace_last", "tasks", "stream", "max_new_tokens", "temperature",
                "top_p", "seed"]  # fmt: skip
    response = client.post("/analyze", data={"text": "good", **dict.fromkeys(optional, "")})
    assert response.status_code == 200
    assert response.get_json()["session_id"] is None


def test_empty_text_is_no_text(client: FlaskClient) -> None:
    assert "text" in problem_of(client.post("/analyze", data={"text": ""}), 422)["errors"]


def test_tasks_may_repeat() -> None:
    assert parsed("text=a&tasks=chat&tasks=&tasks=sentiment")["tasks"] == ["chat", "sentiment"]


def test_other_field_that_stands_twice_is_malformed(client: FlaskClient) -> None:
    response = client.post("/analyze", data={"text": ["good", "bad"]})
    assert problem_of(response, 400)["errors"] == {"text": ["stands more than once"]}


@pytest.mark.parametrize("body", ["text=good&colour=blue", "text=good&colour="])
def test_unknown_field_is_refused(client: FlaskClient, body: str) -> None:
    response = client.post("/analyze", data=body, content_type=URLENCODED)
    assert list(problem_of(response, 422)["errors"]) == ["colour"]


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "1e999"])
def test_number_that_is_not_finite_is_malformed(client: FlaskClient, value: str) -> None:
    response = client.post("/analyze", data={"text": "a", "temperature": value})
    assert list(problem_of(response, 400)["errors"]) == ["temperature"]


@pytest.mark.parametrize("body", [b"text=%ff", b"text=\xff", b"t%ffxt=a", b"text=%ED%A0%BD"])
def test_urlencoded_form_that_is_not_utf8_is_malformed(client: FlaskClient, body: bytes) -> None:
    problem_of(client.post("/analyze", data=body, content_type=URLENCODED), 400)


def test_multipart_form_that_is_not_utf8_is_malformed() -> None:
    body = multipart(part("text", "good")).replace(b"good", b"g\xffd \xef\xbf\xbd")
    with pytest.raises(MalformedError, match="UTF-8"):
        parse_form(body, MULTIPART, {"boundary": "xx"})


def test_replacement_character_may_be_meant() -> None:
    body = multipart(part("text", "a \ufffd b"))
    assert parse_form(body, MULTIPART, {"boundary": "xx"}) == {"text": "a \ufffd b"}


@pytest.mark.parametrize("count", [MAX_FORM_FIELDS + 1, 1500])
def test_too_many_fields_are_malformed(count: int) -> None:
    with pytest.raises(MalformedError, match="more than 64"):
        parsed("&".join(f"f{index}=1" for index in range(count)))
    parts = [part(f"f{index}", "1") for index in range(count)]
    with pytest.raises(MalformedError, match="more than 64"):
        parse_form(multipart(*parts), MULTIPART, {"boundary": "xx"})


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b"text=good", {"boundary": "xx"}),
        (multipart(part("text", "good")), {}),
        (multipart(part("text", "good")), {"boundary": "yy"}),
        (part("text", "good").encode(), {"boundary": "xx"}),
        (b"--xx\r\n\r\ngood\r\n--xx--\r\n", {"boundary": "xx"}),
        (b"", {"boundary": "xx"}),
    ],
)
def test_broken_multipart_form_is_malformed(body: bytes, options: dict[str, str]) -> None:
    with pytest.raises(MalformedError, match="told apart"):
        parse_form(body, MULTIPART, options)


def test_file_is_refused(client: FlaskClient) -> None:
    data = {"text": (io.BytesIO(b"good"), "good.txt")}
    assert "files" in problem_of(client.post("/analyze", data=data), 400)["detail"]


@pytest.mark.parametrize(
    "origin",
    ["https://elsewhere.example", "null", "http://localhost:81", "http://[", "", "localhost"],
)
@pytest.mark.parametrize("mimetype", [URLENCODED, MULTIPART])
def test_form_from_a_foreign_page_is_refused(
    client: FlaskClient, origin: str, mimetype: str
) -> None:
    response = client.post(
        "/analyze", data={"text": "good"}, content_type=mimetype, headers={"Origin": origin}
    )
    problem_of(response, 403)


def test_form_from_the_own_page_is_taken(client: FlaskClient) -> None:
    response = client.post(
        "/analyze",
        data={"text": "good", "tasks": "sentiment"},
        headers={"Origin": "http://LocalHost"},
    )
    assert response.status_code == 200
