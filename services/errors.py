"""Typed errors that carry their HTTP status, and the one shape they all come out in."""

import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, json
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException

from services.traces import trace

log = logging.getLogger(__name__)

FieldErrors = dict[str, list[str]]


class ServiceError(Exception):
    """An error that a client is told about; subclasses name the kind."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    kind = "internal"

    def __init__(
        self, detail: str, *, errors: FieldErrors | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors or {}
        self.retry_after_s = retry_after_s


class MalformedError(ServiceError):
    """The body isn't what its type says."""

    status = HTTPStatus.BAD_REQUEST
    kind = "malformed"


class ClientLeftError(ServiceError):
    """Nobody waits for the answer any more, at most somebody who closed just one direction."""

    status = HTTPStatus.BAD_REQUEST
    kind = "client-left"


class ForeignOriginError(ServiceError):
    """A form was posted from another site's page."""

    status = HTTPStatus.FORBIDDEN
    kind = "foreign-origin"


class NotFoundError(ServiceError):
    """No such session or task."""

    status = HTTPStatus.NOT_FOUND
    kind = "not-found"


class TooLargeError(ServiceError):
    """A body over the limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    kind = "too-large"


class UnsupportedTypeError(ServiceError):
    """A content type or encoding that isn't read here."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    kind = "unsupported-type"


class InvalidFieldsError(ServiceError):
    """Fields that can't be used; `errors` has each field's reasons."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    kind = "invalid-fields"


class UnavailableError(ServiceError):
    """Not now: the model isn't ready, the queue is full, or the engine is stopping."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    kind = "unavailable"


def field_errors(error: ValidationError) -> FieldErrors:
    """marshmallow's reasons by field, nested ones dotted (`tasks.0`)."""
    messages = error.messages if isinstance(error.messages, dict) else {"_schema": error.messages}
    return dict(_flat(messages, ""))


def problem(error: ServiceError, request_id: str) -> dict[str, Any]:
    """The problem object (RFC 9457) of an error, for an answer or for a stream's `error` event.

    The id is handed in, since a stream outlives the request's context.
    """
    return _problem(error.kind, error.status, error.detail, error.errors, request_id)


def internal_error(error: Exception, request_id: str) -> ServiceError:
    """Log what nobody foresaw; the error to tell the client instead."""
    log.error("request %s failed by %s", request_id, trace(error))
    return ServiceError("the service failed; its log names the request")


def register_error_handlers(app: Flask) -> None:
    """Answer every error of every route as `application/problem+json`."""

    @app.errorhandler(ServiceError)
    def service_error(error: ServiceError) -> Response:
        headers = {}
        if error.retry_after_s is not None:
            headers["Retry-After"] = str(error.retry_after_s)
        return _response(problem(error, g.request_id), headers)

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response:
        status = HTTPStatus(error.code or 500)
        kind = status.name.lower().replace("_", "-")
        detail = error.description or status.description
        # Allow, Location and the like; the body and its type are ours.
        headers = {k: v for k, v in error.get_headers() if k.lower() != "content-type"}
        return _response(_problem(kind, status, detail, {}, g.request_id), headers)

    @app.errorhandler(Exception)
    def unexpected(error: Exception) -> Response:
        failure = internal_error(error, g.request_id)
        return _response(problem(failure, g.request_id), {})


def _flat(messages: dict[Any, Any], path: str) -> Iterator[tuple[str, list[str]]]:
    for name, reasons in messages.items():
        if isinstance(reasons, dict):
            yield from _flat(reasons, f"{path}{name}.")
        else:
            yield f"{path}{name}", [str(reason) for reason in reasons]


def _problem(
    kind: str, status: HTTPStatus, detail: str, errors: FieldErrors, request_id: str
) -> dict[str, Any]:
    return {
        "type": f"urn:aio:problem:{kind}",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
        "errors": errors,
        "request_id": request_id,
    }


def _response(body: dict[str, Any], headers: dict[str, str]) -> Response:
    return Response(json.dumps(body), body["status"], headers, mimetype="application/problem+json")
