import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoint import CONFIG, tiny_tensors, write_checkpoint, write_json, write_shards

from services.weights import ModelFiles, WeightsError, check_files
from services.weights.model_files import Manifest, write_manifest

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def check(folder: Path) -> object:
    return check_files(ModelFiles(folder, "tiny", is_stand_in=False))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


@pytest.mark.parametrize("is_tied", [True, False])
def test_whole_files_give_their_config(tmp_path: Path, is_tied: bool) -> None:
    folder = write_checkpoint(tmp_path, tie_word_embeddings=is_tied)
    config = check_files(ModelFiles(folder, "tiny", is_stand_in=False))
    assert (config.hidden_size, config.num_layers, config.is_tied) == (16, 2, is_tied)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_float_types_that_we_run_pass(folder: Path, dtype: torch.dtype) -> None:
    save_file({name: t.to(dtype) for name, t in tiny_tensors().items()}, folder / WEIGHTS)
    assert check(folder)


def test_shards_pass(tmp_path: Path) -> None:
    assert check(write_shards(tmp_path))


def test_chat_template_may_be_a_file(folder: Path) -> None:
    write_json(folder / "tokenizer_config.json", {})
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert check(folder)


def test_tensors_that_are_not_needed_are_let_be(folder: Path) -> None:
    extra = {"rotary": torch.zeros(3, dtype=torch.int64)}
    save_file(tiny_tensors() | extra, folder / WEIGHTS)
    assert check(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(WeightsError, match=name):
        check(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b'{"a": ', b"[]", b"\xff\xfe"])
def test_broken_json_is_named(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(WeightsError, match=name):
        check(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"hidden_size": "wide"}, "a value that can't be used"),
        ({"num_attention_heads": 0, "num_key_value_heads": 0}, "a value that can't be used"),
        ({"rope_scaling": "yarn"}, "a value that can't be used"),
        ({"quantization_config": {"bits": 4}}, "its weights are quantised"),
    ],
)
def test_config_that_can_not_run_is_refused(
    folder: Path, changes: dict[str, object], reason: str
) -> None:
    write_json(folder / "config.json", CONFIG | changes)
    with pytest.raises(WeightsError, match=reason):
        check(folder)


def test_no_chat_template_is_refused(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(WeightsError, match="no chat template"):
        check(folder)


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.k_proj.bias", "model.norm.weight"])
def test_missing_tensor_is_named(folder: Path, name: str) -> None:
    tensors = tiny_tensors()
    del tensors[name]
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(WeightsError, match=f"lacks the tensor {name}"):
        check(folder)


def test_untied_model_needs_its_head(folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"tie_word_embeddings": False})
    with pytest.raises(WeightsError, match=r"lm_head\.weight"):
        check(folder)


def test_wrong_shape_tells_both(folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"intermediate_size": 32})
    with pytest.raises(WeightsError, match=r"\[24, 16\], its config wants \[32, 16\]"):
        check(folder)


def test_other_types_are_refused(folder: Path) -> None:
    tensors = tiny_tensors()
    tensors["model.norm.weight"] = torch.ones(16, dtype=torch.int8)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(WeightsError, match=r"model\.norm\.weight is stored as I8"):
        check(folder)


def cut(content: bytes) -> bytes:
    return content[:-1]


def lengthen(content: bytes) -> bytes:
    return content + b"\0"


def empty(content: bytes) -> bytes:
    return b""


def claim_a_huge_header(content: bytes) -> bytes:
    return struct.pack("<Q", 1 << 62) + content[8:]


def break_the_header(content: bytes) -> bytes:
    return content[:8] + b"!" + content[9:]


def drop_a_shape(content: bytes) -> bytes:
    return content.replace(b'"shape"', b'"shame"', 1)


@pytest.mark.parametrize(
    "damage", [cut, lengthen, empty, claim_a_huge_header, break_the_header, drop_a_shape]
)
def test_damaged_weights_are_noticed(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(damage(weights.read_bytes()))
    with pytest.raises(WeightsError, match=rf"{WEIGHTS} is damaged"):
        check(folder)


def test_bytes_that_do_not_fit_the_shape_are_noticed(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    header_len = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + header_len])
    header["model.norm.weight"]["data_offsets"][0] += 2
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + header_len :])
    with pytest.raises(WeightsError, match=r"model\.norm\.weight has more or fewer bytes"):
        check(folder)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match="lacks model-00002-of-00002"):
        check(folder)


@pytest.mark.parametrize(
    ("index", "reason"),
    [({}, "no weight_map"), ({"weight_map": {"a": "../b.safetensors"}}, "outside its folder")],
)
def test_bad_index_is_refused(tmp_path: Path, index: dict[str, object], reason: str) -> None:
    folder = write_shards(tmp_path)
    write_json(folder / INDEX, index)
    with pytest.raises(WeightsError, match=reason):
        check(folder)


def test_pickles_are_refused_by_name(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"only pytorch_model\.bin.*can run code"):
        check(folder)


def test_damage_of_fetched_files_names_the_command(folder: Path) -> None:
    write_manifest(folder, Manifest("tiny", "hub", "a" * 40))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(
        WeightsError, match=r"lacks tokenizer\.json\. `flask --app app fetch-model`"
    ):
        check(folder)


@pytest.mark.parametrize(
    "tokenizer",
    [
        {"model": {"vocab": {"a": 0, "b": CONFIG["vocab_size"]}}},
        {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": CONFIG["vocab_size"]}]},
    ],
)
def test_token_id_beyond_the_vocabulary_is_refused(
    folder: Path, tokenizer: dict[str, object]
) -> None:
    write_json(folder / "tokenizer.json", tokenizer)
    with pytest.raises(WeightsError, match=f"id {CONFIG['vocab_size']}"):
        check(folder)
