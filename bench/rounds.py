"""Everything compared is measured in turns, so that whatever else the machine does hits all."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

from bench.contender import Figures, Plan, UnavailableError

# An engine's threads may spin on for a moment after its job: they aren't to slow the next one's.
PAUSE_S = 0.25


class Spread(TypedDict):
    """One figure over all rounds."""

    median: float
    min: float
    max: float
    rounds: list[float]  # in their order: two contenders' values of one round belong together


Results = dict[str, dict[str, dict[str, Spread]]]  # contender -> job's label -> figure


class Runs(Protocol):
    """What jobs are asked of: a child process, or anything like it."""

    def run(self, job: str, **params: Any) -> Figures:
        """The figures of one job.

        Raises:
            UnavailableError: it can't do it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job's name and params, and the label that its figures stand under."""

    label: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


def interleave(
    contenders: Mapping[str, Runs],
    jobs: Sequence[Job],
    plan: Plan,
    sleep: Callable[[float], None] = time.sleep,
) -> Results:
    """Each job by every contender, one right after the other, `plan.rounds` times.

    A job that a contender can't do is told to the plan once and has no entry in the result.
    """
    seen: dict[tuple[str, str], list[Figures]] = {}
    failed: set[tuple[str, str]] = set()
    for number in range(1, plan.rounds + 1):
        for job in jobs:
            plan.say(f"round {number} of {plan.rounds}: {job.label}")
            for name, contender in contenders.items():
                if (name, job.label) in failed:
                    continue
                sleep(PAUSE_S)
                try:
                    figures = contender.run(job.name, **job.params)
                except UnavailableError as error:
                    failed.add((name, job.label))
                    plan.skip(f"{name}, {job.label}", str(error))
                else:
                    seen.setdefault((name, job.label), []).append(figures)
    results: Results = {name: {} for name in contenders}
    for (name, label), rounds in seen.items():
        if (name, label) not in failed:
            results[name][label] = spreads(rounds)
    return results


def spreads(rounds: Sequence[Figures]) -> dict[str, Spread]:
    """Each figure that every round has, over the rounds."""
    return {
        figure: spread([values[figure] for values in rounds])
        for figure in rounds[0]
        if all(figure in values for values in rounds)
    }


def spread(values: Sequence[float]) -> Spread:
    """Median and limits of the rounds' values; at least one."""
    return Spread(
        median=statistics.median(values), min=min(values), max=max(values), rounds=list(values)
    )


def ratio(over: Spread, under: Spread) -> float:
    """How many times `under` goes into `over`: the median of the rounds' own ratios, since what
    slows the machine for a while slows both."""
    pairs = list(zip(over["rounds"], under["rounds"], strict=True))
    return statistics.median(a / b for a, b in pairs)
