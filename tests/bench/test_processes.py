"""A contender in its own process, over its pipes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import processes
from bench.contender import Plan, UnavailableError
from bench.processes import Child, Wanted, start, started
from services.settings import Settings

ECHO = "tests.bench.echo_contender"


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Child]:
    with start(ECHO, Settings(threads=3), tmp_path) as child:
        yield child


def test_jobs_are_done_whatever_libraries_print(echo: Child) -> None:
    assert echo.run("add", first=1.0, second=2.0) == {"sum": 3.0}
    assert echo.run("add", first=2.0, second=2.0) == {"sum": 4.0}


def test_settings_and_folder_arrive_whole(echo: Child) -> None:
    assert echo.run("made_of") == {"threads": 3, "has_paths": True}


def test_a_job_that_fails_or_is_unknown_ends_nothing(echo: Child) -> None:
    with pytest.raises(UnavailableError, match="ValueError: no such luck"):
        echo.run("fail")
    with pytest.raises(UnavailableError, match="no job 'dance'"):
        echo.run("dance")
    assert echo.run("add", first=1.0, second=1.0) == {"sum": 2.0}


def test_a_process_that_dies_leaves_its_last_words(echo: Child) -> None:
    with pytest.raises(UnavailableError, match="status 7: out of memory"):
        echo.run("die")
    with pytest.raises(UnavailableError, match="status 7"):
        echo.run("add", first=1.0, second=1.0)


def test_a_job_without_end_is_ended(echo: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "JOB_S", 0.1)
    with pytest.raises(UnavailableError, match="status -9"):
        echo.run("wait_for_ever")


def test_what_a_contender_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there is no model"):
        start(ECHO, Settings(model="none"), tmp_path)
    with pytest.raises(UnavailableError, match="ModuleNotFoundError"):
        start("no_such_contender", Settings(), tmp_path)


def test_those_that_can_start_are_started_and_ended(tmp_path: Path) -> None:
    skipped: list[tuple[str, str]] = []
    plan = Plan(
        Settings(),
        rounds=1,
        work_dir=tmp_path,
        data_dir=None,
        is_quick=True,
        say=lambda line: None,
        skip=lambda what, why: skipped.append((what, why)),
    )
    wanted = {"good": Wanted(ECHO, Settings()), "bad": Wanted(ECHO, Settings(model="none"))}
    with started(wanted, plan) as children:
        assert list(children) == ["good"]
        pid = children["good"].pid
    assert skipped == [("bad", "there is no model")]
    assert not Path(f"/proc/{pid}/cmdline").exists()
