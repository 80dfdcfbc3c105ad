"""What int8 costs in quality: labels, likelihoods, and replies from the cache."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.contender import Plan
from bench.fidelity import CANDIDATES
from bench.processes import Wanted, started
from bench.report import MISSING, cell, markdown_table
from bench.rounds import Job, Results, Spread, interleave

TITLE = "The quality of int8"

INT8 = "int8 against fp32"
ITEMS, QUICK_ITEMS = 50, 3
QUICK_FILES = 3
REPLIES, QUICK_REPLIES = 40, 4
REPLY_TOKENS = 32
CACHED = "from the cache and from scratch"
# What a file's figures are called, and how many digits tell.
LABELS = {"same_label": ("same label", ".1%")}
DIALOGUES = {
    "nll": ("mean NLL", "+.4f"),
    "kl": ("KL", ".4f"),
    "same_choice": ("same first choice", ".1%"),
}
REPLY_FIGURES = {
    "equal": ("equal replies", ".1%"),
    "largest_gap": ("largest gap where they part", ".3f"),
    "usual_gap": ("usual gap of two candidates", ".2f"),
}
_TITLES = {"kv_fp32": "K/V fp32", "kv_bf16": "K/V bf16"}


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`. Once: it is arithmetic, so another round would give the same."""
    replies = QUICK_REPLIES if plan.is_quick else REPLIES
    cached = Job(CACHED, "cached_replies", {"replies": replies, "new_tokens": REPLY_TOKENS})
    once = replace(plan, rounds=1)
    with started({INT8: Wanted("fidelity", plan.settings)}, plan) as children:
        return {
            kind: interleave(children, kind_jobs, once)
            for kind, kind_jobs in {**_file_jobs(plan), "replies": [cached]}.items()
        }


def _file_jobs(plan: Plan) -> dict[str, list[Job]]:
    """A job for each file of the data, by what is in it; texts beside replies are dialogues."""
    jobs: dict[str, list[Job]] = {"labels": [], "dialogues": []}
    if plan.data_dir is None:
        plan.skip("labels and likelihoods of int8 against fp32", "no --data was given")
        return jobs
    items = QUICK_ITEMS if plan.is_quick else ITEMS
    for path in sorted(plan.data_dir.glob("*.jsonl")):
        kind = kind_of(path)
        if kind is not None:
            params = {"path": str(path.resolve()), "items": items}
            jobs[kind].append(Job(path.stem, kind, params))
    return {kind: found[: QUICK_FILES if plan.is_quick else None] for kind, found in jobs.items()}


def kind_of(path: Path) -> str | None:
    """What a file of the data is good for, by its first line; None for neither."""
    with path.open(encoding="utf-8") as file:
        fields = json.loads(next(file, "{}"))
    if "text" in fields:
        return "labels"
    return "dialogues" if "ref_replies" in fields else None


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    parts = []
    for kind, figures in (("labels", LABELS), ("dialogues", DIALOGUES)):
        if result[kind].get(INT8):
            parts.append(_table(result[kind], figures, has_mean=True))
    parts.append(
        "Greedy second turns, behind the first turn's K/V and from scratch; gaps are between "
        "logits:"
    )
    parts.append(_table(result["replies"], REPLY_FIGURES, has_mean=False))
    return "\n\n".join(parts)


def _table(results: Results, figures: Mapping[str, tuple[str, str]], *, has_mean: bool) -> str:
    """A row for each file, and one for all files alike."""
    columns = [
        (f"{figure}_{name}", f"{title}, {_TITLES[name]}", digits)
        for figure, (title, digits) in figures.items()
        for name in CANDIDATES
    ]
    labels = list(results.get(INT8, {}))
    rows = []
    for label in labels:
        count = cell(results, INT8, label, "count")
        shown = [_shown(cell(results, INT8, label, name), digits) for name, _, digits in columns]
        rows.append([label, _shown(count, ".0f"), *shown])
    if has_mean:
        means = [
            format(mean_over_files(results, name), digits) if labels else MISSING
            for name, _, digits in columns
        ]
        rows.append(["**mean over files**", "", *means])
    return markdown_table(["", "number", *(title for _, title, _ in columns)], rows)


def mean_over_files(results: Results, figure: str) -> float:
    """Files count alike, however many items each has."""
    spreads = [figures[figure]["median"] for figures in results[INT8].values()]
    return sum(spreads) / len(spreads)


def _shown(spread: Spread | None, digits: str) -> str:
    return format(spread["median"], digits) if spread is not None else MISSING
