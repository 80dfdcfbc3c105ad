"""The application: wire and register. Nothing is loaded here; whoever serves starts the runtime."""

import logging
import os
import re
import secrets
import sys
from typing import TYPE_CHECKING

import click
from flask import Flask, Response, g, request

from services.bodies import READ_LIMIT_BYTES, check_length, has_unread_body, skip_body
from services.cli import register_cli
from services.connection import stop_reading
from services.errors import register_error_handlers
from services.prompts import PromptError, load_prompts
from services.routes import bp
from services.runtime import Runtime
from services.settings import EXIT_LOAD_FAILED, Settings, SettingsError, load_settings
from services.weights import stand_in_warning

if TYPE_CHECKING:
    from services.engine.engine import Engine
    from services.ready import Ready

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")

log = logging.getLogger(__name__)


def create_app(settings: Settings | None = None, engine: "Engine | None" = None) -> Flask:
    """Build the application from the environment's settings, or from those given.

    The runtime, in `app.extensions["aio"]`, is not started: commands need no model. `engine`
    stands in for the one that starting would make.

    Raises:
        SettingsError, PromptError: naming each variable, file and key that can't be used.
        click.ClickException: the same inside a `flask` command, which shows it without a trace.
    """
    try:
        settings = settings or load_settings()
        prompts = load_prompts(settings.prompts_dir)
    except (SettingsError, PromptError) as error:
        if click.get_current_context(silent=True) is None:
            raise
        raise click.ClickException(str(error)) from None
    app = Flask(__name__)
    app.url_map.merge_slashes = False  # it would redirect, with an answer in HTML
    app.config["MAX_CONTENT_LENGTH"] = READ_LIMIT_BYTES
    app.json.sort_keys = False  # type: ignore[attr-defined]  # the default provider has it
    app.json.ensure_ascii = False  # type: ignore[attr-defined]
    app.extensions["aio"] = Runtime(settings, prompts, engine)
    app.register_blueprint(bp)
    app.before_request(_begin)
    app.after_request(_finish)
    register_error_handlers(app)
    register_cli(app)
    return app


def _begin() -> None:
    """Name the request, by the client's own id where it is short and plain; look at its size."""
    given = request.headers.get("X-Request-ID", "")
    g.request_id = given if _REQUEST_ID.match(given) else secrets.token_hex(8)
    check_length(request)


def _finish(response: Response) -> Response:
    response.headers["X-Request-ID"] = g.request_id
    response.headers["X-Content-Type-Options"] = "nosniff"
    # Skipped where it is small, so that the connection can go on; a large or endless one would
    # hold the server up.
    if has_unread_body(request) and not skip_body(request):
        stop_reading(request.environ)
    return response


def main() -> None:
    """Serve for development: one process, Flask's own server, no reloader."""
    try:
        app = create_app()
    except (SettingsError, PromptError) as error:
        sys.exit(f"error: {error}")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    runtime: Runtime = app.extensions["aio"]
    runtime.start(on_ready=say_ready, on_failure=_leave)
    app.run(runtime.settings.host, runtime.settings.port, threaded=True)


def say_ready(ready: "Ready") -> None:
    """Log what answers, and warn where it is a stand-in."""
    log.info("ready: %s in %s", ready.files.name, ready.precision)
    if ready.files.is_stand_in:
        log.warning(stand_in_warning(ready.files))


def _leave(error: Exception) -> None:
    print(f"error: {error}", file=sys.stderr, flush=True)
    os._exit(EXIT_LOAD_FAILED)


if __name__ == "__main__":
    main()
