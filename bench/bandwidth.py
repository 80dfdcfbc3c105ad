"""How fast this machine reads memory, which bounds every engine that decodes one token."""

import time
from pathlib import Path

import torch

from bench.contender import Figures
from services.settings import Settings

_BYTES = 2**29  # more than any cache holds
_TRIES = 5


def make(settings: Settings, work_dir: Path) -> "Reader":
    """It asks for no model."""
    return Reader()


class Reader:
    """Sums a long vector: torch's sum of fp32 does little else than read."""

    def __init__(self) -> None:
        self._numbers = torch.ones(_BYTES // 4)

    def read(self, threads: int) -> Figures:
        """`gb_a_second`, the best of five passes: the limit is asked for, not the usual."""
        torch.set_num_threads(threads)
        seconds = []
        for _ in range(_TRIES):
            begun = time.perf_counter()
            self._numbers.sum()
            seconds.append(time.perf_counter() - begun)
        return {"gb_a_second": _BYTES / min(seconds) / 1e9}
