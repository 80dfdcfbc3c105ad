"""Speculation: the reply is what it would be without, in fewer steps, and nothing is left of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.engine.drafting import MAX_DRAFT, Drafter
from services.engine.engine import Engine
from services.engine.loading import load_model
from services.engine.precision import Precision
from services.engine.tasks import ChatTask, FinishedEvent, Sampling
from tests.engine.stepwise import StepwiseForward, assert_free, outcome
from tests.tiny import write_checkpoint

LINE = "the weather is nice and the food was cold, the room was small, hello there"


def fed(prompt: list[int], *reply: int) -> Drafter:
    drafter = Drafter(prompt)
    for token_id in reply:
        drafter.append(token_id)
    return drafter


# --- what is foretold ---


def test_three_tokens_that_stood_before_foretell_what_followed_them() -> None:
    assert fed([1, 2, 3, 4, 5], 1, 2, 3).draft(1) == [4]
    assert fed([1, 2, 3, 4, 5], 2, 3).draft(8) == []


def test_draft_stays_within_the_room() -> None:
    drafter = fed([*range(20)], *range(10))
    assert drafter.draft(2) == [10, 11]
    assert drafter.draft(0) == []
    assert len(drafter.draft(100)) <= MAX_DRAFT


def test_drafts_grow_with_a_record_of_being_right_and_end_with_one_of_being_wrong() -> None:
    prompt = [*range(40)]
    right = fed(prompt, *range(20))
    assert len(right.draft(100)) == MAX_DRAFT
    wrong = fed([n for start in range(0, 60, 4) for n in (1, 2, 3, 100 + start)])
    for answer in range(200, 212):
        for token_id in (1, 2, 3, answer):
            wrong.append(token_id)
    for token_id in (1, 2, 3):
        wrong.append(token_id)
    assert wrong.draft(100) == []


# --- in the engine ---


@pytest.fixture
def forward(tiny_folder: Path) -> StepwiseForward:
    """It says its line twice, which the second time is foretold, and then something new."""
    return StepwiseForward(tiny_folder, lambda prompt: f"{LINE}. {LINE}! good bye")


def test_foretold_reply_is_the_same_in_fewer_steps(
    engine: Engine, forward: StepwiseForward
) -> None:
    tokens, end = outcome(engine.submit(forward.chat("hello", max_new_tokens=500)))
    assert forward.tokenizer.decode(tokens) == f"{LINE}. {LINE}! good bye"
    assert isinstance(end, FinishedEvent)
    assert (end.reason, end.completion_tokens) == ("stop", len(tokens))
    assert len(forward.steps) < 0.75 * len(tokens)
    assert_free(engine)


def test_task_that_may_not_draft_runs_a_step_for_each_token(
    engine: Engine, forward: StepwiseForward
) -> None:
    task = replace(forward.chat("hello", max_new_tokens=500), may_draft=False)
    tokens, _ = outcome(engine.submit(task))
    assert forward.tokenizer.decode(tokens) == f"{LINE}. {LINE}! good bye"
    assert len(forward.steps) > len(tokens)  # the prompt's own step too


@pytest.mark.parametrize("max_new_tokens", [1, 2, 40, 47, 48, 49])
def test_reply_is_never_longer_than_allowed(
    engine: Engine, forward: StepwiseForward, max_new_tokens: int
) -> None:
    tokens, end = outcome(engine.submit(forward.chat("hi", max_new_tokens=max_new_tokens)))
    assert isinstance(end, FinishedEvent)
    assert (end.reason, len(tokens)) == ("length", max_new_tokens)
    longest = len(forward.turn("hi")) + max_new_tokens
    assert max(sum(map(len, step)) for step in forward.steps) <= longest


def test_nothing_of_a_rejected_draft_is_kept(engine: Engine, forward: StepwiseForward) -> None:
    """The forward reads its K/V: a token too many in it would make another answer."""
    first = forward.chat("hello", key="a", max_new_tokens=500)
    reply, _ = outcome(engine.submit(first))
    second = forward.next_turn(first.prompt_ids, reply, "again")
    tokens, end = outcome(engine.submit(forward.chat(second, key="a", max_new_tokens=500)))
    assert tokens == reply
    assert isinstance(end, FinishedEvent)
    assert end.cached_tokens == len(first.prompt_ids) + len(reply)


# --- with arithmetic ---


def replies(
    folder: Path, precision: str, sampling: Sampling, prompts: list[list[int]]
) -> list[list[int]]:
    """Of all prompts side by side."""
    engine = Engine(
        lambda: load_model(folder, Precision(precision)), kv_budget_bytes=2**26, max_running=8
    )
    engine.start()
    try:
        engine.wait_loaded()
        handles = [engine.submit(ChatTask(prompt, frozenset(), 60, sampling)) for prompt in prompts]
        return [outcome(handle)[0] for handle in handles]
    finally:
        engine.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drafting")
    write_checkpoint(folder)
    return folder


PROMPTS = [[*range(start, start + 40)] for start in (5, 40, 90, 130)]


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.8, top_p=0.9, seed=3)], ids=["greedy", "sampled"]
)
def test_replies_are_those_without_drafts(
    folder: Path, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts that are right for 0 to 4 tokens, and then wrong."""
    monkeypatch.setattr(Drafter, "draft", lambda self, room: [])
    plain = replies(folder, "fp32", sampling, PROMPTS)
    num_drafted = 0

    def partly_right(self: Drafter, room: int) -> list[int]:
        nonlocal num_drafted
        ids = self._lookup._ids
        own = plain[PROMPTS.index(ids[: len(PROMPTS[0])])]
        done = len(ids) - len(PROMPTS[0])
        draft = [*own[done : done + done % 5], 0, 1][:room]
        num_drafted += len(draft)
        return draft

    monkeypatch.setattr(Drafter, "draft", partly_right)
    assert replies(folder, "fp32", sampling, PROMPTS) == plain
    assert num_drafted > 100


def test_int8_replies_are_the_same_alone_and_side_by_side(folder: Path) -> None:
    alone = [replies(folder, "int8", Sampling(), [prompt])[0] for prompt in PROMPTS]
    assert replies(folder, "int8", Sampling(), PROMPTS) == alone
