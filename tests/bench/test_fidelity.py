"""Two tables of logits against each other; where replies part."""

import pytest
import torch

from bench.fidelity import compare, parting


def test_a_table_against_itself_loses_nothing() -> None:
    logits = torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    figures = compare(logits, logits, [1, 2, 3, 4, 5])
    assert figures["nll"] == 0
    assert figures["kl"] == pytest.approx(0, abs=1e-5)
    assert figures["same_choice"] == 5


def test_figures_are_those_of_the_definitions() -> None:
    generator = torch.Generator().manual_seed(1)
    exact, rough = torch.randn(2, 4, 9, generator=generator)
    following = [0, 8, 3, 3]
    log_p, log_q = exact.log_softmax(-1), rough.log_softmax(-1)
    rows = torch.arange(4)
    figures = compare(exact, rough, following)
    nll = float((log_p[rows, following] - log_q[rows, following]).sum())
    kl = float((log_p.exp() * (log_p - log_q)).sum())
    assert figures["nll"] == pytest.approx(nll, abs=1e-4)
    assert figures["kl"] == pytest.approx(kl, abs=1e-4)
    assert figures["same_choice"] == int((exact.argmax(-1) == rough.argmax(-1)).sum())


def test_a_shift_of_all_logits_changes_nothing() -> None:
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(2))
    figures = compare(logits, logits + 4, [0, 1, 2])
    assert figures["nll"] == pytest.approx(0, abs=1e-5)
    assert figures["kl"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [1, 5, 3], 1), ([9], [8], 0)],
)
def test_parting(first: list[int], second: list[int], expected: int | None) -> None:
    assert parting(first, second) == expected
