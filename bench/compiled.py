"""`torch.compile` over our own forward, driven step by step without the engine around it.

Attention stays outside: it writes through views of K/V that lies in mapped memory, which the
compiler can't follow. So the code between two attentions is compiled, each stretch once.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bench.contender import Figures, UnavailableError
from bench.memory import memory_figures
from bench.prompts import random_ids
from services.engine.attention import Attention, Segment
from services.engine.kv_cache import KVCache, KVSpec
from services.engine.loading import load_model, usable_cores
from services.engine.precision import choose_precision, processor_flags
from services.settings import Settings
from services.weights import WeightsError, find_model

PROMPT_TOKENS, LONG_PROMPT_TOKENS = 40, 256
_COMPILERS = ("g++", "c++", "clang++")

Forward = Callable[[Sequence[Segment]], torch.Tensor]


def make(settings: Settings, work_dir: Path) -> "Compiled":
    """Our forward in the settings' precision, compiled and warm.

    Raises:
        UnavailableError: the model isn't there, or no C++ compiler is.
    """
    if "CXX" not in os.environ and not any(map(shutil.which, _COMPILERS)):
        raise UnavailableError("torch.compile needs a C++ compiler, such as g++")
    threads = settings.threads or usable_cores()
    torch.set_num_threads(threads)
    precision = choose_precision(settings.precision, processor_flags(), settings.kv_precision)
    try:
        model = load_model(find_model(settings).folder, precision, threads)
    except WeightsError as error:
        raise UnavailableError(str(error)) from None
    _leave_out(Attention, "__init__", "run")
    return Compiled(torch.compile(model.forward, dynamic=True), model.kv_spec)


class Compiled:
    """The forward that the engine would run, and K/V for it."""

    def __init__(self, forward: Forward, kv_spec: KVSpec) -> None:
        self._forward = forward
        self._kv_spec = kv_spec
        begun = time.perf_counter()
        # The compiler makes other code for other sizes, at times it chooses itself.
        for sequences in (1, 4, 8):
            self.decode(sequences, 4)
        for prompt_tokens in (PROMPT_TOKENS, LONG_PROMPT_TOKENS):
            self.first_token(prompt_tokens)
        self._warm_up_s = time.perf_counter() - begun

    def warm_up(self) -> Figures:
        """`seconds` that compiling took, which every start would."""
        return {"seconds": self._warm_up_s}

    def first_token(self, prompt_tokens: int) -> Figures:
        begun = time.perf_counter()
        self._prefill(random_ids(prompt_tokens), 1)
        return {"ms": 1000 * (time.perf_counter() - begun)}

    def prefill(self, prompt_tokens: int) -> Figures:
        return {"ms_a_token": self.first_token(prompt_tokens)["ms"] / prompt_tokens}

    def decode(self, sequences: int, new_tokens: int) -> Figures:
        begun_with = [
            self._prefill(random_ids(PROMPT_TOKENS, seed=n), new_tokens) for n in range(sequences)
        ]
        token_ids, caches = [pair[0] for pair in begun_with], [pair[1] for pair in begun_with]
        begun = time.perf_counter()
        for _ in range(new_tokens - 1):
            pairs = zip(token_ids, caches, strict=True)
            rows = self._forward([Segment([token_id], kv, 1) for token_id, kv in pairs])
            token_ids = rows.argmax(dim=-1).tolist()
        step_ms = 1000 * (time.perf_counter() - begun) / (new_tokens - 1)
        return {"ms_a_step": step_ms, "tokens_a_second": 1000 * sequences / step_ms}

    def memory(self) -> Figures:
        return memory_figures()

    def _prefill(self, prompt: Sequence[int], new_tokens: int) -> tuple[int, KVCache]:
        """The prompt's first new token, and its K/V with room for more."""
        kv = KVCache(self._kv_spec, len(prompt) + new_tokens)
        return int(self._forward([Segment(prompt, kv, 1)])[0].argmax()), kv


def _leave_out(owner: type, *methods: str) -> None:
    """Run these as they are; this process measures nothing else."""
    for name in methods:
        setattr(owner, name, torch.compiler.disable(getattr(owner, name)))
