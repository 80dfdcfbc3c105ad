"""A request's body -> its fields, not yet validated."""

from typing import Any
from urllib.parse import urlsplit

from flask import Request, g

from services.connection import BROKEN_BODY
from services.errors import (
    ForeignOriginError,
    MalformedError,
    TooLargeError,
    UnsupportedTypeError,
)
from services.forms import MULTIPART, URLENCODED, parse_form
from services.strict_json import parse_json

MAX_BODY_BYTES = 64 * 1024
# One more is read, to tell a body that is too large from one that just fits.
READ_LIMIT_BYTES = MAX_BODY_BYTES + 1


def read_fields(request: Request) -> Any:
    """The fields of a JSON or form body.

    Raises:
        TooLargeError: over `MAX_BODY_BYTES`.
        UnsupportedTypeError: another content type, or a content encoding.
        MalformedError: the body isn't what its type says, or ends too early.
        ForeignOriginError: a form from another site's page.
    """
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedTypeError(f"Content-Encoding {encoding} is not read; send it plain")
    mimetype = request.mimetype
    if mimetype in (URLENCODED, MULTIPART):
        _check_origin(request)
        return parse_form(_read(request), mimetype, request.mimetype_params)
    if mimetype == "application/json" or (
        mimetype.startswith("application/") and mimetype.endswith("+json")
    ):
        return parse_json(_read(request))
    raise UnsupportedTypeError(
        f"send application/json or a form, not {mimetype or 'a body without a type'}"
    )


def check_length(request: Request) -> None:
    """Refuse a body that says it is too large; one that doesn't say is counted when it is read.

    Raises:
        TooLargeError: over `MAX_BODY_BYTES`.
    """
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise _too_large()


def has_unread_body(request: Request) -> bool:
    """Whether a body was announced that wasn't read to its end."""
    is_announced = bool(request.content_length) or "Transfer-Encoding" in request.headers
    return is_announced and not g.get("is_body_read", False)


def skip_body(request: Request) -> bool:
    """Read a small announced body that nobody wanted, so that the connection can go on; whether
    nothing of it is left."""
    if g.get("is_body_broken", False):
        return False
    try:
        check_length(request)
        _read(request)
    except (TooLargeError, MalformedError):
        return False
    return True


def _read(request: Request) -> bytes:
    try:
        body = request.get_data()
    except BROKEN_BODY:
        g.is_body_broken = True  # reading on would find nothing, as if it had ended well
        raise MalformedError("the body's chunks are broken, or it doesn't come") from None
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    if request.content_length is not None and len(body) < request.content_length:
        raise MalformedError("the body ends before its Content-Length")
    g.is_body_read = True
    return body


def _too_large() -> TooLargeError:
    return TooLargeError(f"the body is larger than {MAX_BODY_BYTES} bytes")


def _check_origin(request: Request) -> None:
    """A page elsewhere can post a form without asking; JSON it can't."""
    origin = request.headers.get("Origin")
    if origin is not None and _host_of(origin) != request.host.lower():
        raise ForeignOriginError("a form from another site's page is not taken")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
