"""The time of a step by the rows of its sequences: a contender for `bench.speculation`.

No engine here: its thread and this one would each keep threads of OpenMP, more of them than cores,
and both would be two to three times as slow from then on.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from bench.contender import Figures, UnavailableError
from bench.prompts import random_ids
from services.engine.attention import Segment
from services.engine.kv_cache import KVCache
from services.engine.loading import load_model, usable_cores
from services.engine.model import Forward
from services.engine.precision import choose_precision, processor_flags
from services.engine.sampler import Sampler
from services.engine.tasks import Sampling
from services.settings import Settings
from services.weights import WeightsError, find_model

HISTORY_TOKENS = 200  # with the rows behind it, it ends inside a block of K/V
_MAX_ROWS = 16
_WARM_UP = 3


def make(settings: Settings, work_dir: Path) -> "RowSteps":
    """The model in the precision that the settings name.

    Raises:
        UnavailableError: the model isn't there.
    """
    try:
        files = find_model(settings)
    except WeightsError as error:
        raise UnavailableError(str(error)) from None
    precision = choose_precision(settings.precision, processor_flags(), settings.kv_precision)
    num_threads = settings.threads or usable_cores()
    model = load_model(files.folder, precision, num_threads)
    torch.set_num_threads(num_threads)
    return RowSteps(model)


class RowSteps:
    """Sequences of random tokens."""

    def __init__(self, model: Forward) -> None:
        self._model = model

    def step(self, sequences: int, rows: int, repeats: int) -> Figures:
        """`ms` of a forward with so many rows in all, dealt out evenly, logits of each wanted.

        With more rows than sequences, the time has in it what taking all back from the K/V costs.
        """
        caches = [
            KVCache(self._model.kv_spec, HISTORY_TOKENS + _MAX_ROWS) for _ in range(sequences)
        ]
        for number, kv in enumerate(caches):
            self._model.forward([Segment(random_ids(HISTORY_TOKENS, number), kv)])
        lens = [rows // sequences + (number < rows % sequences) for number in range(sequences)]
        segments = [
            Segment(random_ids(length), kv, length) for length, kv in zip(lens, caches, strict=True)
        ]

        def forward() -> None:
            self._model.forward(segments)

        def take_back() -> None:
            for kv in caches:
                kv.truncate(HISTORY_TOKENS)

        def verify() -> None:
            forward()
            take_back()

        if rows > sequences:
            return {"ms": _median_ms(verify, repeats)}
        return {"ms": _median_ms(forward, repeats, take_back)}

    def draw(self, sampling: Mapping[str, Any], repeats: int) -> Figures:
        """`ms` of drawing one token, behind a reply of 64 tokens."""
        kv = KVCache(self._model.kv_spec, HISTORY_TOKENS)
        logits = self._model.forward([Segment(random_ids(HISTORY_TOKENS), kv, HISTORY_TOKENS)])
        sampler = Sampler(Sampling(**sampling, seed=0))
        rows, reply_ids = itertools.cycle(logits), random_ids(64)
        return {"ms": _median_ms(lambda: sampler.next_id(next(rows), reply_ids), repeats)}


def _median_ms(
    work: Callable[[], object], repeats: int, after: Callable[[], None] = lambda: None
) -> float:
    """Of one `work`; what comes `after` each isn't in the time."""
    times = []
    for _ in range(_WARM_UP + repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
        after()
    return 1000 * statistics.median(times[_WARM_UP:])
