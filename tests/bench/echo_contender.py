"""A contender without weights, with a library's bad manners."""

import os
import threading
from pathlib import Path

from bench.contender import Figures, UnavailableError
from services.settings import Settings


def make(settings: Settings, work_dir: Path) -> "Echo":
    print("a library says hello")
    os.write(1, b"and another does from C\n")
    if settings.model == "none":
        raise UnavailableError("there is no model")
    return Echo(settings, work_dir)


class Echo:
    def __init__(self, settings: Settings, work_dir: Path) -> None:
        self._settings = settings
        self._work_dir = work_dir

    def add(self, first: float, second: float) -> Figures:
        print("adding")
        return {"sum": first + second}

    def made_of(self) -> Figures:
        has_paths = isinstance(self._settings.model_dir, Path) and self._work_dir.is_dir()
        return {"threads": self._settings.threads, "has_paths": has_paths}

    def fail(self) -> Figures:
        raise ValueError("no such luck")

    def die(self) -> Figures:
        os.write(2, b"out of memory\n\n")
        os._exit(7)

    def wait_for_ever(self) -> Figures:
        threading.Event().wait()
        return {}
