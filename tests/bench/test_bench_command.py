"""The command: which sections run, and that one that fails costs only itself."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from bench import cli
from bench.contender import Plan, UnavailableError
from services.weights import ModelFiles


class Section(ModuleType):
    """A chapter that measures nothing, or fails."""

    TITLE = "A chapter"

    def measure(self, plan: Plan) -> dict[str, Any]:
        if self.__name__ == "bench.peers":
            raise ValueError("no peers")
        plan.skip("one thing", "it isn't here")
        return {"rounds": plan.rounds}

    def tables(self, result: Mapping[str, Any]) -> str:
        return f"{result['rounds']} rounds"


class Picture(Section):
    """It can't draw here."""

    def draw(self, result: Mapping[str, Any], path: Path) -> None:
        raise UnavailableError("no pencil")


@pytest.fixture(autouse=True)
def _sections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kinds = {"growth": Picture}
    for name in cli.SECTIONS:
        kind = kinds.get(name, Section)
        monkeypatch.setitem(sys.modules, f"bench.{name}", kind(f"bench.{name}"))
    monkeypatch.setattr("bench.machine.describe", lambda settings, work_dir: {"cores": "2"})
    files = ModelFiles(tmp_path, "tiny", False)
    monkeypatch.setattr(cli, "find_model", lambda settings: files)
    monkeypatch.setenv("AIO_MODEL_DIR", str(tmp_path / "models"))


def _run(tmp_path: Path, *args: str) -> dict[str, Any]:
    command = ["--out", str(tmp_path), "--name", "run", *args]
    result = CliRunner().invoke(cli.bench_command, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads((tmp_path / "run.json").read_text("utf-8"))
    return report


def test_sections_run_in_the_order_of_the_report(tmp_path: Path) -> None:
    report = _run(tmp_path, "--only", "steps", "--only", "tables", "--rounds", "5")
    assert list(report["sections"]) == ["tables", "steps"]
    assert report["sections"]["tables"]["result"] == {"rounds": 5}
    assert "5 rounds" in (tmp_path / "run.md").read_text("utf-8")


def test_a_section_that_fails_costs_only_itself(tmp_path: Path) -> None:
    report = _run(tmp_path)
    assert list(report["sections"]) == [name for name in cli.SECTIONS if name != "peers"]
    left_out = [(skipped["what"], skipped["why"]) for skipped in report["skipped"]]
    assert ("section peers", "ValueError: no peers") in left_out
    assert ("one thing", "it isn't here") in left_out
    assert ("run-growth.svg", "no pencil") in left_out


def test_failure_of_the_last_section_is_in_the_report(tmp_path: Path) -> None:
    report = _run(tmp_path, "--only", "peers", "--quick")
    assert report["sections"] == {}
    assert report["quick"] is True
    assert report["skipped"][0]["what"] == "section peers"
