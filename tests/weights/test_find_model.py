import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_checkpoint import write_checkpoint

from services.settings import DEFAULT_MODEL, Settings
from services.weights import ModelFiles, WeightsError, find_model
from services.weights.find import gguf_origin
from services.weights.model_files import Manifest, write_manifest


def make(folder: Path, manifest: Manifest) -> Path:
    folder.mkdir(parents=True)
    write_manifest(folder, manifest)
    return folder


def make_default(model_dir: Path) -> Path:
    return make(model_dir / "Qwen--Qwen1.5-0.5B-Chat", Manifest(DEFAULT_MODEL, "hub", "a" * 40))


def make_stand_in(model_dir: Path) -> Path:
    return make(model_dir / "stand-in", Manifest("Other (stand-in)", "stand-in", "b" * 64))


def test_nothing_there_names_the_commands(settings: Settings) -> None:
    with pytest.raises(WeightsError, match=r"`flask --app app fetch-model` or `make run`"):
        find_model(settings)


def test_unset_takes_the_default(settings: Settings, model_dir: Path) -> None:
    folder = make_default(model_dir)
    assert find_model(settings) == ModelFiles(folder, DEFAULT_MODEL, is_stand_in=False)


def test_unset_takes_the_stand_in_where_the_default_is_missing(
    settings: Settings, model_dir: Path
) -> None:
    folder = make_stand_in(model_dir)
    assert find_model(settings) == ModelFiles(folder, "Other (stand-in)", is_stand_in=True)


def test_unset_prefers_the_default_to_the_stand_in(settings: Settings, model_dir: Path) -> None:
    make_stand_in(model_dir)
    folder = make_default(model_dir)
    assert find_model(settings).folder == folder


def test_white_space_counts_as_unset(settings: Settings, model_dir: Path) -> None:
    folder = make_default(model_dir)
    assert find_model(replace(settings, model="  ")).folder == folder


def test_hub_id_is_found_by_name(settings: Settings, model_dir: Path) -> None:
    folder = make(model_dir / "tiny--qwen", Manifest("tiny/qwen", "hub", "a" * 40))
    found = find_model(replace(settings, model="tiny/qwen"))
    assert found == ModelFiles(folder, "tiny/qwen", is_stand_in=False)


@pytest.mark.parametrize("model", ["tiny/qwen", DEFAULT_MODEL])
def test_nothing_stands_in_for_a_model_that_was_asked_for(
    settings: Settings, model_dir: Path, model: str
) -> None:
    make_stand_in(model_dir)
    with pytest.raises(WeightsError, match=f"{model} is not in .*fetch-model"):
        find_model(replace(settings, model=model))


def test_folder_without_manifest_is_not_ours(settings: Settings, model_dir: Path) -> None:
    (model_dir / "tiny--qwen").mkdir(parents=True)
    with pytest.raises(WeightsError, match="is not in"):
        find_model(replace(settings, model="tiny/qwen"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": "tiny/qwen"}'])
def test_broken_manifest_does_not_count(settings: Settings, model_dir: Path, text: str) -> None:
    folder = make(model_dir / "tiny--qwen", Manifest("tiny/qwen", "hub", "a" * 40))
    (folder / "aio.json").write_text(text)
    with pytest.raises(WeightsError, match="is not in"):
        find_model(replace(settings, model="tiny/qwen"))


@pytest.mark.parametrize("model", ["mine", "./mine", "{tmp}/mine", "~/mine"])
def test_folder_is_taken_as_it_is(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = find_model(replace(settings, model=model.format(tmp=tmp_path)))
    assert found == ModelFiles(tmp_path / "mine", "mine", is_stand_in=False)


def test_current_folder_has_a_name(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model(replace(settings, model=".")).name == tmp_path.name


@pytest.mark.parametrize("model", ["./none", "/none/at/all", "~/none", "none.gguf", "README.txt"])
def test_path_to_nothing_usable_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "README.txt").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(WeightsError, match=r"no such folder or \.gguf file"):
        find_model(replace(settings, model=model))


@pytest.mark.parametrize("model", ["a/b/c", "a b", "-a/b", "https://host/a", "模型"])
def test_what_is_neither_path_nor_hub_id_is_refused(settings: Settings, model: str) -> None:
    with pytest.raises(WeightsError, match="neither a folder"):
        find_model(replace(settings, model=model))


class TestGguf:
    @pytest.fixture
    def gguf(self, tmp_path: Path) -> Path:
        path = tmp_path / "My.Model.gguf"
        path.write_bytes(b"GGUF")
        return path

    def test_converted_folder_is_found(
        self, settings: Settings, model_dir: Path, gguf: Path
    ) -> None:
        manifest = Manifest("My.Model", "gguf", gguf_origin(gguf))
        folder = make(model_dir / "gguf--My.Model", manifest)
        found = find_model(replace(settings, model=str(gguf)))
        assert found == ModelFiles(folder, "My.Model", is_stand_in=False)

    def test_unconverted_file_is_not_enough(self, settings: Settings, gguf: Path) -> None:
        with pytest.raises(WeightsError, match="has not been converted"):
            find_model(replace(settings, model=str(gguf)))

    def test_another_file_of_that_name_is_noticed(
        self, settings: Settings, model_dir: Path, gguf: Path
    ) -> None:
        make(model_dir / "gguf--My.Model", Manifest("My.Model", "gguf", gguf_origin(gguf)))
        os.utime(gguf, ns=(0, 0))
        with pytest.raises(WeightsError, match="has changed since"):
            find_model(replace(settings, model=str(gguf)))


def test_finding_and_checking_load_no_large_library(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    code = (
        "import sys\n"
        "from services.settings import Settings\n"
        "from services.weights import check_files, find_model\n"
        f"check_files(find_model(Settings(model={str(folder)!r})))\n"
        "print({'torch', 'transformers', 'huggingface_hub', 'gguf', 'numpy'} & set(sys.modules))"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("set()\n", "")
