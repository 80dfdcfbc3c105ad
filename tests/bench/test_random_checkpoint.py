"""A checkpoint with random weights that the service's own checks take."""

from pathlib import Path

from safetensors.torch import load_file

from bench.random_checkpoint import QWEN15_05B, write_random_checkpoint
from services.engine.config import ModelConfig
from services.weights import ModelFiles, check_files
from tests.weights.tiny_checkpoint import CONFIG, write_checkpoint


def test_checkpoint_passes_the_checks(tmp_path: Path) -> None:
    tokenizer = write_checkpoint(tmp_path / "other")
    folder = write_random_checkpoint(tmp_path / "random", tokenizer, CONFIG)
    config = check_files(ModelFiles(folder, "random", is_stand_in=False))
    assert config == ModelConfig.from_dict(CONFIG)


def test_weights_are_random_and_norms_are_one(tmp_path: Path) -> None:
    tokenizer = write_checkpoint(tmp_path / "other")
    folder = write_random_checkpoint(tmp_path / "random", tokenizer, CONFIG)
    tensors = load_file(folder / "model.safetensors")
    assert 0.01 < float(tensors["model.embed_tokens.weight"].float().std()) < 0.03
    assert tensors["model.norm.weight"].eq(1).all()


def test_what_is_there_is_kept_and_another_shape_is_written_anew(tmp_path: Path) -> None:
    tokenizer = write_checkpoint(tmp_path / "other")
    weights = write_random_checkpoint(tmp_path / "random", tokenizer, CONFIG) / "model.safetensors"
    first = weights.stat().st_ino, weights.stat().st_mtime_ns
    write_random_checkpoint(tmp_path / "random", tokenizer, CONFIG)
    assert (weights.stat().st_ino, weights.stat().st_mtime_ns) == first
    write_random_checkpoint(tmp_path / "random", tokenizer, CONFIG | {"num_hidden_layers": 1})
    assert not any(".layers.1." in name for name in load_file(weights))


def test_shape_has_full_kv_heads_and_a_tied_head() -> None:
    config = ModelConfig.from_dict(QWEN15_05B)
    assert config.num_heads == config.num_kv_heads == 16
    assert config.is_tied
