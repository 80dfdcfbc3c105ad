"""What clients saw -> figures; and that clients ask as often and as long as they are told."""

import threading
import time

import pytest

from bench.load import Answer, Question, label_probe, load_figures, percentile, reply_load


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3.0], 50, 3), ([4.0, 1, 3, 2], 50, 2), (list(range(1, 101)), 95, 95), ([1.0, 2], 95, 2)],
)
def test_percentile_is_one_of_the_values(
    values: list[float], percent: int, expected: float
) -> None:
    assert percentile(values, percent) == expected


def test_a_request_across_an_edge_counts_by_its_share() -> None:
    inside = Answer(begun=10, ended=20, label_at=11, first_at=12, num_tokens=8)
    half_outside = Answer(begun=5, ended=15, label_at=6, first_at=5, num_tokens=10)
    figures = load_figures([inside, half_outside], start=10, end=20)
    assert figures["requests_a_minute"] == pytest.approx(60 * 1.5 / 10)
    assert figures["tokens_a_second"] == pytest.approx((8 + 5) / 10)


def test_what_ran_outside_altogether_counts_nothing() -> None:
    figures = load_figures([Answer(1, 2, first_at=1.5, num_tokens=7)], start=10, end=20)
    assert figures["requests_a_minute"] == 0
    assert figures["tokens_a_second"] == 0


def test_a_reply_of_one_token_counts_where_it_came() -> None:
    answers = [Answer(11, 12, first_at=12, num_tokens=1), Answer(1, 2, first_at=2, num_tokens=1)]
    figures = load_figures(answers, start=10, end=20)
    assert figures["tokens_a_second"] == pytest.approx(0.1)


def test_times_are_from_the_request_in_ms() -> None:
    answers = [Answer(n, n + 2, label_at=n + 0.01 * n, first_at=n + 0.5) for n in range(1, 5)]
    figures = load_figures(answers, start=0, end=9)
    assert figures["label_p50"] == pytest.approx(20)
    assert figures["label_p95"] == pytest.approx(40)
    assert figures["first_p95"] == pytest.approx(500)


def test_labels_that_nobody_asked_for_have_no_figure() -> None:
    assert "label_p50" not in load_figures([Answer(0, 1, first_at=0.5)], 0, 1)


class Recorder:
    """Answers at once, and notes what it was asked and how many asked at a time."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()

    def __call__(self, question: Question) -> Answer:
        with self._lock:
            self.questions.append(question)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        begun = time.perf_counter()
        time.sleep(0.01)
        with self._lock:
            self._now -= 1
        ended = time.perf_counter()
        return Answer(begun, ended, ended, ended, question.new_tokens)


def test_clients_ask_side_by_side_for_label_and_reply() -> None:
    asked = Recorder()
    figures = reply_load(asked, clients=3, seconds=0.1, new_tokens=5)
    assert asked.most_at_once == 3
    assert all(q.has_label and q.has_reply and q.new_tokens == 5 for q in asked.questions)
    assert figures["tokens_a_second"] > 0


def test_clients_begin_with_texts_of_their_own() -> None:
    asked = Recorder()
    reply_load(asked, clients=4, seconds=0.05, new_tokens=1)
    assert len({question.text for question in asked.questions if question.seed == 0}) == 4


def test_prober_asks_for_labels_while_others_get_replies() -> None:
    asked = Recorder()
    figures = label_probe(asked, replies=2, seconds=0.1)
    probes = [question for question in asked.questions if question.has_label]
    beside = [question for question in asked.questions if question.has_reply]
    assert probes
    assert len(beside) >= 2
    assert not set(probes) & set(beside)
    assert figures["p95"] >= figures["p50"] > 0


def test_prober_alone_still_probes() -> None:
    asked = Recorder()
    label_probe(asked, replies=0, seconds=0.05)
    assert asked.questions
    assert not any(question.has_reply for question in asked.questions)
