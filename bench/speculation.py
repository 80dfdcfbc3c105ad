"""Whether speculation without a draft model would pay: see `prompt_lookup` for the method.

An expectation, not a run: the engine doesn't speculate. The replies' tokens are counted exactly;
steps cost what they were timed at, between the timed numbers of rows as on a straight line. With
several running, all answer dialogues of one file. The head runs on every drafted row, which is in
the time of the step; each token that comes is drawn by itself, as without drafts. Lookups, in a
dictionary, cost microseconds and aren't counted.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.contender import Figures, Plan, UnavailableError
from bench.engine_load import CHAT
from bench.processes import Wanted, started
from bench.rounds import Job, interleave
from bench.speculation_tables import (
    CASES,
    OURS,
    draw_label,
    gain_tables,
    price_table,
    rounds_of_prices,
    step_label,
)
from services.prompts import load_prompts

TITLE = "Speculation without a draft model"

REPEATS, QUICK_REPEATS = 12, 4
ITEMS, QUICK_ITEMS = 12, 3
NEW_TOKENS, QUICK_NEW_TOKENS = 128, 32
QUICK_FILES = 2
MODES = {"greedy": False, "sampled": True}


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`. Replies are written once, steps are timed every round."""
    data_dir = plan.data_dir
    if data_dir is None:
        plan.skip("speculation on recorded replies", "no --data was given")
        return {"counts": {}, "prices": {}}
    plan = replace(plan, settings=replace(plan.settings, precision="int8"))
    counts = _counts(plan, data_dir)
    with started({OURS: Wanted("row_steps", plan.settings)}, plan) as children:
        return {"counts": counts, "prices": interleave(children, _price_jobs(plan), plan)}


def _counts(plan: Plan, data_dir: Path) -> dict[str, dict[str, Figures]]:
    """Mode -> file -> figures of `RecordedReplies.simulate`."""
    params = {
        "items": QUICK_ITEMS if plan.is_quick else ITEMS,
        "new_tokens": QUICK_NEW_TOKENS if plan.is_quick else NEW_TOKENS,
    }
    paths = [path for path in sorted(data_dir.glob("*.jsonl")) if has_turns(path)]
    counts: dict[str, dict[str, Figures]] = {mode: {} for mode in MODES}
    with started({OURS: Wanted("recorded_replies", plan.settings)}, plan) as children:
        for child in children.values():
            for path in paths[: QUICK_FILES if plan.is_quick else None]:
                plan.say(f"replies to {path.stem}")
                where = {"path": str(path.resolve()), **params}
                try:
                    for mode, is_sampled in MODES.items():
                        figures = child.run("simulate", is_sampled=is_sampled, **where)
                        counts[mode][path.stem] = figures
                except UnavailableError as error:
                    plan.skip(f"replies to {path.stem}", str(error))
    return counts


def has_turns(path: Path) -> bool:
    """Whether a file of the data holds dialogues, by its first line."""
    with path.open(encoding="utf-8") as file:
        return "turns" in json.loads(next(file, "{}"))


def _price_jobs(plan: Plan) -> list[Job]:
    repeats = QUICK_REPEATS if plan.is_quick else REPEATS
    defaults = asdict(load_prompts(plan.settings.prompts_dir)[CHAT].sampling)
    steps = [
        Job(
            step_label(sequences, rows),
            "step",
            {"sequences": sequences, "rows": rows, "repeats": repeats},
        )
        for sequences, rows in CASES
    ]
    samplings = {mode: defaults if is_sampled else {} for mode, is_sampled in MODES.items()}
    draws = [
        Job(draw_label(mode), "draw", {"sampling": sampling, "repeats": 4 * repeats})
        for mode, sampling in samplings.items()
    ]
    return steps + draws


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    prices = result["prices"]
    parts = [price_table(prices)]
    for mode, files in result["counts"].items():
        rounds = rounds_of_prices(prices, mode)
        if files and rounds:
            parts += [f"Replies {mode}:", *gain_tables(files, rounds)]
    return "\n\n".join(parts)
