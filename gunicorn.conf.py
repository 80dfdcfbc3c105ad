"""How gunicorn serves the application. One worker: one model, and sessions in its memory.

The figures behind each setting stand in docs/decisions.md.
"""

import logging
import os
import sys
from typing import Any

from services.places import MAX_LABEL_REQUESTS
from services.prompts import PromptError, load_prompts
from services.runtime import Runtime
from services.settings import SettingsError, load_settings
from services.weights import WeightsError, check_files, find_model

EXIT_LOAD_FAILED = 4  # the master stops on it instead of starting workers for ever


def _stop(error: Exception) -> None:
    print(f"error: {error}", file=sys.stderr, flush=True)
    raise SystemExit(EXIT_LOAD_FAILED)


try:
    _settings = load_settings()
except SettingsError as error:
    _stop(error)

wsgi_app = "app:create_app()"
bind = f"{_settings.host}:{_settings.port}"
workers = 1
worker_class = "gthread"
# Every request that may run or wait holds a thread; 32 more keep /healthz answering.
threads = _settings.max_running + _settings.max_waiting + MAX_LABEL_REQUESTS + 32
worker_connections = threads + 100
backlog = 64
timeout = 30
graceful_timeout = 30
keepalive = 5
max_requests = 0
preload_app = False
control_socket_disable = True
accesslog = None


def on_starting(server: Any) -> None:
    """Check prompts and files before the port opens, without torch: the master never loads it."""
    try:
        load_prompts(_settings.prompts_dir)
        files = find_model(_settings)
        check_files(files)
    except (PromptError, WeightsError) as error:
        _stop(error)
    if files.is_stand_in:
        server.log.warning(
            "%s stands in for the real model. For the real one: flask --app app fetch-model "
            "(HF_ENDPOINT=... where a mirror is reached)",
            files.name,
        )


def post_worker_init(worker: Any) -> None:
    """Start the runtime after the fork, in the worker alone; the port is open meanwhile."""
    runtime: Runtime = worker.wsgi.extensions["aio"]
    logging.getLogger("services").setLevel(logging.INFO)
    logging.getLogger("services").handlers = logging.getLogger("gunicorn.error").handlers

    def fail(error: Exception) -> None:
        worker.log.error("the model can't be loaded: %s", error)
        os._exit(EXIT_LOAD_FAILED)

    runtime.start(
        on_ready=lambda ready: worker.log.info(
            "ready: %s in %s on http://%s", ready.files.name, ready.precision, bind
        ),
        on_failure=fail,
    )


def worker_exit(server: Any, worker: Any) -> None:
    """Stop the engine, so that whoever still waits is told."""
    worker.wsgi.extensions["aio"].stop()
