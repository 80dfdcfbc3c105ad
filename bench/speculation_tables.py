"""The figures of `bench.speculation` as Markdown: what a step costs, and what a policy gains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bench.contender import Figures
from bench.draft_policies import NEVER, POLICIES
from bench.recorded_replies import STEPS, TOKENS
from bench.report import cell, markdown_table, shown
from bench.rounds import Results, Spread, spread
from bench.speed_up import TOGETHER, Prices, speed_up_alone, speed_up_together, tokens_a_step
from services.engine.drafting import MAX_DRAFT

OURS = "our engine"
ALONE_ROWS = (1, 2, 3, 5, 1 + MAX_DRAFT)
TOGETHER_ROWS = (8, 12, 16, 24, 40, TOGETHER * (1 + MAX_DRAFT))
CASES = [(1, rows) for rows in ALONE_ROWS] + [(TOGETHER, rows) for rows in TOGETHER_ROWS]
PAYS = 1.05  # speed-up alone, in the mean over files, that would be worth the code


def step_label(sequences: int, rows: int) -> str:
    return f"{sequences} running, {rows} rows in all"


def draw_label(mode: str) -> str:
    return f"drawing a token, {mode}"


@dataclass(frozen=True, slots=True)
class Gain:
    """What a policy does to the replies of one file."""

    tokens_a_step: float
    taken: float | None  # share of the drafted tokens that came; None where none was drafted
    alone: Spread  # speed-ups, over the rounds of the prices
    together: Spread


def price_table(prices: Results) -> str:
    """What was timed."""
    rows = [(label, shown(figures["ms"])) for label, figures in prices.get(OURS, {}).items()]
    return markdown_table(("", "ms"), rows)


def gain_tables(files: Mapping[str, Figures], rounds: Sequence[Prices]) -> list[str]:
    """The means over files, what they say, and each file's figures."""
    gains = {
        policy: {file: gain_of(figures, policy, rounds) for file, figures in files.items()}
        for policy in POLICIES
    }
    return [
        _mean_table(gains),
        _conclusion(gains),
        f"Tokens a step, speed-up alone and with {TOGETHER} running:",
        _file_table(gains, list(files)),
    ]


def rounds_of_prices(prices: Results, mode: str) -> list[Prices]:
    """Each round's, as far as all of them were measured."""
    labels = [step_label(*case) for case in CASES] + [draw_label(mode)]
    spreads = [cell(prices, OURS, label, "ms") for label in labels]
    columns = [one["rounds"] for one in spreads if one is not None]
    if len(columns) < len(labels):
        return []
    return [_prices(values) for values in zip(*columns, strict=True)]


def _prices(values: Sequence[float]) -> Prices:
    *steps, draw = values
    alone, together = steps[: len(ALONE_ROWS)], steps[len(ALONE_ROWS) :]
    return Prices(
        list(zip(ALONE_ROWS, alone, strict=True)),
        list(zip(TOGETHER_ROWS, together, strict=True)),
        draw,
    )


def gain_of(figures: Figures, policy: str, rounds: Sequence[Prices]) -> Gain:
    """See `RecordedReplies.simulate` for the figures."""
    tokens = int(figures[f"{TOKENS} {policy}"])
    steps = {
        rows: int(figures[label])
        for rows in range(1, 2 + MAX_DRAFT)
        if (label := f"{STEPS} {policy} {rows}") in figures
    }
    drafted = sum((rows - 1) * number for rows, number in steps.items())
    return Gain(
        tokens_a_step(tokens, steps),
        (tokens - sum(steps.values())) / drafted if drafted else None,
        spread([speed_up_alone(tokens, steps, prices) for prices in rounds]),
        spread([speed_up_together(tokens, steps, prices) for prices in rounds]),
    )


def mean_spread(spreads: Sequence[Spread]) -> Spread:
    """Over the rounds, each round's the mean over files, which count alike."""
    return spread([fmean(values) for values in zip(*(s["rounds"] for s in spreads), strict=True)])


def _mean_table(gains: Mapping[str, Mapping[str, Gain]]) -> str:
    rows = []
    for policy, by_file in gains.items():
        each = list(by_file.values())
        taken = [gain.taken for gain in each if gain.taken is not None]
        rows.append(
            [
                policy,
                f"{fmean(gain.tokens_a_step for gain in each):.2f}",
                f"{fmean(taken):.0%}" if taken else "",
                shown(mean_spread([gain.alone for gain in each])),
                _worst_and_middle([gain.alone for gain in each]),
                shown(mean_spread([gain.together for gain in each])),
                _worst_and_middle([gain.together for gain in each]),
            ]
        )
    head = ["mean over files", "tokens a step", "of the drafted taken"]
    for case in ("alone", f"with {TOGETHER} running"):
        head += [f"speed-up {case}", "worst, middle file"]
    return markdown_table(head, rows)


def _worst_and_middle(spreads: Sequence[Spread]) -> str:
    """Of the files: a mean hides that a few may carry it."""
    medians = [one["median"] for one in spreads]
    return f"{min(medians):.2f}, {median(medians):.2f}"


def _file_table(gains: Mapping[str, Mapping[str, Gain]], files: Sequence[str]) -> str:
    rows = [
        [policy, *(_in_a_cell(by_file[file]) for file in files)]
        for policy, by_file in gains.items()
        if policy != NEVER
    ]
    return markdown_table(["", *files], rows)


def _in_a_cell(gain: Gain) -> str:
    values = (gain.tokens_a_step, gain.alone["median"], gain.together["median"])
    return " · ".join(f"{value:.2f}" for value in values)


def _conclusion(gains: Mapping[str, Mapping[str, Gain]]) -> str:
    """Which policies would be worth their code."""
    worth = []
    for policy, by_file in gains.items():
        alone, together = (
            mean_spread([getattr(gain, case) for gain in by_file.values()])["median"]
            for case in ("alone", "together")
        )
        if not POLICIES[policy].is_bound and alone >= PAYS and together >= 1:
            worth.append(policy)
    return (
        f"At least {PAYS - 1:.0%} faster alone in the mean over files, and not slower with "
        f"{TOGETHER} running: {'; '.join(worth) or 'none'}."
    )
