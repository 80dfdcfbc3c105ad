"""Contenders in processes of their own: started, asked, ended."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.child import Order
from bench.contender import Figures, Plan, UnavailableError
from services.settings import Settings

START_S = 900.0  # a model that is exported or compiled on the spot takes minutes
JOB_S = 600.0
END_S = 10.0
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A contender to start: the module that makes it, and what it is made with."""

    name: str
    settings: Settings


class Child:
    """A contender's process, warm. Ends with its context."""

    def __init__(self, process: subprocess.Popen[str], log: IO[str]) -> None:
        """`process` has pipes for input and output, and writes its errors to `log`."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._pipes = process.stdin, process.stdout
        self._log = log

    def run(self, job: str, **params: Any) -> Figures:
        """Do a job and wait for its figures.

        Raises:
            UnavailableError: it can't do that job, or its process ended.
        """
        return self._ask(json.dumps({"job": job, "params": params}), JOB_S)

    def begin(self, order: Order) -> None:
        """Load and warm up; for `start`."""
        self._ask(order.to_line(), START_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the process, by force if it doesn't."""
        stdin, stdout = self._pipes
        with suppress(BrokenPipeError):  # it is gone already
            stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, line: str, limit_s: float) -> Figures:
        stdin, stdout = self._pipes
        # A pipe has no timeout; a process that is killed ends its pipe.
        guard = threading.Timer(limit_s, self._process.kill)
        guard.start()
        try:
            print(line, file=stdin, flush=True)
            answer = stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            guard.cancel()
        if not answer:
            raise UnavailableError(self._last_words())
        said = json.loads(answer)
        if "unavailable" in said:
            raise UnavailableError(said["unavailable"])
        figures: Figures = said["figures"]
        return figures

    def _last_words(self) -> str:
        status = self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return f"its process ended with status {status}: {lines[-1] if lines else 'no word'}"


def start(name: str, settings: Settings, work_dir: Path) -> Child:
    """Start the contender that this module's `make` makes (see `child.py`), and wait until it
    is warm.

    Raises:
        UnavailableError: it can't run here; the message says why.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.child", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        encoding="utf-8",
        env=_environment(),
    )
    child = Child(process, log)
    try:
        child.begin(Order(settings, work_dir))
    except BaseException:
        child.close()
        raise
    return child


@contextmanager
def started(wanted: Mapping[str, Wanted], plan: Plan) -> Iterator[dict[str, Child]]:
    """Those of the contenders that can run here, by label, one started after the other; of the
    others the plan is told what they lack. They end with the context."""
    with ExitStack() as stack:
        children = {}
        for label, contender in wanted.items():
            plan.say(f"starting {label}")
            try:
                child = start(contender.name, contender.settings, plan.work_dir)
            except UnavailableError as error:
                plan.skip(label, str(error))
            else:
                children[label] = stack.enter_context(child)
        yield children


def _environment() -> dict[str, str]:
    """Ours, plus the way to this package; and no contender shall ask a model hub."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
