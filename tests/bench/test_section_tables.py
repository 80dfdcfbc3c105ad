"""The sections' Markdown: ratios where they belong, and a dash for what was left out."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import growth, long_history, over_http, quality, shape, steps, tables
from bench.contender import UnavailableError
from bench.growth_labels import decode_label, sequences_label, turn_label
from bench.plot import draw_growth
from bench.rounds import spreads


def figures(**values: float) -> dict[str, Any]:
    """A job's figures after one round."""
    return dict(spreads([values]))


def test_ladder_counts_from_its_first_rung() -> None:
    ways = {
        name: {
            "label": figures(ms=100 / factor),
            "turn 1": figures(ms=50),
            "1 at once": figures(requests_a_minute=10 * factor, ms_a_token=40 / factor),
        }
        for name, factor in ((tables.ARTICLES, 1), (tables.INT8, 4), (tables.KEEPING, 8))
    }
    batches = {tables.KEEPING: {"4 at once": figures(requests_a_minute=160, ms_a_token=2)}}
    lines = tables.tables({"ways": ways, "batches": batches}).splitlines()
    assert "| + 4 at once | – | 2.00 | 160 | 16.00 | – |" in lines
    assert any(line.startswith("| label |") and line.endswith("| 0.12 | 0.50 |") for line in lines)


def test_http_load_stands_in_the_order_of_clients() -> None:
    load = figures(label_p50=1, label_p95=2, first_p50=3, first_p95=4, tokens_a_second=90)
    result = {
        "start_s": 5.0,
        "memory_before": {"resident_mb": 900.0},
        "memory_after": {},
        "alone": {over_http.HTTP: {"16 clients": load, "1 client": load}},
        "compared": {
            over_http.HTTP: {
                "8 clients": load,
                "labels while 0 replies run": figures(p50=40, p95=50),
                "labels while 8 replies run": figures(p50=60, p95=100),
            },
            over_http.ENGINE: {"8 clients": figures(tokens_a_second=100)},
        },
    }
    text = over_http.tables(result)
    rows = [line.split("|")[1].strip() for line in text.splitlines() if "client" in line[:12]]
    assert rows == ["1 client", "8 clients", "16 clients"]
    assert "| tokens a second | 90.0 | 100 | 0.90 |" in text
    assert "| label p95 busy over p50 idle | 2.50 | – |  |" in text
    assert "900 MiB before" in text
    assert "unknown after" in text


def test_long_history_names_what_was_dropped() -> None:
    job = figures(before=100, drop=900, after_1=110, dropped_turns=4, prompt_tokens=1400)
    results = {long_history.OURS: {"growing dialogue": job}}
    text = long_history.tables({"context_tokens": 2048, "results": results})
    assert "4 turns go at once, and the 1400 tokens" in text
    assert "| the turn that drops the oldest | 900 | 9.00 |" in text
    assert "| turn 3 after it | – | – |" in text


def test_shape_compares_the_two_kv_precisions() -> None:
    ways = {name: {"label": figures(ms=10)} for name in (shape.NOTHING_KEPT, shape.KV_FP32)}
    engine = {
        shape.KV_FP32: {"behind 40 tokens": figures(ms_a_step=20)},
        shape.KV_BF16: {
            "behind 40 tokens": figures(ms_a_step=25),
            "session": figures(resident_mb=60),
        },
    }
    text = shape.tables({"ways": ways, "engine": engine})
    assert "| behind 40 tokens | 20.0 | 25.0 | 1.25 |" in text
    assert "| session, MiB | – | 60.0 | – |" in text


def test_steps_shows_each_part_as_a_share() -> None:
    parts = figures(products=12, attention=4, rest=2, engine=2, step=20)
    text = steps.tables({"results": {steps.OURS: {"1 x 40 tokens": parts}}})
    assert "| matrix products | 12.0 | 0.60 |" in text


@pytest.fixture
def grown() -> dict[str, Any]:
    jobs = {
        decode_label(100): figures(ms_a_step=17),
        turn_label(100, is_kept=True): figures(ms=30),
        turn_label(100, is_kept=False): figures(ms=140),
        sequences_label(1): figures(ms_a_step=17, tokens_a_second=58),
    }
    return {"histories": [100, 600], "sequences": [1], "results": {"a model": jobs}}


def test_growth_has_a_row_for_each_length(grown: dict[str, Any]) -> None:
    text = growth.tables(grown)
    assert "| 100 | 17.0 | 30.0 | 140 |" in text
    assert "| 600 | – | – | – |" in text


def test_plot_is_drawn_and_leaves_gaps_out(tmp_path: Path, grown: dict[str, Any]) -> None:
    draw_growth(grown, tmp_path / "plots" / "growth.svg")
    assert "<svg" in (tmp_path / "plots" / "growth.svg").read_text("utf-8")


def test_plot_says_what_it_lacks(
    tmp_path: Path, grown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnavailableError, match="matplotlib"):
        draw_growth(grown, tmp_path / "growth.svg")


def test_quality_counts_files_alike() -> None:
    labels = {
        "one": figures(count=50, same_label_kv_fp32=1.0, same_label_kv_bf16=0.98),
        "two": figures(count=10, same_label_kv_fp32=0.9, same_label_kv_bf16=0.9),
    }
    result = {"labels": {quality.INT8: labels}, "dialogues": {}, "replies": {}}
    assert "| **mean over files** |  | 95.0% | 94.0% |" in quality.tables(result)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": "fine", "label": "Positive"}, "labels"),
        ({"turns": ["hello"], "ref_replies": ["hello!"]}, "dialogues"),
        ({"turns": ["hello"]}, None),
    ],
)
def test_kind_of_a_data_file(tmp_path: Path, fields: object, expected: str | None) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(json.dumps(fields) + "\n", "utf-8")
    assert quality.kind_of(path) == expected
