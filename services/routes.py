"""The routes: load the request, hand it on, answer."""

from contextlib import closing
from typing import Any

from flask import Blueprint, Response, current_app, g, jsonify, request
from marshmallow import ValidationError
from werkzeug.datastructures import MIMEAccept

from services.analysis import Analysis
from services.bodies import read_fields
from services.connection import leaving_watch
from services.errors import InvalidFieldsError, NotFoundError, field_errors
from services.replies import answer
from services.router import route
from services.runtime import Runtime
from services.schemas import AnalyzeRequest, AnalyzeSchema
from services.sessions import Turn
from services.streaming import NDJSON, SSE, stream

JSON = "application/json"
PAGE_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

bp = Blueprint("api", __name__)


@bp.post("/analyze")
def analyze() -> Response:
    """Label a text and answer it, at once or as a stream."""
    wanted = _load_analyze()
    events = _analysis(wanted).events()
    mimetype = _stream_type(wanted.stream)
    if mimetype is not None:
        return stream(events, mimetype, g.request_id)
    with closing(events):
        return jsonify(answer(events))


@bp.post("/sessions")
def create_session() -> tuple[Response, int]:
    """Give out an unguessable session id."""
    return jsonify(session_id=_runtime().sessions.create().session_id), 201


@bp.get("/sessions/<session_id>")
def show_session(session_id: str) -> Response:
    """A session's turns. Whoever chose its id may not be the only one to guess it: no texts."""
    runtime = _runtime()
    session = runtime.sessions.find(session_id)
    if session is None:
        raise NotFoundError("no such session")
    turns = session.turns  # one look: another thread may change them
    num_tokens, cached_bytes = runtime.session_size(turns, session.key)
    return jsonify(
        session_id=session_id,
        turns=[_turn(turn, session.is_issued) for turn in turns],
        num_tokens=num_tokens,
        cached_bytes=cached_bytes,
    )


@bp.delete("/sessions/<session_id>")
def delete_session(session_id: str) -> Response:
    """Forget a session."""
    if not _runtime().sessions.forget(session_id):
        raise NotFoundError("no such session")
    return Response(status=204)


@bp.get("/tasks")
def tasks() -> Response:
    """What `tasks` may name."""
    return jsonify(
        tasks=[
            {
                "name": prompt.name,
                "kind": prompt.kind,
                "description": prompt.description,
                "labels": list(prompt.labels),
            }
            for prompt in _runtime().prompts.values()
        ]
    )


@bp.get("/healthz")
def healthz() -> Response:
    """The process lives."""
    return jsonify(status="ok")


@bp.get("/readyz")
def readyz() -> Response:
    """Whether it can answer, and with what model; 503 with the reason where it can't."""
    ready = _runtime().ready()
    return jsonify(
        status="ready",
        model=ready.files.name,
        stand_in=ready.files.is_stand_in,
        precision=ready.precision,
    )


@bp.get("/")
def index() -> Response:
    """The page, which may load and reach nothing but this service."""
    response = current_app.send_static_file("index.html")
    response.headers["Content-Security-Policy"] = PAGE_POLICY
    return response


def _runtime() -> Runtime:
    runtime: Runtime = current_app.extensions["aio"]
    return runtime


def _load_analyze() -> AnalyzeRequest:
    try:
        wanted: AnalyzeRequest = AnalyzeSchema().load(read_fields(request))
    except ValidationError as error:
        raise InvalidFieldsError("some fields can't be used", errors=field_errors(error)) from None
    return wanted


def _analysis(wanted: AnalyzeRequest) -> Analysis:
    """Route the request and encode its text, both before anything runs."""
    runtime = _runtime()
    routed = route(wanted.tasks, runtime.prompts)
    ready = runtime.ready()
    text_ids = ready.encoder.encode_text(wanted.text)
    limit = runtime.settings.max_text_tokens
    if len(text_ids) > limit:
        reason = f"has {len(text_ids)} tokens; at most {limit} are taken"
        raise InvalidFieldsError("the text is too long", errors={"text": [reason]})
    return Analysis(
        ready=ready,
        sessions=runtime.sessions,
        places=runtime.chat_places if routed.chat else runtime.label_places,
        request=wanted,
        route=routed,
        text_ids=text_ids,
        has_left=leaving_watch(request.environ),
    )


def _stream_type(asked: bool | None) -> str | None:
    """The stream's type; None for a JSON answer. An explicit `stream` wins over `Accept`."""
    # Without parameters: a client may well send back the charset of our own answer.
    accept = MIMEAccept([(value.partition(";")[0], q) for value, q in request.accept_mimetypes])
    if asked is None:
        asked = accept.best_match([JSON, SSE, NDJSON]) in (SSE, NDJSON)
    if not asked:
        return None
    return NDJSON if accept[NDJSON] > accept[SSE] else SSE


def _turn(turn: Turn, is_shown: bool) -> dict[str, Any]:
    return {
        "text": turn.text if is_shown else None,
        "response": turn.response if is_shown else None,
        "sentiment": turn.sentiment,
    }
