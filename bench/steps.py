"""Where the time of a step goes."""

from collections.abc import Mapping
from typing import Any

from bench.contender import Plan
from bench.processes import Wanted, started
from bench.report import cell, markdown_table, shown, shown_ratio
from bench.rounds import Job, interleave

TITLE = "Where the time of a step goes"

OURS = "our engine"
CASES = ((1, 40), (8, 40), (1, 1500))  # sequences, tokens of history each
QUICK_CASES = CASES[:2]
NEW_TOKENS, QUICK_NEW_TOKENS = 48, 16
PARTS = {
    "products": "matrix products",
    "attention": "attention",
    "rest": "the rest of the forward: norms, activation, embedding",
    "engine": "between forwards: drawing tokens, events, planning",
}


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`."""
    new_tokens = QUICK_NEW_TOKENS if plan.is_quick else NEW_TOKENS
    jobs = [
        Job(
            _case(sequences, history),
            "step",
            {"sequences": sequences, "new_tokens": new_tokens, "history_tokens": history},
        )
        for sequences, history in (QUICK_CASES if plan.is_quick else CASES)
    ]
    with started({OURS: Wanted("step_parts", plan.settings)}, plan) as children:
        return {"results": interleave(children, jobs, plan)}


def _case(sequences: int, history_tokens: int) -> str:
    return f"{sequences} x {history_tokens} tokens"


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    results = result["results"]
    labels = list(results.get(OURS, ()))
    rows = []
    for part, title in (*PARTS.items(), ("step", "**the whole step**")):
        row = [title]
        for label in labels:
            spread, whole = (cell(results, OURS, label, name) for name in (part, "step"))
            row += [shown(spread), shown_ratio(spread, whole)]
        rows.append(row)
    head = [""]
    for label in labels:
        head += [f"{label}, ms", "share"]
    return "Sequences and the history behind each; the clock itself is in it.\n\n" + markdown_table(
        head, rows
    )
