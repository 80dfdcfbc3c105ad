"""Section B's tables, whoever could run."""

from bench.peers import COLUMNS, COMPILED, LLAMA_CPP, OURS, jobs, tables
from bench.rounds import Results, spread


def _results(**values: float) -> Results:
    return {
        name: {"decode 8": {"tokens_a_second": spread([value, value])}}
        for name, value in values.items()
    }


def test_each_is_compared_with_llama_cpp_and_ours_with_each() -> None:
    text = tables({"results": _results(**{OURS: 240.0, LLAMA_CPP: 120.0}), "compile_s": None})
    times, over_llama, ours_over = text.split("\n\n")[1::2]
    assert f"| {OURS} | – | – | – | – | 240 | – |" in times
    assert f"| {OURS} | – | – | – | – | 2.00 | – |" in over_llama
    assert f"| {LLAMA_CPP} | – | – | – | – | 1.00 | – |" in over_llama
    assert f"| {LLAMA_CPP} | – | – | – | – | 2.00 | – |" in ours_over
    assert OURS not in ours_over


def test_without_llama_cpp_there_is_no_ratio_to_it() -> None:
    text = tables({"results": _results(**{OURS: 240.0, COMPILED: 200.0}), "compile_s": 7.4})
    assert f"Over {LLAMA_CPP}" not in text
    assert "1.20" in text
    assert "compiling took 7 s" in text


def test_every_column_has_its_job() -> None:
    assert {column[0] for column in COLUMNS} == {job.label for job in jobs(is_quick=True)}
