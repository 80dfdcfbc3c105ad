"""What the service asks of gunicorn and its socket; under another server it asks nothing."""

import select
import socket
import struct
from collections.abc import Callable
from typing import Any

from gunicorn.http.errors import ParseException
from werkzeug.exceptions import ClientDisconnected

# POLLRDHUP is Linux's; elsewhere a client that left is noticed at the next write.
_LEFT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

# What reading a body raises: its chunks are none, it ends too early, or nothing more comes in time.
BROKEN_BODY: tuple[type[Exception], ...] = (ParseException, ClientDisconnected, OSError)


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


def limit_waiting(listener: socket.socket, seconds: int) -> None:
    """Let no read or write on this listener's connections wait longer; they inherit it from there.

    gunicorn bounds sizes, not times: half a request, or a client that reads nothing, would hold a
    thread without end.
    """
    limit = struct.pack("ll", seconds, 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        listener.setsockopt(socket.SOL_SOCKET, option, limit)
