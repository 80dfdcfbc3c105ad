"""A Qwen2 checkpoint of a few kilobytes, with random weights."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from services.engine.config import ModelConfig
from services.weights.checks import expected_tensors

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


def tiny_tensors(**changes: Any) -> dict[str, torch.Tensor]:
    config = ModelConfig.from_dict(CONFIG | changes)
    torch.manual_seed(0)
    return {
        name: torch.randn(shape, dtype=torch.bfloat16) for name, shape in expected_tensors(config)
    }


def write_checkpoint(folder: Path, **changes: Any) -> Path:
    """All that `check_files` asks for, in one safetensors file; `changes` go to the config."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG | changes)
    write_json(folder / "tokenizer.json", {"version": "1.0", "model": {"type": "BPE"}})
    write_json(folder / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    save_file(tiny_tensors(**changes), folder / "model.safetensors")
    return folder


def write_shards(folder: Path) -> Path:
    """The same with the weights in two files and an index."""
    write_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    tensors = tiny_tensors()
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[:10], names[10:]), start=1):
        shard = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / shard)
        weight_map |= dict.fromkeys(part, shard)
    write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})
    return folder


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
