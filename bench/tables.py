"""The source articles' tables, reproduced: label, turns, and the ladder of what each step gains."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.contender import Plan, UnavailableError
from bench.processes import Wanted, started
from bench.report import cell, markdown_table, shown, shown_ratio
from bench.rounds import Job, Results, interleave
from bench.ways import make_ways

TITLE = "The articles' tables"

ARTICLES, FP32, INT8, KEEPING = (
    "articles' way (transformers, fp32)",
    "our engine, fp32",
    "our engine, int8",
    "our engine, int8, prefix and session kept",
)
TEXT_TOKENS = 20
HISTORIES, QUICK_HISTORIES = (0, 100, 600, 1500), (0, 100)  # none: a session's first turn
DECODED, QUICK_DECODED = 48, 16
BATCHES = (4, 8)
# The ladder's request: input up to 64 tokens, output 128, behind one such turn.
LADDER_TEXT, LADDER_NEW, QUICK_LADDER_NEW = 64, 128, 16
SAMPLING = {"temperature": 0.7, "top_p": 0.9}


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`."""
    fp32, int8 = (replace(plan.settings, precision=name) for name in ("fp32", "int8"))
    wanted = {
        ARTICLES: Wanted("transformers_generate", fp32),
        FP32: Wanted("ours", fp32),
        INT8: Wanted("ours", int8),
    }
    with started(wanted, plan) as children:
        if INT8 not in children:
            raise UnavailableError("our own engine could not be started")
        ways = make_ways(
            children[INT8],
            {ARTICLES: children.get(ARTICLES)},
            not_keeping={FP32: children.get(FP32), INT8: children[INT8]},
            keeping={KEEPING: children[INT8]},
        )
        batching = {KEEPING: ways[KEEPING]}
        return {
            "ways": interleave(ways, _jobs(plan), plan),
            "batches": interleave(batching, [_ladder(plan, batch) for batch in BATCHES], plan),
        }


def _jobs(plan: Plan) -> list[Job]:
    decoded = QUICK_DECODED if plan.is_quick else DECODED
    histories = QUICK_HISTORIES if plan.is_quick else HISTORIES
    return [
        Job("memory", "memory"),  # first: before there are sessions
        Job("label", "label", {"text_tokens": TEXT_TOKENS}),
        *(
            Job(_turn(length), "turn", {"history_tokens": length, "text_tokens": TEXT_TOKENS})
            for length in histories
        ),
        Job("decode", "decode", {"sequences": 1, "new_tokens": decoded}),
        _ladder(plan, 1),
    ]


def _turn(history_tokens: int) -> str:
    return f"turn 3, {history_tokens} tokens of history" if history_tokens else "turn 1"


def _ladder(plan: Plan, batch: int) -> Job:
    new_tokens = QUICK_LADDER_NEW if plan.is_quick else LADDER_NEW
    params = {
        "batch": batch,
        "text_tokens": LADDER_TEXT,
        "history_tokens": LADDER_TEXT + new_tokens,
        "new_tokens": new_tokens,
        **SAMPLING,
    }
    return Job(f"{batch} at once", "requests", params)


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    ways: Results = result["ways"]
    labels = [label for label in next(iter(ways.values())) if label.startswith("turn")]
    return "\n\n".join(
        [
            f"To the label of a text of {TEXT_TOKENS} tokens, and to a turn's first token "
            f"({TEXT_TOKENS} tokens of text), in ms:",
            _first_tokens(ways, ["label", *labels]),
            "The ladder: a request is a label and a reply behind one earlier turn; "
            f"{LADDER_TEXT} tokens in, temperature {SAMPLING['temperature']}, "
            f"top_p {SAMPLING['top_p']}:",
            _ladder_table(ways, result["batches"]),
        ]
    )


def _first_tokens(ways: Results, labels: Sequence[str]) -> str:
    names = list(ways)
    rows = []
    for label in labels:
        spreads = [cell(ways, name, label, "ms") for name in names]
        ratios = [shown_ratio(spreads[-1], spread) for spread in (spreads[0], spreads[-2])]
        rows.append([label, *map(shown, spreads), *ratios])
    return markdown_table(["", *names, "kept, over the first column", "kept over not"], rows)


def _ladder_table(ways: Results, batches: Results) -> str:
    baseline = cell(ways, next(iter(ways)), "1 at once", "requests_a_minute")
    rows = [_rung(ways, name, "1 at once", name, baseline) for name in ways]
    for batch in BATCHES:
        rows.append(_rung(batches, KEEPING, f"{batch} at once", f"+ {batch} at once", baseline))
    head = [
        "",
        "decode, ms a token",
        "request, ms a token",
        "requests a minute",
        "times as many",
        "MiB",
    ]
    return markdown_table(head, rows)


def _rung(results: Results, way: str, label: str, title: str, baseline: Any) -> list[str]:
    minute = cell(results, way, label, "requests_a_minute")
    return [
        title,
        shown(cell(results, way, "decode", "ms_a_step")),
        shown(cell(results, way, label, "ms_a_token")),
        shown(minute),
        shown_ratio(minute, baseline),
        shown(cell(results, way, "memory", "resident_mb")),
    ]
