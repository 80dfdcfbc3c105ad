"""Tensors read whole, and rows read from the file while the model runs."""

import gc
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from services.engine.checkpoint import Checkpoint, RowsError
from services.engine.loading import load_model
from services.engine.precision import Precision
from tests.tiny import write_checkpoint

NAME = "model.embed_tokens.weight"


def table(dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(50, 24, generator=torch.Generator().manual_seed(0)).to(dtype)


def checkpoint_of(folder: Path, tensor: torch.Tensor) -> Checkpoint:
    save_file({"a.first": torch.ones(3), NAME: tensor}, folder / "model.safetensors")
    return Checkpoint(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_are_the_tensors(tmp_path: Path, dtype: torch.dtype) -> None:
    whole = table(dtype)
    rows = checkpoint_of(tmp_path, whole).rows(NAME)
    ids = torch.tensor([49, 0, 7, 7])
    assert torch.equal(rows(ids), whole[ids].float())
    assert torch.equal(rows[10:20], whole[10:20])
    assert torch.equal(rows[45:99], whole[45:])
    assert (len(rows), rows.shape) == (50, whole.shape)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, table())
    with pytest.raises(KeyError, match="none"):
        checkpoint.rows("none")


def test_file_cut_off_meanwhile_is_named(tmp_path: Path) -> None:
    rows = checkpoint_of(tmp_path, table()).rows(NAME)
    os.truncate(tmp_path / "model.safetensors", 200)
    with pytest.raises(RowsError, match="embed_tokens"):
        rows(torch.tensor([49]))


def test_file_put_in_its_place_changes_nothing(tmp_path: Path) -> None:
    whole = table()
    rows = checkpoint_of(tmp_path, whole).rows(NAME)
    (tmp_path / "new").mkdir()
    checkpoint_of(tmp_path / "new", whole + 1)
    (tmp_path / "new" / "model.safetensors").replace(tmp_path / "model.safetensors")
    assert torch.equal(rows(torch.tensor([3])), whole[3:4].float())


def num_open(path: Path) -> int:
    """How many of this process's descriptors are of the file."""
    stat = path.stat()
    found = 0
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the listing's own descriptor is closed by now
            found += os.path.samestat(os.fstat(int(name)), stat)
    return found


def test_file_is_closed_when_the_table_goes(tmp_path: Path) -> None:
    rows = checkpoint_of(tmp_path, table()).rows(NAME)
    assert num_open(tmp_path / "model.safetensors") == 1
    del rows
    gc.collect()
    assert num_open(tmp_path / "model.safetensors") == 0


def test_int8_embedding_is_the_checkpoints(tmp_path: Path) -> None:
    stock = write_checkpoint(tmp_path)
    model = load_model(tmp_path, Precision("int8"))
    ids = torch.tensor([5, 0, 5])
    assert torch.equal(model._embedding(ids), stock.model.embed_tokens.weight.detach()[ids])


def test_shards_hold_rows_too(tmp_path: Path) -> None:
    stock = write_checkpoint(tmp_path / "whole")
    stock.save_pretrained(tmp_path / "shards", max_shard_size="50KB")
    shutil.copy(tmp_path / "whole" / "config.json", tmp_path / "shards")
    assert not (tmp_path / "shards" / "model.safetensors").exists()
    rows = Checkpoint(tmp_path / "shards").rows(NAME)
    assert torch.equal(rows[:], stock.model.embed_tokens.weight.detach())
