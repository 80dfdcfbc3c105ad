"""Clients that ask all the time, and what they saw; the same over HTTP and at the engine."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from bench.contender import Figures
from bench.prompts import MESSAGES

WARM_SHARE = 0.2  # of the time, at its beginning: not all clients have begun to get replies
PROBE_PAUSE_S = 0.1
PROBED_NEW_TOKENS = 128  # of the replies that run beside the prober


@dataclass(frozen=True, slots=True)
class Question:
    """What a client asks for: a label, a reply, or both."""

    text: str
    has_label: bool
    has_reply: bool
    new_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as its client saw it; `time.perf_counter` seconds."""

    begun: float
    ended: float
    label_at: float | None = None
    first_at: float | None = None
    num_tokens: int = 0


class Client(Protocol):
    """Asks one question and reads the answer to its end."""

    def __call__(self, question: Question) -> Answer: ...


def reply_load(ask: Client, clients: int, seconds: float, new_tokens: int) -> Figures:
    """So many clients, each asking for a label and a reply again and again, first turns all.

    In ms: `label_p50`, `label_p95`, `first_p50`, `first_p95`. In all: `tokens_a_second`,
    `requests_a_minute`. Questions and their seeds are the same in every run.
    """
    begun = time.perf_counter()
    end = begun + seconds
    with ThreadPoolExecutor(clients) as pool:
        asked = [
            pool.submit(_ask_until, ask, _questions(number, new_tokens), lambda: _is_over(end))
            for number in range(clients)
        ]
        answers = [answer for future in asked for answer in future.result()]
    return load_figures(answers, begun + WARM_SHARE * seconds, end)


def label_probe(ask: Client, replies: int, seconds: float) -> Figures:
    """`p50` and `p95` (ms) of labels asked for one at a time, while so many replies run."""
    stop = threading.Event()
    with ThreadPoolExecutor(replies + 1) as pool:
        beside = [
            pool.submit(
                _ask_until,
                ask,
                _questions(number, PROBED_NEW_TOKENS, has_label=False),
                stop.is_set,
            )
            for number in range(replies)
        ]
        try:
            time.sleep(WARM_SHARE * seconds)
            times = _probe(ask, time.perf_counter() + seconds)
        finally:
            stop.set()
        for future in beside:
            future.result()
    return {"p50": percentile(times, 50), "p95": percentile(times, 95)}


def load_figures(answers: Sequence[Answer], start: float, end: float) -> Figures:
    """Rates between `start` and `end`; times of all that began before the end.

    A request that stands across an edge counts by the share of its time that is inside, and its
    tokens likewise: else short runs would depend on who happens to end when.
    """
    span = end - start
    tokens = sum(
        answer.num_tokens * _share(answer.first_at, answer.ended, start, end)
        for answer in answers
        if answer.first_at is not None
    )
    requests = sum(_share(answer.begun, answer.ended, start, end) for answer in answers)
    figures = {"tokens_a_second": tokens / span, "requests_a_minute": 60 * requests / span}
    for name in ("label", "first"):
        times = [
            1000 * (at - answer.begun)
            for answer in answers
            if (at := getattr(answer, f"{name}_at")) is not None
        ]
        if times:
            figures |= {f"{name}_p{p}": percentile(times, p) for p in (50, 95)}
    return figures


def percentile(values: Sequence[float], percent: int) -> float:
    """The least value that so many percent of them don't exceed (nearest rank)."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def _share(begun: float, ended: float, start: float, end: float) -> float:
    """What part of a request's time lies between `start` and `end`."""
    if ended <= begun:  # a reply of one token
        return float(start <= begun <= end)
    return max(0.0, min(ended, end) - max(begun, start)) / (ended - begun)


def _is_over(end: float) -> bool:
    return time.perf_counter() >= end


def _ask_until(
    ask: Client, questions: Iterator[Question], is_over: Callable[[], bool]
) -> list[Answer]:
    answers = []
    while not is_over():
        answers.append(ask(next(questions)))
    return answers


def _probe(ask: Client, end: float) -> list[float]:
    """How long each label took, in ms."""
    times = []
    for question in _questions(0, 0, has_reply=False):
        answer = ask(question)
        times.append(1000 * (answer.ended - answer.begun))
        time.sleep(PROBE_PAUSE_S)
        if _is_over(end):
            break
    return times


def _questions(
    number: int, new_tokens: int, *, has_label: bool = True, has_reply: bool = True
) -> Iterator[Question]:
    """One client's, without end."""
    for seed in itertools.count():
        text = MESSAGES[(number + seed) % len(MESSAGES)]
        yield Question(text, has_label, has_reply, new_tokens, seed)
