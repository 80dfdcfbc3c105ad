"""Scores of labels: normalised, calibrated, decided."""

import math
from itertools import pairwise

import pytest

from services.prompt_encoding import EncodedPrompt
from services.prompts import Prompt
from services.sentiment import LabelScorer

PROMPT = Prompt("mood", "label", "", "", "", "none", 2, labels=("Good", "Bad", "Flat"))


@pytest.fixture
def scorer() -> LabelScorer:
    return LabelScorer(EncodedPrompt(PROMPT, (1, 2), (3,), (4,), ((5,), (6,), (7, 8))))


def logs(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def test_task_is_the_prompt_around_the_text(scorer: LabelScorer) -> None:
    task = scorer.task([9, 9])
    assert list(task.prompt_ids) == [1, 2, 9, 9, 3]
    assert task.choices == ((5,), (6,), (7, 8))


def test_scores_are_normalised_over_the_labels(scorer: LabelScorer) -> None:
    verdict = scorer.decide(logs(0.02, 0.06, 0.12))
    assert verdict.scores == pytest.approx({"Good": 0.1, "Bad": 0.3, "Flat": 0.6})
    assert (verdict.label, verdict.confidence) == ("Flat", verdict.scores["Flat"])
    assert list(verdict.scores) == ["Good", "Bad", "Flat"]


@pytest.mark.parametrize(
    "row", [[-1e4, -1e4 - 3, -1e4 - 1], [0.0, -800.0, -900.0], [-0.1, -0.1, -0.1]]
)
def test_scores_sum_to_one_however_small(scorer: LabelScorer, row: list[float]) -> None:
    assert sum(scorer.decide(row).scores.values()) == pytest.approx(1.0, abs=1e-12)


def test_calibration_takes_off_what_content_free_texts_get(scorer: LabelScorer) -> None:
    scorer.calibrate([logs(0.8, 0.1, 0.1), logs(0.08, 0.01, 0.01)])
    verdict = scorer.decide(logs(0.8, 0.1, 0.1))
    assert verdict.scores == pytest.approx(dict.fromkeys(PROMPT.labels, 1 / 3))


def test_calibration_averages_log_probabilities(scorer: LabelScorer) -> None:
    scorer.calibrate([logs(0.9, 0.05, 0.05), logs(0.1, 0.45, 0.45)])
    biased = scorer.decide(logs(1 / 3, 1 / 3, 1 / 3)).scores
    # Geometric means of the rows are 0.3, 0.15 and 0.15.
    assert biased == pytest.approx({"Good": 0.2, "Bad": 0.4, "Flat": 0.4})


def test_calibration_can_turn_a_verdict(scorer: LabelScorer) -> None:
    row = logs(0.6, 0.3, 0.1)
    assert scorer.decide(row).label == "Good"
    scorer.calibrate([logs(0.9, 0.05, 0.05)])
    assert scorer.decide(row).label == "Bad"


def test_second_calibration_takes_the_first_ones_place(scorer: LabelScorer) -> None:
    scorer.calibrate([logs(0.9, 0.05, 0.05)])
    scorer.calibrate([logs(1 / 3, 1 / 3, 1 / 3)])
    assert scorer.decide(logs(0.6, 0.3, 0.1)).label == "Good"


def test_more_of_a_label_never_means_less_confidence(scorer: LabelScorer) -> None:
    scores = [scorer.decide(logs(p, 0.2, 0.2)).scores["Good"] for p in (0.1, 0.2, 0.4, 0.6)]
    assert all(less < more for less, more in pairwise(scores))
