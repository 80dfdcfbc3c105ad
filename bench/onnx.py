"""ONNX Runtime GenAI in int8: its builder exports the service's own weights, offline."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.contender import Figures, UnavailableError
from bench.memory import memory_figures
from bench.prompts import random_ids
from services.engine.loading import usable_cores
from services.settings import Settings
from services.weights import WeightsError, find_model

try:
    import numpy as np
    import onnxruntime_genai
except ImportError:
    raise UnavailableError(
        "onnxruntime-genai isn't installed: pip install -r requirements-bench.txt"
    ) from None

PROMPT_TOKENS = 40
MAX_LENGTH = 1024
BUILD_S = 600
ACTIVATIONS_IN_INT8 = "int4_accuracy_level=4"  # else the products run in fp32


def make(settings: Settings, work_dir: Path) -> "OnnxGenAi":
    """The model in int8, loaded and warm; as many threads as ours. Exported once, in half a
    minute or so.

    Raises:
        UnavailableError: the model isn't there, or the builder can't export it.
    """
    try:
        files = find_model(settings)
    except WeightsError as error:
        raise UnavailableError(str(error)) from None
    made = work_dir / f"onnx-int8-{files.folder.name}"
    if not made.is_dir():
        _build(files.folder, made)
    return OnnxGenAi(made, settings.threads or usable_cores())


class OnnxGenAi:
    """Prompts of a batch are equally long, so that nothing is padded."""

    def __init__(self, folder: Path, threads: int) -> None:
        config = onnxruntime_genai.Config(str(folder))
        session = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": session}}))
        self._model = onnxruntime_genai.Model(config)
        self.decode(1, 4)

    def first_token(self, prompt_tokens: int) -> Figures:
        begun = time.perf_counter()
        self._begin([random_ids(prompt_tokens)])
        return {"ms": 1000 * (time.perf_counter() - begun)}

    def prefill(self, prompt_tokens: int) -> Figures:
        return {"ms_a_token": self.first_token(prompt_tokens)["ms"] / prompt_tokens}

    def decode(self, sequences: int, new_tokens: int) -> Figures:
        generator = self._begin([random_ids(PROMPT_TOKENS, seed=n) for n in range(sequences)])
        begun = time.perf_counter()
        for _ in range(new_tokens - 1):
            generator.generate_next_token()
        step_ms = 1000 * (time.perf_counter() - begun) / (new_tokens - 1)
        return {"ms_a_step": step_ms, "tokens_a_second": 1000 * sequences / step_ms}

    def memory(self) -> Figures:
        return memory_figures()

    def _begin(self, prompts: Sequence[Sequence[int]]) -> Any:
        """A generator that has given each prompt's first token."""
        params = onnxruntime_genai.GeneratorParams(self._model)
        params.set_search_options(
            batch_size=len(prompts),
            do_sample=False,
            min_length=MAX_LENGTH,  # no end before what was asked for
            max_length=MAX_LENGTH,
        )
        generator = onnxruntime_genai.Generator(self._model, params)
        generator.append_tokens(np.array(prompts, dtype=np.int32))
        generator.generate_next_token()
        return generator


def _build(source: Path, made: Path) -> None:
    half = made.with_suffix(".part")
    shutil.rmtree(half, ignore_errors=True)
    cache = half / "cache"
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", source.name]
    command += ["-i", str(source), "-o", str(half), "-p", "int8", "-e", "cpu", "-c", str(cache)]
    command += ["--extra_options", ACTIVATIONS_IN_INT8]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"its model builder took over {BUILD_S} s") from None
    if done.returncode:
        last = (done.stderr.strip() or "no word").splitlines()[-1]
        raise UnavailableError(f"its model builder failed: {last}")
    shutil.rmtree(cache, ignore_errors=True)
    half.rename(made)
