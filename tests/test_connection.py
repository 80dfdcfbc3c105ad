"""What is asked of the server's socket: has the client left, and read no further."""

import socket
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from services.bodies import MAX_BODY_BYTES
from services.connection import leaving_watch, stop_reading

LARGE = b"x" * (MAX_BODY_BYTES + 1)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The server's end of a connection, and the client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_client_that_stays_has_not_left(ends: tuple[socket.socket, socket.socket]) -> None:
    has_left = leaving_watch({"gunicorn.socket": ends[0]})
    assert not has_left()
    ends[1].sendall(b"the next request already")
    assert not has_left()


def test_client_that_closes_has_left_whatever_it_sent_before(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    has_left = leaving_watch({"gunicorn.socket": ours})
    theirs.sendall(b"the next request already")
    theirs.close()
    assert has_left()
    assert ours.recv(100) == b"the next request already"  # looking took nothing


def test_half_closed_connection_counts_as_left(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].shutdown(socket.SHUT_WR)
    assert leaving_watch({"gunicorn.socket": ends[0]})()


def test_own_closed_socket_counts_as_left(ends: tuple[socket.socket, socket.socket]) -> None:
    has_left = leaving_watch({"gunicorn.socket": ends[0]})
    ends[0].close()
    assert has_left()


@pytest.mark.parametrize("environ", [{}, {"gunicorn.socket": None}])
def test_without_a_socket_nobody_is_known_to_have_left(environ: dict[str, object]) -> None:
    assert not leaving_watch(environ)()
    stop_reading(environ)


def test_reading_stops_and_the_answer_can_still_be_written(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    stop_reading({"gunicorn.socket": ours})
    assert ours.recv(100) == b""
    ours.sendall(b"413")
    assert theirs.recv(100) == b"413"


def test_stopping_a_connection_that_is_gone_is_harmless(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ends[0].close()
    stop_reading({"gunicorn.socket": ends[0]})
    assert ends[0].fileno() == -1


@pytest.mark.parametrize(
    ("method", "path", "mimetype", "body"),
    [
        ("POST", "/analyze", "application/json", LARGE),
        ("POST", "/analyze", "text/plain", LARGE),
        ("POST", "/nothing", "application/json", LARGE),
        ("PUT", "/analyze", "application/json", LARGE),
        ("POST", "/sessions", "application/json", LARGE),
    ],
)
def test_large_refused_body_is_read_no_further(
    client: FlaskClient,
    ends: tuple[socket.socket, socket.socket],
    method: str,
    path: str,
    mimetype: str,
    body: bytes,
) -> None:
    response = client.open(
        path,
        method=method,
        data=body,
        content_type=mimetype,
        environ_overrides={"gunicorn.socket": ends[0]},
    )
    assert response.status_code >= 400
    assert ends[0].recv(100, socket.MSG_DONTWAIT) == b""  # shut, else this would raise


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/analyze", b'{"text": "hi", "tasks": ["sentiment"]}'),
        ("POST", "/analyze", b'{"text": ""}'),
        ("POST", "/analyze", b"{"),
        ("POST", "/sessions", b"{}"),
        ("POST", "/nothing", b"{}"),
        ("PUT", "/analyze", b"{}"),
        ("GET", "/nothing", b""),
    ],
)
def test_connection_stays_usable_otherwise(
    client: FlaskClient,
    ends: tuple[socket.socket, socket.socket],
    method: str,
    path: str,
    body: bytes,
) -> None:
    client.open(
        path,
        method=method,
        data=body,
        content_type="application/json",
        environ_overrides={"gunicorn.socket": ends[0]},
    )
    with pytest.raises(BlockingIOError):  # open, and nothing there
        ends[0].recv(100, socket.MSG_DONTWAIT)
