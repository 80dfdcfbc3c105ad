"""The peers' file: made for the stand-in alone, and once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import gguf
from bench.contender import UnavailableError
from bench.gguf import Q8_0, q8_0_file
from services.settings import Settings
from services.weights import ModelFiles, WeightsError


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[bool], None]:
    def choose(is_stand_in: bool) -> None:
        files = ModelFiles(tmp_path, "tiny", is_stand_in)
        monkeypatch.setattr(gguf, "find_model", lambda settings: files)

    return choose


def _unreachable(*_: object) -> Path:
    raise WeightsError("the index is away")


def test_another_model_has_no_peer(serve: Callable[[bool], None], tmp_path: Path) -> None:
    serve(False)
    with pytest.raises(UnavailableError, match="the service runs tiny"):
        q8_0_file(Settings(), tmp_path)


def test_a_file_that_is_there_is_taken(serve: Callable[[bool], None], tmp_path: Path) -> None:
    serve(True)
    (tmp_path / Q8_0).touch()
    assert q8_0_file(Settings(), tmp_path) == tmp_path / Q8_0


def test_parts_out_of_reach_leave_nothing(
    serve: Callable[[bool], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(True)
    monkeypatch.setattr(gguf, "fetch_gguf", _unreachable)
    with pytest.raises(UnavailableError, match="the index is away"):
        q8_0_file(Settings(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        q8_0_file(Settings(model_dir=tmp_path), tmp_path)
