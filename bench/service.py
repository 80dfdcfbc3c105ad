"""The service as `make run` starts it, on a port of its own, and a client of it."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.contender import UnavailableError
from bench.load import Answer, Question
from bench.memory import child_of
from services.settings import PREFIX, Settings

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
START_S = 180.0
STOP_S = 40.0  # gunicorn's own patience, and a little
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Service:
    """One that answers: on which port, how long it took to get ready, and which process works."""

    port: int
    start_s: float
    worker_pid: int | None  # None where the system doesn't tell

    def ask(self, question: Question) -> Answer:
        """One streamed request, read to its end; see `bench.load.Client`."""
        connection = http.client.HTTPConnection(HOST, self.port)
        begun = time.perf_counter()
        try:
            body = json.dumps(_fields(question)).encode()
            connection.request("POST", "/analyze", body, {"Content-Type": "application/json"})
            return _read(connection.getresponse(), begun)
        finally:
            connection.close()


@contextmanager
def running_service(settings: Settings, work_dir: Path) -> Iterator[Service]:
    """gunicorn with these settings, ready; its log is in `work_dir`.

    Raises:
        UnavailableError: it ended, or wasn't ready in time.
    """
    settings = replace(settings, host=HOST, port=_free_port(HOST))
    work_dir.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    with (work_dir / "service.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--config", str(ROOT / "gunicorn.conf.py")],
            stdout=log,
            stderr=log,
            env=_environment(settings),
        )
        try:
            _await_ready(process, settings.port)
            start_s = time.perf_counter() - begun
            yield Service(settings.port, start_s, child_of(process.pid))
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _fields(question: Question) -> dict[str, Any]:
    fields: dict[str, Any] = {"text": question.text, "stream": True, "seed": question.seed}
    if not question.has_reply:
        fields["tasks"] = ["sentiment"]
        return fields
    if not question.has_label:
        fields["tasks"] = ["chat"]
    return {**fields, "max_new_tokens": question.new_tokens}


def _read(response: http.client.HTTPResponse, begun: float) -> Answer:
    """Read the events of a stream, and note when the first of each kind came.

    Raises:
        UnavailableError: it was refused, or broke off.
    """
    if response.status != http.HTTPStatus.OK:
        raise UnavailableError(f"the service answered {response.status}")
    at: dict[bytes, float] = {}
    event, usage = b"", None
    for line in response:
        if line.startswith(b"event: "):
            event = line[len(b"event: ") :].strip()
            at.setdefault(event, time.perf_counter())
        elif event == b"done" and line.startswith(b"data: "):
            usage = json.loads(line[len(b"data: ") :])["usage"]
    if b"done" not in at:
        raise UnavailableError("a stream broke off")
    num_tokens = usage["completion_tokens"] if usage else 0
    return Answer(begun, at[b"done"], at.get(b"sentiment"), at.get(b"delta"), num_tokens)


def _environment(settings: Settings) -> dict[str, str]:
    """The settings as the service reads them; relative folders stay relative to where we are."""
    own = {PREFIX + name.upper(): str(value) for name, value in asdict(settings).items()}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        **own,
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": path,
    }


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _await_ready(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise UnavailableError(f"the service ended with status {process.returncode}")
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(HOST, port, timeout=START_S)
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == http.HTTPStatus.OK:
                    return
            finally:
                connection.close()
        time.sleep(LOOK_S)
    raise UnavailableError(f"the service wasn't ready after {START_S:.0f} s")
