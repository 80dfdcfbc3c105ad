"""Interleaving: the order, the spread, and what can't be measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.contender import Figures, Plan, UnavailableError
from bench.rounds import Job, interleave, ratio, spread, spreads
from services.settings import Settings


class Scripted:
    """Gives its figures one after the other; notes what it was asked for."""

    def __init__(self, name: str, asked: list[str], values: list[float]) -> None:
        self._name = name
        self._asked = asked
        self._values = iter(values)

    def run(self, job: str, **params: Any) -> Figures:
        self._asked.append(f"{self._name} {job} {params}")
        value = next(self._values)
        if value < 0:
            raise UnavailableError("it went away")
        return {"ms": value}


@pytest.fixture
def skipped() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def plan_for(tmp_path: Path, skipped: list[tuple[str, str]]) -> Callable[[int], Plan]:
    def make(rounds: int) -> Plan:
        return Plan(
            Settings(),
            rounds,
            work_dir=tmp_path,
            data_dir=None,
            is_quick=True,
            say=lambda line: None,
            skip=lambda what, why: skipped.append((what, why)),
        )

    return make


def _no_sleep(_seconds: float) -> None:
    """The contenders here have no threads that could spin on."""


def test_every_job_goes_round_all_contenders_before_the_next(
    plan_for: Callable[[int], Plan],
) -> None:
    asked: list[str] = []
    contenders = {name: Scripted(name, asked, [1.0] * 4) for name in "ab"}
    jobs = [Job("first", "first_token", {"prompt_tokens": 4}), Job("memory", "memory")]
    interleave(contenders, jobs, plan_for(2), _no_sleep)
    one_round = [
        "a first_token {'prompt_tokens': 4}",
        "b first_token {'prompt_tokens': 4}",
        "a memory {}",
        "b memory {}",
    ]
    assert asked == one_round * 2


def test_a_figure_has_its_median_and_limits(plan_for: Callable[[int], Plan]) -> None:
    contenders = {"a": Scripted("a", [], [5.0, 1.0, 3.0])}
    results = interleave(contenders, [Job("one", "job")], plan_for(3), _no_sleep)
    assert results == {
        "a": {"one": {"ms": {"median": 3.0, "min": 1.0, "max": 5.0, "rounds": [5.0, 1.0, 3.0]}}}
    }


def test_a_job_that_fails_is_told_once_and_left_out(
    plan_for: Callable[[int], Plan], skipped: list[tuple[str, str]]
) -> None:
    asked: list[str] = []
    contenders = {"a": Scripted("a", asked, [1.0, -1.0]), "b": Scripted("b", asked, [2.0] * 3)}
    results = interleave(contenders, [Job("one", "job")], plan_for(3), _no_sleep)
    assert results["a"] == {}
    assert results["b"]["one"]["ms"]["median"] == 2.0
    assert skipped == [("a, one", "it went away")]
    assert asked.count("a job {}") == 2


def test_a_figure_that_one_round_lacks_is_left_out() -> None:
    assert list(spreads([{"ms": 1.0, "peak_mb": 2.0}, {"ms": 1.0}])) == ["ms"]


def test_ratio_pairs_the_values_of_one_round() -> None:
    # The machine was half as fast in the second and third rounds: both lost the same.
    ours, theirs = spread([10.0, 20.0, 20.0]), spread([20.0, 40.0, 30.0])
    assert ratio(ours, theirs) == 0.5
