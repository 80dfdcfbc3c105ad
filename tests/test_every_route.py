"""What holds on every route: problems, methods, ids, odd headers."""

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.exchange import PROBLEM_KEYS, is_idle, problem_of


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("POST", "/analyze/"),
        ("GET", "/readyz/"),
        ("GET", "/sessions/"),
        ("POST", "/sessions/"),
        ("GET", "/static/nothing.js"),
        ("GET", "/static/../app.py"),
        ("GET", "/static/%2e%2e/app.py"),
        ("GET", "/sessions//a"),
        ("GET", "/%ff"),
    ],
)
def test_unknown_path_is_a_problem(client: FlaskClient, method: str, path: str) -> None:
    problem_of(client.open(path, method=method), 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/analyze", {"POST", "OPTIONS"}),
        ("PUT", "/analyze", {"POST", "OPTIONS"}),
        ("GET", "/sessions", {"POST", "OPTIONS"}),
        ("POST", "/sessions/a", {"GET", "HEAD", "DELETE", "OPTIONS"}),
        ("POST", "/healthz", {"GET", "HEAD", "OPTIONS"}),
        ("DELETE", "/", {"GET", "HEAD", "OPTIONS"}),
        ("TRACE", "/analyze", {"POST", "OPTIONS"}),
        ("BREW", "/readyz", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_wrong_method_is_a_problem_that_names_the_right_ones(
    client: FlaskClient, method: str, path: str, allowed: set[str]
) -> None:
    response = client.open(path, method=method)
    problem_of(response, 405)
    assert set(response.headers["Allow"].split(", ")) == allowed


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/tasks"])
def test_head_is_get_without_a_body(client: FlaskClient, path: str) -> None:
    with client.head(path) as head, client.get(path) as get:
        assert (head.status_code, head.data) == (get.status_code, b"")
        assert head.headers["Content-Length"] == get.headers["Content-Length"]


def test_head_of_an_error_has_its_status(client: FlaskClient) -> None:
    response = client.head("/nothing")
    assert (response.status_code, response.data) == (404, b"")
    assert response.mimetype == "application/problem+json"


def test_head_of_analyze_runs_nothing(app: Flask, client: FlaskClient) -> None:
    assert client.head("/analyze").status_code == 405
    assert is_idle(app)


def test_options_names_the_methods(client: FlaskClient) -> None:
    response = client.options("/analyze")
    assert response.status_code == 200
    assert set(response.headers["Allow"].split(", ")) == {"POST", "OPTIONS"}


def test_json_is_readable_utf8_in_our_order(client: FlaskClient) -> None:
    response = client.post("/analyze", json={"text": "太差了", "tasks": ["chat"]})
    assert response.mimetype == "application/json"
    assert "太差了".encode() in response.data


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/healthz"), ("GET", "/nothing"), ("PUT", "/analyze"),
     ("POST", "/sessions"), ("OPTIONS", "/analyze"), ("GET", "/static/page.js")],
)  # fmt: skip
def test_every_answer_carries_an_id(client: FlaskClient, method: str, path: str) -> None:
    with client.open(path, method=method) as first, client.open(path, method=method) as second:
        ids = [response.headers["X-Request-ID"] for response in (first, second)]
    assert all(ids)
    assert ids[0] != ids[1]


@pytest.mark.parametrize("given", ["a", "A-1_b.c", "x" * 64])
def test_plain_id_of_the_client_is_kept(client: FlaskClient, given: str) -> None:
    response = client.get("/nothing", headers={"X-Request-ID": given})
    assert problem_of(response, 404)["request_id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "é", "<b>", "a\tb", "a,b"])
def test_other_id_of_the_client_is_replaced(client: FlaskClient, given: str) -> None:
    response = client.get("/nothing", headers={"X-Request-ID": given})
    assert problem_of(response, 404)["request_id"] != given


def test_problem_has_a_type_of_its_own(client: FlaskClient) -> None:
    body = client.post("/analyze", json={"text": ""}).get_json()
    assert list(body) == PROBLEM_KEYS
    assert (body["type"], body["title"]) != ("about:blank", "")
    assert body["errors"] == {"text": ["has nothing in it"]}


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_HOST": "["},
        {"HTTP_HOST": "a b"},
        {"HTTP_HOST": ""},
        {"CONTENT_LENGTH": "-1"},
        {"CONTENT_LENGTH": "many"},
        {"CONTENT_TYPE": "application/x-www-form-urlencoded; charset=\xff"},
        {"CONTENT_TYPE": "multipart/form-data; boundary="},
        {"CONTENT_TYPE": "multipart/form-data; boundary=" + "x" * 5000},
        {"CONTENT_TYPE": "application/json; charset=klingon"},
        {"HTTP_ACCEPT": ";;q=,,/"},
        {"HTTP_ACCEPT": "text/event-stream;q=nan"},
        {"HTTP_ORIGIN": "\xff"},
        {"HTTP_HOST": "[", "HTTP_ORIGIN": "http://["},
        {"QUERY_STRING": "%ff=&&=;"},
        {"PATH_INFO": "/analyze\xff"},
    ],
)
def test_odd_headers_are_never_the_services_failure(
    client: FlaskClient, environ: dict[str, str]
) -> None:
    for data in ('{"text": "hi", "tasks": ["sentiment"]}', "text=hi&tasks=sentiment"):
        for mimetype in ("application/json", "application/x-www-form-urlencoded"):
            response = client.post(
                "/analyze", data=data, content_type=mimetype, environ_overrides=environ
            )
            assert response.status_code < 500, response.text
            assert response.mimetype in ("application/json", "application/problem+json")
