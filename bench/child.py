"""`python -m bench.child NAME`: one contender in a process of its own, asked over its pipes.

`NAME` is a module with `make(settings, work_dir)`, of this package if it has no dot. The first
line in is the `Order`; the first line out says that the contender is warm. Then a line for each
job and one for each answer, JSON all of them, until the input ends.
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from bench.contender import Figures, UnavailableError
from services.settings import Settings


@dataclass(frozen=True, slots=True)
class Order:
    """What a contender is made of."""

    settings: Settings
    work_dir: Path

    def to_line(self) -> str:
        return json.dumps(
            {"settings": asdict(self.settings), "work_dir": self.work_dir}, default=str
        )

    @classmethod
    def from_line(cls, line: str) -> "Order":
        raw = json.loads(line)
        values = raw["settings"]
        for field in fields(Settings):
            if isinstance(field.default, Path):
                values[field.name] = Path(values[field.name])
        return cls(Settings(**values), Path(raw["work_dir"]))


def serve(make: Callable[[Order], object], questions: TextIO, answers: TextIO) -> None:
    """Make the contender that the first line orders, then do a job for each further line."""
    contender: list[object] = []

    def begin() -> Figures:
        contender.append(make(Order.from_line(questions.readline())))
        return {}

    _answer(begin, answers)
    for line in questions if contender else ():
        job = json.loads(line)
        _answer(partial(_run, contender[0], job), answers)


def _run(contender: object, job: dict[str, Any]) -> Figures:
    method = getattr(contender, job["job"], None)
    if method is None:
        raise UnavailableError(f"it has no job {job['job']!r}")
    figures: Figures = method(**job["params"])
    return figures


def _answer(work: Callable[[], Figures], answers: TextIO) -> None:
    """A library may fail in any way; whatever it was is told, and the next job is done."""
    try:
        said: dict[str, Any] = {"figures": work()}
    except UnavailableError as error:
        said = {"unavailable": str(error)}
    except Exception as error:
        traceback.print_exc()
        said = {"unavailable": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), file=answers, flush=True)


def _own_pipes() -> tuple[TextIO, TextIO]:
    """The pipes that were given as standard input and output, out of the libraries' reach: what
    they print, from C too, goes to standard error from here on."""
    questions, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return questions, answers


def main(name: str) -> None:
    """Serve the contender of this name until the input ends."""
    questions, answers = _own_pipes()

    def make(order: Order) -> object:
        module = importlib.import_module(name if "." in name else f"bench.{name}")
        return module.make(order.settings, order.work_dir)

    serve(make, questions, answers)
    sys.stderr.flush()
    os._exit(0)  # without the libraries' destructors: some hang, and there is nothing to save


if __name__ == "__main__":
    main(sys.argv[1])
