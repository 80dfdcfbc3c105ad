"""The service as `make run` starts it: gunicorn with the repository's own configuration."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

ROOT = Path(__file__).parent.parent
DEADLINE_S = 120


class Served:
    """A running service: its address, its log so far, and the statuses `/readyz` went through."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.lines: list[str] = []
        self.statuses: list[int] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def wait_ready(self) -> None:
        """Poll `/readyz` until it says 200."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                status = requests.get(f"{self.url}/readyz", timeout=5).status_code
            except requests.ConnectionError:
                status = 0
            self.statuses.append(status)
            if status == 200:
                return
            time.sleep(0.05)
        raise AssertionError(f"the service did not become ready:\n{self.log}")

    def wait_exit(self) -> int:
        """The exit status, once the process and its log have ended."""
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))
        self.process.stdout.close()


@contextmanager
def served(**variables: str) -> Iterator[Served]:
    """Start gunicorn on a free port with these `AIO_*` variables and none of the caller's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("AIO_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn"],
        cwd=ROOT,
        env={**inherited, "AIO_PORT": str(port), "HF_HUB_OFFLINE": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    service = Served(process, port)
    try:
        yield service
    finally:
        process.terminate()
        service.wait_exit()
