import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from tiny_gguf import CHAT_TEMPLATE, embedding, write_gguf

from services.settings import Settings
from services.weights import ModelFiles, WeightsError, check_files, fetch_model, find_model


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def asked(settings: Settings, gguf: Path) -> Settings:
    return replace(settings, model=str(gguf))


def test_converted_once_and_found(
    asked: Settings, model_dir: Path, gguf: Path, said: list[str]
) -> None:
    files = fetch_model(asked, say=said.append)
    assert files == ModelFiles(model_dir / "gguf--tiny", "tiny", is_stand_in=False)
    assert find_model(asked) == files
    assert os.listdir(model_dir) == ["gguf--tiny"]
    before = gguf.read_bytes()
    fetch_model(asked, say=said.append)
    assert "already" in said[-1]
    assert gguf.read_bytes() == before

    config = check_files(files)
    assert (config.num_layers, config.num_kv_heads, config.is_tied) == (2, 2, True)
    assert (config.rope_theta, config.max_positions) == (1_000_000.0, 128)
    assert (files.folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    weights = load_file(files.folder / "model.safetensors")["model.embed_tokens.weight"]
    assert str(weights.dtype) == "torch.bfloat16"
    np.testing.assert_allclose(weights.float().numpy(), embedding(), atol=0.5)
    # The service may run as another user than the one who fetched.
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files.folder.iterdir()}
    assert modes == {stat.S_IMODE((files.folder / "config.json").stat().st_mode)}
    assert "_model_name_or_path" not in (files.folder / "config.json").read_text()


def test_changed_file_is_converted_anew(asked: Settings, gguf: Path, said: list[str]) -> None:
    fetch_model(asked, say=said.append)
    os.utime(gguf, ns=(0, 0))
    fetch_model(asked, say=said.append)
    assert [line for line in said if line.startswith("Converting")] == [said[0], said[2]]
    assert find_model(asked).name == "tiny"


def test_other_architecture_is_refused_before_conversion(
    settings: Settings, tmp_path: Path, model_dir: Path
) -> None:
    path = write_gguf(tmp_path / "other.gguf", architecture="llama")
    with pytest.raises(WeightsError, match="its architecture is 'llama'"):
        fetch_model(replace(settings, model=str(path)), say=print)
    assert not model_dir.exists()


@pytest.mark.parametrize("keep", [0, 3, 100, -1000])
def test_damaged_file_is_named(asked: Settings, gguf: Path, model_dir: Path, keep: int) -> None:
    gguf.write_bytes(gguf.read_bytes()[:keep])
    with pytest.raises(WeightsError, match=r"tiny\.gguf is no GGUF file, or is damaged"):
        fetch_model(asked, say=print)
    assert not model_dir.exists()


def test_interrupted_conversion_leaves_nothing(
    asked: Settings, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("services.weights.gguf_conversion._unpack", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch_model(asked, say=print)
    assert list(model_dir.rglob("half")) == []
    monkeypatch.undo()
    assert fetch_model(asked, say=print).name == "tiny"
