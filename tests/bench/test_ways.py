"""The articles' way and ours get the same jobs."""

from typing import Any

import pytest

from bench.contender import Figures
from bench.ways import ArticlesWay, OursKeeping, make_ways


class Asked:
    """A contender that takes a millisecond a token, and notes its jobs."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, dict[str, Any]]] = []

    def run(self, job: str, **params: Any) -> Figures:
        self.jobs.append((job, params))
        return {"ms": params.get("prompt_tokens", 0) + params.get("new_tokens", 0)}


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def articles(asked: Asked) -> ArticlesWay:
    return ArticlesWay(asked, label_tokens=200, chat_tokens=20)


def test_articles_label_is_the_whole_prompt_and_two_tokens(
    asked: Asked, articles: ArticlesWay
) -> None:
    assert articles.run("label", text_tokens=10) == {"ms": 212}
    assert asked.jobs == [("reply", {"prompt_tokens": 210, "new_tokens": 2})]


def test_articles_turn_has_the_whole_history_in_its_prompt(articles: ArticlesWay) -> None:
    assert articles.run("turn", history_tokens=100, text_tokens=10) == {"ms": 131}


def test_articles_requests_run_one_after_the_other(asked: Asked, articles: ArticlesWay) -> None:
    figures = articles.run(
        "requests", batch=3, history_tokens=0, text_tokens=10, new_tokens=8, temperature=0, top_p=1
    )
    one = (210 + 2) + (30 + 8)
    assert len(asked.jobs) == 6
    assert figures["requests_a_minute"] == pytest.approx(60_000 / one)
    assert figures["ms_a_token"] == pytest.approx(one / 8)


def test_other_jobs_are_handed_on(asked: Asked, articles: ArticlesWay) -> None:
    articles.run("memory")
    assert asked.jobs == [("memory", {})]


@pytest.mark.parametrize("job", ["label", "turn", "requests"])
def test_ours_is_told_whether_it_may_keep(asked: Asked, job: str) -> None:
    OursKeeping(asked, is_kept=False).run(job, text_tokens=10)
    assert asked.jobs == [(job, {"text_tokens": 10, "is_kept": False})]


def test_jobs_that_keep_nothing_are_not_told(asked: Asked) -> None:
    OursKeeping(asked, is_kept=True).run("decode", sequences=1)
    assert asked.jobs == [("decode", {"sequences": 1})]


def test_ways_stand_in_the_ladders_order_without_those_that_cannot_run(asked: Asked) -> None:
    class Lengths(Asked):
        def run(self, job: str, **params: Any) -> Figures:
            return {"label": 200.0, "chat": 20.0} if job == "lengths" else super().run(job)

    ours = Lengths()
    ways = make_ways(
        ours,
        {"articles": asked},
        not_keeping={"fp32": None, "int8": ours},
        keeping={"kept": ours},
    )
    assert list(ways) == ["articles", "int8", "kept"]
    assert ways["articles"] == ArticlesWay(asked, label_tokens=200, chat_tokens=20)
    assert [ways[name] for name in ("int8", "kept")] == [
        OursKeeping(ours, is_kept=False),
        OursKeeping(ours, is_kept=True),
    ]
