"""transformers' `generate`, what the source articles run; weights in fp32 or bf16."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2ForCausalLM

from bench.contender import Figures, UnavailableError
from bench.memory import memory_figures
from bench.prompts import random_ids
from services.engine.loading import usable_cores
from services.settings import Settings
from services.weights import WeightsError, find_model

PROMPT_TOKENS = 40
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def make(settings: Settings, work_dir: Path) -> "TransformersGenerate":
    """The model in the precision that the settings name, fp32 or bf16, loaded and warm.

    Raises:
        UnavailableError: the model isn't there.
    """
    torch.set_num_threads(settings.threads or usable_cores())
    try:
        folder = find_model(settings).folder
    except WeightsError as error:
        raise UnavailableError(str(error)) from None
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=_DTYPES[settings.precision])
    return TransformersGenerate(model)


class TransformersGenerate:
    """Prompts of a batch are equally long, so that nothing is padded."""

    def __init__(self, model: Qwen2ForCausalLM) -> None:
        self._model = model
        self._generate([random_ids(8)], 2)

    def first_token(self, prompt_tokens: int) -> Figures:
        return {"ms": 1000 * self._generate([random_ids(prompt_tokens)], 1)[0]}

    def prefill(self, prompt_tokens: int) -> Figures:
        return {"ms_a_token": self.first_token(prompt_tokens)["ms"] / prompt_tokens}

    def decode(self, sequences: int, new_tokens: int) -> Figures:
        times = self._generate(
            [random_ids(PROMPT_TOKENS, seed=n) for n in range(sequences)], new_tokens
        )
        step_ms = 1000 * (times[-1] - times[0]) / (len(times) - 1)
        return {"ms_a_step": step_ms, "tokens_a_second": 1000 * sequences / step_ms}

    def reply(self, prompt_tokens: int, new_tokens: int) -> Figures:
        """`ms` from a random prompt to the last of so many new tokens; `first_token_ms`."""
        times = self._generate([random_ids(prompt_tokens)], new_tokens)
        return {"ms": 1000 * times[-1], "first_token_ms": 1000 * times[0]}

    def memory(self) -> Figures:
        return memory_figures()

    def _generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[float]:
        """When each step's tokens came, in seconds; exactly so many steps."""
        ids = torch.tensor(prompts)
        clock = _Clock()
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            stopping_criteria=[clock],
        )
        return clock.times


class _Clock:
    """`generate` asks it after each step whether to stop."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._begun = time.perf_counter()

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor | None, **_: object) -> torch.Tensor:
        self.times.append(time.perf_counter() - self._begun)
        return torch.zeros(len(ids), dtype=torch.bool)
