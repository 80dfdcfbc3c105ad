"""Are a model's files whole, and can our forward run them? Plain Python: this runs before torch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.engine.config import ModelConfig, UnsupportedModelError
from services.weights.model_files import FETCH, ModelFiles, WeightsError, read_manifest
from services.weights.safetensors_header import TensorHeader, read_header

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

Shape = tuple[int, ...]


def check_files(files: ModelFiles) -> ModelConfig:
    """Look at everything that can be looked at without loading the weights.

    Raises:
        WeightsError: a file is missing, damaged, or of a model that the forward can't run.
    """
    try:
        return _check_folder(files.folder)
    except WeightsError as error:
        if read_manifest(files.folder) is None:
            raise  # somebody else's folder: we can't fetch it anew
        raise WeightsError(f"{error} `{FETCH}` fetches it anew.") from None


def _check_folder(folder: Path) -> ModelConfig:
    config = read_config(folder)
    _check_token_ids(folder, config)
    _check_chat_template(folder)
    tensors = _read_headers(folder)
    for name, shape in expected_tensors(config):
        _check_tensor(folder, name, tensors.get(name), shape)
    return config


def read_config(folder: Path) -> ModelConfig:
    """The folder's `config.json`.

    Raises:
        WeightsError: it is missing, unreadable, or of a model that the forward can't run.
    """
    raw = _read_json(folder / CONFIG)
    if "quantization_config" in raw:
        raise WeightsError(f"{folder} can't be run: its weights are quantised (see {CONFIG}).")
    try:
        return ModelConfig.from_dict(raw)
    except UnsupportedModelError as error:
        raise WeightsError(f"{folder} can't be run: {error}.") from None
    except (ValueError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise WeightsError(f"{folder / CONFIG} has a value that can't be used: {error}.") from None


def expected_tensors(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Name and shape (rows first) of every tensor that a Qwen2 model of this config has."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer: dict[str, Shape] = {
        "self_attn.q_proj.weight": (q_rows, hidden),
        "self_attn.q_proj.bias": (q_rows,),
        "self_attn.k_proj.weight": (kv_rows, hidden),
        "self_attn.k_proj.bias": (kv_rows,),
        "self_attn.v_proj.weight": (kv_rows, hidden),
        "self_attn.v_proj.bias": (kv_rows,),
        "self_attn.o_proj.weight": (hidden, q_rows),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    yield "model.norm.weight", (hidden,)
    if not config.is_tied:
        yield "lm_head.weight", (config.vocab_size, hidden)
    for index in range(config.num_layers):
        for name, shape in layer.items():
            yield f"model.layers.{index}.{name}", shape


def _check_tensor(folder: Path, name: str, found: TensorHeader | None, shape: Shape) -> None:
    if found is None:
        raise WeightsError(f"{folder} lacks the tensor {name}.")
    if found.shape != shape:
        raise WeightsError(
            f"{folder}: {name} has shape {list(found.shape)}, its config wants {list(shape)}."
        )
    if not found.is_runnable:
        raise WeightsError(
            f"{folder}: {name} is stored as {found.dtype}; only BF16, F16 and F32 can be run."
        )
    if not found.fits_its_bytes:
        raise WeightsError(f"{folder}: {name} has more or fewer bytes than its shape needs.")


def _check_token_ids(folder: Path, config: ModelConfig) -> None:
    """An id beyond the embedding would only show when a text has that token."""
    tokenizer = _read_json(folder / TOKENIZER)
    added = [token.get("id", 0) for token in tokenizer.get("added_tokens", [])]
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    largest = max([*added, *vocabulary.values()], default=0)
    if largest >= config.vocab_size:
        raise WeightsError(
            f"{folder}: the tokenizer has an id {largest}, the model's vocabulary ends before "
            f"{config.vocab_size}."
        )


def _check_chat_template(folder: Path) -> None:
    template = folder / CHAT_TEMPLATE
    if template.is_file() and template.stat().st_size:
        return
    config = folder / TOKENIZER_CONFIG
    if not (config.is_file() and _read_json(config).get("chat_template")):
        raise WeightsError(
            f"{folder} has no chat template, neither as {CHAT_TEMPLATE} nor in {TOKENIZER_CONFIG}."
        )


def _read_headers(folder: Path) -> dict[str, TensorHeader]:
    """All tensors of the folder, from the single file or from the index's shards."""
    if (folder / SINGLE).is_file():
        return read_header(folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise WeightsError(_no_safetensors(folder))
    tensors: dict[str, TensorHeader] = {}
    for shard in _shards(folder / INDEX):
        if not (folder / shard).is_file():
            raise WeightsError(f"{folder} lacks {shard}, which its {INDEX} names.")
        tensors |= read_header(folder / shard)
    return tensors


def _shards(index: Path) -> list[str]:
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise WeightsError(f"{index} is damaged: it has no weight_map.")
    shards = sorted({str(shard) for shard in weight_map.values()})
    if outside := [shard for shard in shards if Path(shard).name != shard]:
        raise WeightsError(f"{index} names a file outside its folder: {outside[0]}.")
    return shards


def _no_safetensors(folder: Path) -> str:
    pickles = sorted(path.name for path in folder.glob("*") if path.suffix in {".bin", ".pt"})
    if not pickles:
        return f"{folder} has no {SINGLE}."
    return (
        f"{folder} has no {SINGLE}, only {', '.join(pickles)}. Such files can run code when they "
        "are read, so they are not. Convert the model to safetensors first."
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(f"{path.parent} lacks {path.name}.") from None
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} can't be read: {error}.") from None
    if not isinstance(raw, dict):
        raise WeightsError(f"{path} is damaged: it holds no JSON object.")
    return raw
