"""How cost grows with a dialogue's length and with the number of sequences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.contender import Plan
from bench.growth_labels import decode_label, sequences_label, turn_label
from bench.plot import draw_growth
from bench.processes import Wanted, started
from bench.report import cell, markdown_table, shown
from bench.rounds import Job, Results, interleave
from bench.shape import shape_settings
from services.weights import find_model

TITLE = "How cost grows"

SHAPE = "Qwen1.5-0.5B shape"
HISTORIES, QUICK_HISTORIES = (100, 300, 600, 1000, 1500, 2000), (100, 600)
SEQUENCES, QUICK_SEQUENCES = (1, 2, 4, 8, 16), (1, 4)
TEXT_TOKENS = 20
BESIDE_HISTORY = 100  # of each of several sequences
NEW_TOKENS, QUICK_NEW_TOKENS = 32, 12


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`. Each model in the precision that the settings name."""
    model = find_model(plan.settings).name
    wanted = {
        model: Wanted("ours", plan.settings),
        SHAPE: Wanted("ours", shape_settings(plan)),
    }
    histories = QUICK_HISTORIES if plan.is_quick else HISTORIES
    sequences = QUICK_SEQUENCES if plan.is_quick else SEQUENCES
    with started(wanted, plan) as children:
        results = interleave(children, _jobs(plan, histories, sequences), plan)
    return {"histories": list(histories), "sequences": list(sequences), "results": results}


def _jobs(plan: Plan, histories: Sequence[int], sequences: Sequence[int]) -> list[Job]:
    new_tokens = QUICK_NEW_TOKENS if plan.is_quick else NEW_TOKENS
    jobs = []
    for length in histories:
        one = {"sequences": 1, "new_tokens": new_tokens, "history_tokens": length}
        jobs.append(Job(decode_label(length), "decode", one))
        for is_kept in (True, False):
            turn = {"history_tokens": length, "text_tokens": TEXT_TOKENS, "is_kept": is_kept}
            jobs.append(Job(turn_label(length, is_kept), "turn", turn))
    for number in sequences:
        many = {
            "sequences": number,
            "new_tokens": new_tokens,
            "history_tokens": BESIDE_HISTORY,
        }
        jobs.append(Job(sequences_label(number), "decode", many))
    return jobs


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    results: Results = result["results"]
    return "\n\n".join(
        [
            "By tokens of history, in ms:",
            _by_history(results, result["histories"]),
            f"By sequences, {BESIDE_HISTORY} tokens of history each:",
            _by_sequences(results, result["sequences"]),
        ]
    )


def _by_history(results: Results, histories: Sequence[int]) -> str:
    head = ["history"]
    for name in results:
        head += [f"{name}: a token", "first token, session kept", "first token, not kept"]
    rows = []
    for length in histories:
        row = [str(length)]
        for name in results:
            row.append(shown(cell(results, name, decode_label(length), "ms_a_step")))
            row += [
                shown(cell(results, name, turn_label(length, is_kept), "ms"))
                for is_kept in (True, False)
            ]
        rows.append(row)
    return markdown_table(head, rows)


def _by_sequences(results: Results, sequences: Sequence[int]) -> str:
    head = ["sequences"]
    for name in results:
        head += [f"{name}: a step, ms", "tokens a second"]
    rows = []
    for number in sequences:
        row = [str(number)]
        for name in results:
            row += [
                shown(cell(results, name, sequences_label(number), figure))
                for figure in ("ms_a_step", "tokens_a_second")
            ]
        rows.append(row)
    return markdown_table(head, rows)


def draw(result: Mapping[str, Any], path: Path) -> None:
    """See `bench.plot.draw_growth`."""
    draw_growth(result, path)
