"""How gunicorn serves the application. One worker: one model, and sessions in its memory.

docs/decisions.md says why each setting is as it is.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from services.connection import limit_waiting
from services.places import MAX_LABEL_REQUESTS
from services.prompts import PromptError, load_prompts
from services.runtime import Runtime
from services.settings import EXIT_LOAD_FAILED, SettingsError, load_settings
from services.weights import WeightsError, check_files, find_model, stand_in_warning

DRAIN_S = 20  # after SIGTERM running replies have so long; the rest is then told
LEAVE_S = 5  # after the engine's death the worker has so long to leave by itself
MAX_WAIT_S = 10  # of one read or write on a connection


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
        server.log.warning(stand_in_warning(files))


def when_ready(server: Any) -> None:
    """The port is open: bound how long its connections may keep a thread waiting."""
    for listener in server.LISTENERS:
        limit_waiting(listener.sock, MAX_WAIT_S)


def post_worker_init(worker: Any) -> None:
    """Start the runtime after the fork, in the worker alone; the port is open meanwhile."""
    runtime: Runtime = worker.wsgi.extensions["aio"]
    logging.getLogger("services").setLevel(logging.INFO)
    logging.getLogger("services").handlers = logging.getLogger("gunicorn.error").handlers

    def fail(error: Exception) -> None:
        worker.log.error("the model can't be loaded: %s", error)
        os._exit(EXIT_LOAD_FAILED)

    def leave() -> None:
        # Everyone who waited has been told; gunicorn starts a new worker.
        os.kill(os.getpid(), signal.SIGTERM)
        _later(LEAVE_S, lambda: os._exit(1))

    # A terminal's Ctrl-C reaches the worker beside the master's own signal, and the second of
    # the two can interrupt gunicorn's handler of the first while it holds a lock.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _drain_on_term(runtime)
    runtime.start(
        on_ready=lambda ready: worker.log.info(
            "ready: %s in %s on http://%s", ready.files.name, ready.precision, bind
        ),
        on_failure=fail,
        on_death=leave,
    )


def _later(seconds: float, do: Callable[[], None]) -> None:
    """Do it if the process is still there by then; a timer that isn't a daemon would keep it."""
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


def _drain_on_term(runtime: Runtime) -> None:
    """On SIGTERM, before gunicorn's own handler: no new work, and an end for whoever still runs
    when the time is up. gunicorn kills what is left after `graceful_timeout` without a word."""
    inner = signal.getsignal(signal.SIGTERM)
    assert callable(inner)  # the worker has set it

    def drain(signum: int, frame: FrameType | None) -> None:
        # Not in the handler itself: it might interrupt who holds the lock.
        threading.Thread(target=runtime.drain, daemon=True).start()
        _later(DRAIN_S, runtime.stop)
        inner(signum, frame)

    signal.signal(signal.SIGTERM, drain)
