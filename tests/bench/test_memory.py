"""What the system tells of a process's memory."""

from pathlib import Path

import pytest

from bench.memory import child_of, memory_figures

STATUS = "Name:\tpython\nVmPeak:\t 9000 kB\nVmHWM:\t    3072 kB\nVmRSS:\t    2048 kB\n"


def test_resident_and_peak_are_in_mib(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(STATUS)
    assert memory_figures(7, tmp_path) == {"resident_mb": 2, "peak_mb": 3}


def test_own_process_is_meant_where_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(STATUS)
    assert memory_figures(proc=tmp_path)["resident_mb"] == 2


def test_nothing_where_the_system_does_not_tell(tmp_path: Path) -> None:
    assert memory_figures(7, tmp_path) == {}
    assert child_of(7, tmp_path) is None


@pytest.mark.parametrize(("children", "expected"), [("12 13 ", 12), ("", None)])
def test_first_child(tmp_path: Path, children: str, expected: int | None) -> None:
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    assert child_of(7, tmp_path) == expected
