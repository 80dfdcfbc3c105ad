"""OpenVINO GenAI on the same Q8_0 file, through its pipeline for many sequences."""

import itertools
import time
from pathlib import Path
from typing import Any

from bench.contender import Figures, UnavailableError
from bench.gguf import q8_0_file
from bench.memory import memory_figures
from bench.prompts import random_ids
from services.engine.loading import usable_cores
from services.settings import Settings

try:
    import numpy as np
    import openvino
    import openvino_genai
except ImportError:
    raise UnavailableError(
        "openvino-genai isn't installed: pip install -r requirements-bench.txt"
    ) from None

PROMPT_TOKENS = 40
KV_GB = 1


def make(settings: Settings, work_dir: Path) -> "OpenVino":
    """The stand-in as Q8_0, compiled for this processor and warm; as many threads as ours.

    Raises:
        UnavailableError: see `q8_0_file`.
    """
    return OpenVino(q8_0_file(settings, work_dir), settings.threads or usable_cores())


class OpenVino:
    """Its prefix cache is off: every prompt is computed."""

    def __init__(self, gguf: Path, threads: int) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.cache_size = KV_GB
        options = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(gguf), scheduler, "CPU", options
        )
        self._numbers = itertools.count()
        for sequences in (1, 8):  # kernels for each size are made at its first use
            self.decode(sequences, 4)

    def first_token(self, prompt_tokens: int) -> Figures:
        begun = time.perf_counter()
        handle = self._request(random_ids(prompt_tokens), 1)
        while not handle.can_read():  # a request whose handle is let go of is dropped
            self._pipeline.step()
        ms = 1000 * (time.perf_counter() - begun)
        self._run_out()
        return {"ms": ms}

    def prefill(self, prompt_tokens: int) -> Figures:
        return {"ms_a_token": self.first_token(prompt_tokens)["ms"] / prompt_tokens}

    def decode(self, sequences: int, new_tokens: int) -> Figures:
        # One token more for each step of the prefill, which may take them one after the other.
        handles = [
            self._request(random_ids(PROMPT_TOKENS, seed=n), new_tokens + sequences)
            for n in range(sequences)
        ]
        waiting = set(range(sequences))
        while waiting:
            self._pipeline.step()
            waiting -= {n for n in waiting if handles[n].can_read()}
        begun = time.perf_counter()
        for _ in range(new_tokens - 1):
            self._pipeline.step()
        step_ms = 1000 * (time.perf_counter() - begun) / (new_tokens - 1)
        for handle in handles:
            handle.cancel()
        self._run_out()
        return {"ms_a_step": step_ms, "tokens_a_second": 1000 * sequences / step_ms}

    def memory(self) -> Figures:
        return memory_figures()

    def _request(self, prompt: list[int], new_tokens: int) -> Any:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
        return self._pipeline.add_request(next(self._numbers), ids, config)

    def _run_out(self) -> None:
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
