"""One tiny random checkpoint in transformers' model and in ours, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import Qwen2ForCausalLM

from services.engine.attention import Segment
from services.engine.kv_cache import KVCache
from services.engine.loading import load_model
from services.engine.model import Qwen2Model
from services.engine.precision import Precision
from tests.tiny import write_checkpoint

TOLERANCE = 1e-4
MAX_TOKENS = 320
THETA = 50_000.0  # far from every default, so that a config misread shows
SHAPES = {
    "full": {"num_attention_heads": 4, "num_key_value_heads": 4},
    "grouped": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "16/2": {
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "hidden_size": 128,
        "initializer_range": 0.14,  # scores of twice the width stay as sharp, not sharper
    },
}


@dataclass
class Pair:
    """One checkpoint twice: in the stock model and in ours."""

    folder: Path
    stock: Qwen2ForCausalLM
    ours: Qwen2Model

    def random_ids(self, length: int, seed: int = 1) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        ids: list[int] = torch.randint(
            self.stock.config.vocab_size, (length,), generator=generator
        ).tolist()
        return ids

    def cache(self, prefix: KVCache | None = None) -> KVCache:
        return KVCache(self.ours.kv_spec, MAX_TOKENS, prefix)

    def stock_logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.stock(torch.tensor([token_ids])).logits[0]

    def run(self, token_ids: Sequence[int], kv: KVCache) -> torch.Tensor:
        """Our logits of all these tokens behind `kv`."""
        return self.ours.forward([Segment(token_ids, kv, len(token_ids))])

    def prefilled(self, token_ids: Sequence[int]) -> KVCache:
        kv = self.cache()
        self.run(token_ids, kv)
        return kv


def make_pair(folder: Path, shape: str, *, is_tied: bool) -> Pair:
    rope = {"rope_type": "default", "rope_theta": THETA}
    stock = write_checkpoint(
        folder, **SHAPES[shape], tie_word_embeddings=is_tied, rope_parameters=rope
    )
    return Pair(folder, stock, load_model(folder, Precision("fp32")))


def assert_close(ours: torch.Tensor, stock: torch.Tensor) -> None:
    torch.testing.assert_close(ours, stock, rtol=0, atol=TOLERANCE)
