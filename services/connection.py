"""What the service asks of gunicorn and its socket; under another server it asks nothing."""

import select
import socket
from collections.abc import Callable
from typing import Any

from gunicorn.http.errors import ParseException
from werkzeug.exceptions import ClientDisconnected

# POLLRDHUP is Linux's; elsewhere a client that left is noticed at the next write.
_LEFT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

# What reading a body raises when its chunks are none, or it ends before it should.
BROKEN_BODY: tuple[type[Exception], ...] = (ParseException, ClientDisconnected)


def leaving_watch(environ: dict[str, Any]) -> Callable[[], bool]:
    """A cheap question: has this request's client closed its side of the connection?

    Polled, not peeked: pipelined bytes would hide the end from a peek. A client that half-closes
    looks the same as one that left, and counts as such.
    """
    connection = environ.get("gunicorn.socket")
    if not isinstance(connection, socket.socket) or not hasattr(select, "poll"):
        return lambda: False
    poller = select.poll()
    poller.register(connection, _LEFT)
    return lambda: bool(poller.poll(0))


def stop_reading(environ: dict[str, Any]) -> None:
    """Refuse the rest of a body: gunicorn's main thread would else linger for a sender that
    goes on, and accept nothing meanwhile."""
    connection = environ.get("gunicorn.socket")
    if isinstance(connection, socket.socket):
        try:
            connection.shutdown(socket.SHUT_RD)
        except OSError:
            return  # it has left already
