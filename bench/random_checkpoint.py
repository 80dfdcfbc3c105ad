"""A checkpoint of the Qwen1.5-0.5B shape with random weights: speed depends on shape alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from services.engine.config import ModelConfig
from services.weights.checks import expected_tensors

QWEN15_05B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 32_768,
    "rope_theta": 1_000_000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "eos_token_id": 151_645,
    "bos_token_id": 151_643,
}
STD = 0.02  # as these models begin their training
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",  # within the config in older checkpoints
    "generation_config.json",
)


def write_random_checkpoint(folder: Path, tokenizer_from: Path, config: dict[str, Any]) -> Path:
    """Weights in bf16, and the tokenizer of another model of the family. One that is there
    already, by the same config, is left as it is."""
    text = json.dumps(config, indent=2) + "\n"
    mark = folder / _CONFIG
    if mark.is_file() and mark.read_text("utf-8") == text:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER_FILES:
        if (tokenizer_from / name).is_file():
            shutil.copyfile(tokenizer_from / name, folder / name)
    save_file(_random_tensors(ModelConfig.from_dict(config)), folder / _WEIGHTS, {"format": "pt"})
    mark.write_text(text, "utf-8")  # last: it also means "whole"
    return folder


def _random_tensors(config: ModelConfig) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in expected_tensors(config):
        if name.endswith("norm.weight"):
            tensors[name] = torch.ones(shape, dtype=torch.bfloat16)
        else:
            random = torch.empty(shape, dtype=torch.bfloat16)
            tensors[name] = random.normal_(0.0, STD, generator=generator)
    return tensors
