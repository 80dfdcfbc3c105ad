import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.engine.attention import Segment
from services.engine.checkpoint import RowsError
from services.engine.kv_cache import KVCache
from services.engine.loading import load_model, usable_cores
from services.engine.model import Qwen2Model
from services.engine.precision import Precision
from tests.tiny import write_checkpoint


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("350000 100000\n", 3),
        ("50000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("nonsense", 8),
        (None, 8),
    ],
)
def test_cores_within_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    cpu_max = tmp_path / "cpu.max"
    if quota is not None:
        cpu_max.write_text(quota)
    assert usable_cores(cpu_max) == cores


def last_logits(model: Qwen2Model) -> torch.Tensor:
    return model.forward([Segment([5, 6, 7], KVCache(model.kv_spec, 3), 1)])


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.down_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(KeyError, match=r"model\.layers\.1\.mlp\.down_proj\.weight"):
        load_model(tmp_path, Precision("fp32"))


def test_no_weights_is_an_error(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path, Precision("fp32"))


def test_shards_give_the_same_model(tmp_path: Path) -> None:
    stock = write_checkpoint(tmp_path / "single")
    write_checkpoint(tmp_path / "shards")
    (tmp_path / "shards" / "model.safetensors").unlink()
    stock.save_pretrained(tmp_path / "shards", max_shard_size=100_000)
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text("utf-8"))
    assert len(set(index["weight_map"].values())) > 1
    single, shards = (
        load_model(tmp_path / name, Precision("fp32")) for name in ("single", "shards")
    )
    assert torch.equal(last_logits(single), last_logits(shards))


def test_other_files_in_the_folder_are_not_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    wanted = last_logits(load_model(tmp_path, Precision("fp32")))
    others = {name: t + 1 for name, t in load_file(tmp_path / "model.safetensors").items()}
    save_file(others, tmp_path / "zz_of_another_model.safetensors")
    assert torch.equal(last_logits(load_model(tmp_path, Precision("fp32"))), wanted)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_half_precision_files_run_in_fp32(tmp_path: Path, stored: torch.dtype) -> None:
    write_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    halves = {name: tensor.to(stored) for name, tensor in load_file(path).items()}
    save_file({name: tensor.float() for name, tensor in halves.items()}, path)
    wanted = last_logits(load_model(tmp_path, Precision("fp32")))
    save_file(halves, path)
    assert torch.equal(last_logits(load_model(tmp_path, Precision("fp32"))), wanted)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    os.utime(path, ns=(0, 0))  # another time than before, for sure


def test_overwriting_the_file_leaves_a_model_in_memory_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tie_word_embeddings=True)
    model = load_model(tmp_path, Precision("fp32"))
    wanted = last_logits(model)
    overwrite(tmp_path / "model.safetensors")
    assert torch.equal(last_logits(model), wanted)


@pytest.mark.parametrize(("precision", "is_tied"), [("fp32", False), ("int8", True)])
def test_overwriting_the_file_of_the_embedding_is_an_error(
    tmp_path: Path, precision: str, is_tied: bool
) -> None:
    """Other rows would come out of it, and nobody would know."""
    write_checkpoint(tmp_path, tie_word_embeddings=is_tied)
    model = load_model(tmp_path, Precision(precision))
    overwrite(tmp_path / "model.safetensors")
    with pytest.raises(RowsError, match="changed"):
        last_logits(model)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_any_number_of_threads_loads_the_same(tmp_path: Path, precision: str) -> None:
    write_checkpoint(tmp_path)
    one, three = (load_model(tmp_path, Precision(precision), number) for number in (1, 3))
    assert torch.equal(last_logits(one), last_logits(three))
