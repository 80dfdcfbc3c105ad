"""A dialogue over `AIO_CONTEXT_TOKENS`: the turn that drops its oldest turns, and those after."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.contender import Plan
from bench.processes import Wanted, started
from bench.report import MISSING, cell, markdown_table, shown, shown_ratio
from bench.rounds import Job, Spread, interleave

TITLE = "A history over the limit"

OURS = "our engine"
TURNS_AFTER = 3
TEXT_TOKENS, NEW_TOKENS = 150, 16
QUICK_CONTEXT_TOKENS = 1024  # it has to be more than AIO_MAX_TEXT_TOKENS
QUICK_MAX_TEXT_TOKENS = 256
_ROWS = {
    "before": "the last turns before the limit",
    "drop": "the turn that drops the oldest",
    **{f"after_{n}": f"turn {n} after it" for n in range(1, TURNS_AFTER + 1)},
}


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`."""
    settings = plan.settings
    if plan.is_quick:
        settings = replace(
            settings,
            context_tokens=QUICK_CONTEXT_TOKENS,
            max_text_tokens=QUICK_MAX_TEXT_TOKENS,
        )
    params = {
        "turns_after": TURNS_AFTER,
        "text_tokens": TEXT_TOKENS,
        "new_tokens": NEW_TOKENS,
    }
    with started({OURS: Wanted("ours", settings)}, plan) as children:
        results = interleave(children, [Job("growing dialogue", "long_history", params)], plan)
    return {"context_tokens": settings.context_tokens, "results": results}


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    cells = {
        name: cell(result["results"], OURS, "growing dialogue", name)
        for name in (*_ROWS, "dropped_turns", "prompt_tokens")
    }
    rows = [
        [title, shown(cells[name]), shown_ratio(cells[name], cells["before"])]
        for name, title in _ROWS.items()
    ]
    return "\n\n".join(
        [
            f"Turns of {TEXT_TOKENS} tokens of text and {NEW_TOKENS} of reply, at most "
            f"{result['context_tokens']} tokens of prompt. Where they no longer fit, "
            f"{_count(cells['dropped_turns'])} turns go at once, and the "
            f"{_count(cells['prompt_tokens'])} tokens that are left are prefilled anew.",
            markdown_table(["", "first token, ms", "times the turns before"], rows),
        ]
    )


def _count(spread: Spread | None) -> str:
    return f"{spread['median']:.0f}" if spread is not None else MISSING
