"""The report: figures as people read them, and nothing of the machine that isn't asked for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.report import Report, cell, markdown_table, rounded, shown, shown_ratio
from bench.rounds import spread


@pytest.fixture
def report() -> Report:
    return Report("spring", 3, False, {"cores": "2"}, "tiny")


def _tables(result: Mapping[str, Any]) -> str:
    return f"It took {result['ms']} ms.\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (123.4, "123"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.01234, "0.0123"),
        (0.0, "0"),
        (-12.34, "-12.3"),
        (0.00001, "0.0000100"),
        (0.9996, "1.00"),
        (99.96, "100"),
    ],
)
def test_three_digits_tell(value: float, text: str) -> None:
    assert rounded(value) == text


def test_spread_and_ratio_are_shown_with_what_is_missing() -> None:
    ours, theirs = spread([21.3, 20.9, 22.0]), spread([10.0, 10.0, 10.0])
    assert shown(ours) == "21.3 (20.9–22.0)"
    assert shown(theirs) == "10.0"
    assert shown_ratio(ours, theirs) == "2.13"
    results = {"ours": {"decode": {"ms": ours}}}
    assert cell(results, "ours", "decode", "ms") is ours
    for missing in (("theirs", "decode", "ms"), ("ours", "first", "ms"), ("ours", "decode", "s")):
        assert shown(cell(results, *missing)) == "–"
        assert shown_ratio(ours, cell(results, *missing)) == "–"


def test_table_has_its_numbers_to_the_right() -> None:
    assert markdown_table(("engine", "ms"), [("a", "1.0")]) == (
        "| engine | ms |\n| :-- | --: |\n| a | 1.0 |"
    )


def test_both_files_have_all_of_it(report: Report, tmp_path: Path) -> None:
    report.chapters["speed"] = {"title": "Speed", "seconds": 90.0, "result": {"ms": 4}}
    report.skip("llama.cpp", "it isn't|installed:\nno wheel")
    data, text = report.write(tmp_path / "new", {"speed": _tables})
    written = json.loads(data.read_text("utf-8"))
    assert written["sections"]["speed"]["result"] == {"ms": 4}
    assert written["machine"] == {"cores": "2"}
    assert written["skipped"][0]["what"] == "llama.cpp"
    markdown = text.read_text("utf-8")
    assert "## Speed\n\nIt took 4 ms.\n\nMeasured in 1.5 minutes." in markdown
    assert "| llama.cpp | it isn't\\|installed: no wheel |" in markdown
    assert "| cores | 2 |" in markdown


def test_quick_run_says_so(report: Report) -> None:
    assert "quick" not in report.to_markdown({})
    report.is_quick = True
    assert "not to quote" in report.to_markdown({})


@pytest.mark.parametrize(
    ("why", "kept"),
    [
        ("cannot open '/home/somebody/models/config.json'", "cannot open 'config.json'"),
        ("File /srv/x.py, and /opt/a/b failed", "File x.py, and b failed"),
        ("3/4 of https://example.org/a/b and models/stand-in", None),
    ],
)
def test_folders_of_the_machine_are_cut(report: Report, why: str, kept: str | None) -> None:
    report.skip("it", why)
    assert report.skipped[0]["why"] == (kept or why)
