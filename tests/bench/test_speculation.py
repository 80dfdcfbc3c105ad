"""What counted steps are worth at given prices, and the section's tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import speculation
from bench.contender import Plan
from bench.draft_policies import NEVER, POLICIES
from bench.recorded_replies import STEPS, TOKENS
from bench.rounds import Spread, spread
from bench.speculation_tables import CASES, OURS, draw_label, step_label
from bench.speed_up import (
    Prices,
    in_all,
    interpolated,
    speed_up_alone,
    speed_up_together,
    tokens_a_step,
)
from services.settings import Settings

FREE_ROWS = Prices([(1, 20.0), (9, 20.0)], [(8, 40.0), (72, 40.0)], 0.0)
DEAR_ROWS = Prices([(1, 20.0), (9, 180.0)], [(8, 40.0), (72, 360.0)], 0.0)


@pytest.mark.parametrize(("rows", "expected"), [(1, 10), (2, 12), (3, 14), (4, 17), (5, 20)])
def test_prices_between_those_measured(rows: int, expected: float) -> None:
    assert interpolated([(1, 10.0), (3, 14.0), (5, 20.0)], rows) == pytest.approx(expected)


def test_sum_of_draws() -> None:
    assert in_all({1: 0.5, 3: 0.5}, 2) == {2: 0.25, 4: 0.5, 6: 0.25}
    assert sum(in_all({1: 0.7, 2: 0.2, 9: 0.1}, 8).values()) == pytest.approx(1)


def test_rows_that_cost_nothing_gain_what_they_bring() -> None:
    tokens, steps = 30, {1: 10, 3: 10}
    assert tokens_a_step(tokens, steps) == 1.5
    assert speed_up_alone(tokens, steps, FREE_ROWS) == pytest.approx(1.5)
    assert speed_up_together(tokens, steps, FREE_ROWS) == pytest.approx(1.5)


def test_rows_that_cost_as_much_as_steps_gain_nothing() -> None:
    tokens, steps = 20, {1: 10, 2: 5}  # each draft right
    assert speed_up_alone(tokens, steps, DEAR_ROWS) == pytest.approx(1)
    assert speed_up_together(tokens, steps, DEAR_ROWS) == pytest.approx(1)


def test_drawing_is_paid_for_each_token() -> None:
    prices = Prices(FREE_ROWS.alone, FREE_ROWS.together, 20.0)
    # 20 + 20 ms a token without; 20 + 2 * 20 for two tokens with.
    assert speed_up_alone(20, {2: 10}, prices) == pytest.approx(2 * 40 / 60)


def test_replies_of_one_token_change_nothing() -> None:
    assert speed_up_alone(0, {}, FREE_ROWS) == pytest.approx(1)
    assert speed_up_together(0, {}, DEAR_ROWS) == pytest.approx(1)


def _result() -> dict[str, Any]:
    """Steps cost the same whatever rows they have; one policy takes half of the steps."""
    labels = [*(step_label(*case) for case in CASES), draw_label("greedy")]
    ms: dict[str, dict[str, Spread]] = {label: {"ms": spread([10.0, 10.0])} for label in labels}
    plain = {f"{TOKENS} {name}": 20 for name in POLICIES} | {
        f"{STEPS} {name} 1": 20 for name in POLICIES
    }
    faster = next(name for name in POLICIES if name != NEVER)
    gained = {**plain, f"{STEPS} {faster} 1": 5, f"{STEPS} {faster} 3": 5}
    return {
        "counts": {"greedy": {"one": plain, "two": gained}, "sampled": {}},
        "prices": {OURS: ms},
    }


def test_tables_count_files_alike_and_conclude() -> None:
    result = _result()
    result["prices"][OURS][draw_label("greedy")] = {"ms": spread([0.0, 0.0])}
    text = speculation.tables(result)
    faster = next(name for name in POLICIES if name != NEVER)
    assert f"| {faster} | 1.50 | 100% | 1.50 | 1.00, 1.50 | 1.50 | 1.00, 1.50 |" in text
    assert f"| {faster} | 1.00 · 1.00 · 1.00 | 2.00 · 2.00 · 2.00 |" in text
    assert f"running: {faster}." in text


def test_without_prices_there_is_no_gain() -> None:
    result = _result()
    del result["prices"][OURS][step_label(*CASES[0])]
    assert "speed-up" not in speculation.tables(result)


def test_without_data_the_section_says_so(tmp_path: Path) -> None:
    skipped: list[tuple[str, str]] = []
    plan = Plan(
        Settings(), 1, tmp_path, None, True, lambda line: None, lambda *why: skipped.append(why)
    )
    result = speculation.measure(plan)
    assert skipped == [("speculation on recorded replies", "no --data was given")]
    assert "speed-up" not in speculation.tables(result)


@pytest.mark.parametrize(
    ("fields", "expected"), [({"turns": ["hello"]}, True), ({"text": "fine"}, False)]
)
def test_dialogues_are_told_from_texts(tmp_path: Path, fields: object, expected: bool) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(json.dumps(fields) + "\n", "utf-8")
    assert speculation.has_turns(path) == expected
