"""llama.cpp through the low-level API of llama-cpp-python, on the same weights as Q8_0."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contender import Figures, UnavailableError
from bench.gguf import q8_0_file
from bench.memory import memory_figures
from bench.prompts import random_ids
from services.engine.loading import usable_cores
from services.settings import Settings

try:
    import llama_cpp
    import numpy as np
except ImportError:
    raise UnavailableError(
        "llama-cpp-python isn't installed: pip install -r requirements-bench.txt"
    ) from None

PROMPT_TOKENS = 40
CONTEXT_TOKENS = 1024  # of each sequence


@dataclass(frozen=True, slots=True)
class Row:
    """A token of a batch, and whether its logits are wanted."""

    token_id: int
    position: int
    sequence: int
    is_wanted: bool = True


def make(settings: Settings, work_dir: Path) -> "LlamaCpp":
    """The stand-in as Q8_0, loaded and warm; as many threads as our engine has.

    Raises:
        UnavailableError: see `q8_0_file`; or llama.cpp can't load the file.
    """
    return LlamaCpp(q8_0_file(settings, work_dir), settings.threads or usable_cores())


class LlamaCpp:
    """One model, and a context for each number of sequences that was asked for."""

    def __init__(self, gguf: Path, threads: int) -> None:
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(gguf).encode(), params)
        if not self._model:
            raise UnavailableError("llama.cpp can't load the Q8_0 file")
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._num_logits = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._threads = threads
        self._contexts: dict[int, Any] = {}
        self.decode(1, 4)

    def first_token(self, prompt_tokens: int) -> Figures:
        context, prompt = self._context(1), random_ids(prompt_tokens)
        begun = time.perf_counter()
        self._prefill(context, prompt, 0)
        return {"ms": 1000 * (time.perf_counter() - begun)}

    def prefill(self, prompt_tokens: int) -> Figures:
        return {"ms_a_token": self.first_token(prompt_tokens)["ms"] / prompt_tokens}

    def decode(self, sequences: int, new_tokens: int) -> Figures:
        context = self._context(sequences)
        prompts = [random_ids(PROMPT_TOKENS, seed=n) for n in range(sequences)]
        token_ids = [self._prefill(context, prompt, n) for n, prompt in enumerate(prompts)]
        begun = time.perf_counter()
        for position in range(PROMPT_TOKENS, PROMPT_TOKENS + new_tokens - 1):
            rows = [Row(token_id, position, n) for n, token_id in enumerate(token_ids)]
            token_ids = self._step(context, rows)
        step_ms = 1000 * (time.perf_counter() - begun) / (new_tokens - 1)
        return {"ms_a_step": step_ms, "tokens_a_second": 1000 * sequences / step_ms}

    def memory(self) -> Figures:
        return memory_figures()

    def _context(self, sequences: int) -> Any:
        """Empty, for so many sequences; the first of its kind is made and warmed up."""
        if sequences not in self._contexts:
            params = llama_cpp.llama_context_default_params()
            params.n_ctx = CONTEXT_TOKENS * sequences
            params.n_seq_max = sequences
            params.n_threads = params.n_threads_batch = self._threads
            context = llama_cpp.llama_init_from_model(self._model, params)
            if not context:
                raise UnavailableError(f"llama.cpp has no room for {sequences} sequences")
            self._contexts[sequences] = context
            for number in range(sequences):
                self._prefill(context, random_ids(8), number)
        context = self._contexts[sequences]
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        return context

    def _prefill(self, context: Any, prompt: Sequence[int], sequence: int) -> int:
        """The prompt's first new token."""
        last = len(prompt) - 1
        rows = [Row(token_id, at, sequence, at == last) for at, token_id in enumerate(prompt)]
        return self._step(context, rows)[0]

    def _step(self, context: Any, rows: Sequence[Row]) -> list[int]:
        """The likeliest token after each row whose logits are wanted."""
        batch = llama_cpp.llama_batch_init(len(rows), 0, 1)
        try:
            batch.n_tokens = len(rows)
            for at, row in enumerate(rows):
                batch.token[at] = row.token_id
                batch.pos[at] = row.position
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = row.sequence
                batch.logits[at] = row.is_wanted
            status = llama_cpp.llama_decode(context, batch)
        finally:
            llama_cpp.llama_batch_free(batch)
        if status:
            raise UnavailableError(f"llama_decode gave {status}")
        return [self._likeliest(context, at) for at, row in enumerate(rows) if row.is_wanted]

    def _likeliest(self, context: Any, at: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(context, at)
        return int(np.ctypeslib.as_array(logits, (self._num_logits,)).argmax())
