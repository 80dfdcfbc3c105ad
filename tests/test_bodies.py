"""Bodies: types, encodings and sizes that are read, and the status of those that aren't."""

import gzip
import io
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from services.bodies import MAX_BODY_BYTES
from tests.exchange import problem_of

GOOD = '{"text": "good", "tasks": ["sentiment"]}'


def post(
    client: FlaskClient, body: bytes | str, mimetype: str = "application/json"
) -> TestResponse:
    return client.post("/analyze", data=body, content_type=mimetype)


def padded(size: int) -> bytes:
    """A good request of exactly `size` bytes."""
    return GOOD.encode().ljust(size)


@pytest.mark.parametrize(
    "mimetype",
    [
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/vnd.x+json",
    ],
)
def test_json_types_are_read(client: FlaskClient, mimetype: str) -> None:
    assert post(client, GOOD, mimetype).status_code == 200


@pytest.mark.parametrize(
    "mimetype",
    [
        "text/plain",
        "text/html",
        "application/xml",
        "application/octet-stream",
        "text/x+json",
        "json",
    ],
)
def test_other_types_are_refused(client: FlaskClient, mimetype: str) -> None:
    problem_of(post(client, '{"text": "good"}', mimetype), 415)


def test_body_without_a_type_is_refused(client: FlaskClient) -> None:
    problem_of(client.post("/analyze", data=b'{"text": "good"}'), 415)
    problem_of(client.post("/analyze"), 415)


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "deflate"])
def test_content_encodings_are_refused(client: FlaskClient, encoding: str) -> None:
    response = client.post(
        "/analyze",
        data=gzip.compress(b'{"text": "good"}'),
        content_type="application/json",
        headers={"Content-Encoding": encoding},
    )
    problem_of(response, 415)


@pytest.mark.parametrize("encoding", ["", "identity", "Identity"])
def test_no_encoding_may_be_said(client: FlaskClient, encoding: str) -> None:
    response = client.post(
        "/analyze",
        json={"text": "good", "tasks": ["sentiment"]},
        headers={"Content-Encoding": encoding},
    )
    assert response.status_code == 200


def test_body_of_the_limit_is_read(client: FlaskClient) -> None:
    assert post(client, padded(MAX_BODY_BYTES)).status_code == 200


def test_larger_body_is_refused(client: FlaskClient) -> None:
    detail = problem_of(post(client, padded(MAX_BODY_BYTES + 1)), 413)["detail"]
    assert str(MAX_BODY_BYTES) in detail


def chunked(client: FlaskClient, body: bytes, **environ: Any) -> TestResponse:
    """As a server that ends the stream itself hands a body on that gave no length."""
    return client.post(
        "/analyze",
        input_stream=io.BytesIO(body),
        content_type="application/json",
        headers={"Transfer-Encoding": "chunked"},
        environ_overrides={"wsgi.input_terminated": True, **environ},
    )


def test_body_of_the_limit_without_a_length_is_read(client: FlaskClient) -> None:
    assert chunked(client, padded(MAX_BODY_BYTES)).status_code == 200


@pytest.mark.parametrize("excess", [1, 1000, 5_000_000])
def test_larger_body_without_a_length_is_refused(client: FlaskClient, excess: int) -> None:
    problem_of(chunked(client, padded(MAX_BODY_BYTES + excess)), 413)


def test_larger_body_is_not_read_to_its_end(client: FlaskClient) -> None:
    stream = io.BytesIO(padded(5_000_000))
    client.post(
        "/analyze",
        input_stream=stream,
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True},
    )
    assert stream.tell() <= MAX_BODY_BYTES + 1


@pytest.mark.parametrize("path", ["/sessions", "/nothing", "/analyze"])
def test_larger_body_is_refused_on_every_route(client: FlaskClient, path: str) -> None:
    problem_of(client.post(path, data=b"x" * (MAX_BODY_BYTES + 1)), 413)


@pytest.mark.parametrize("is_terminated", [True, False])
def test_body_that_ends_before_its_length_is_malformed(
    client: FlaskClient, is_terminated: bool
) -> None:
    environ: dict[str, Any] = {"CONTENT_LENGTH": str(len(GOOD) + 10)}
    if is_terminated:
        environ["wsgi.input_terminated"] = True
    response = client.post(
        "/analyze",
        input_stream=io.BytesIO(GOOD.encode()),
        content_type="application/json",
        environ_overrides=environ,
    )
    problem_of(response, 400)


@pytest.mark.parametrize("body", ["[]", '["text"]', '"text"', "1", "null", "true"])
def test_json_that_is_no_object_has_no_fields(client: FlaskClient, body: str) -> None:
    assert problem_of(post(client, body), 422)["errors"]
