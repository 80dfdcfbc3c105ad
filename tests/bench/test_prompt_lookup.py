"""Drafts from the prompt and the reply, how far policies go, and the steps that are counted."""

import pytest

from bench.draft_policies import (
    FIRST_PAUSE,
    NEVER,
    POLICIES,
    BackingOff,
    Fixed,
    Policy,
)
from bench.prompt_lookup import simulate
from services.engine.drafting import LONGEST_MATCH, MAX_DRAFT, ByRecord, Lookup

PROMPT = [1, 2, 3, 4, 5, 9, 1]
TWO = Policy(2, lambda: Fixed(2))
FOUR = Policy(2, lambda: Fixed(4))


def test_draft_follows_the_last_earlier_place() -> None:
    lookup = Lookup(2, [1, 2, 3, 1, 2, 4, 1, 2])
    assert lookup.draft(3) == [4, 1, 2]


def test_without_an_earlier_place_there_is_no_draft() -> None:
    lookup = Lookup(2, [1, 2, 3])
    assert lookup.draft(4) == []
    assert lookup.matched() == 0


def test_a_loop_goes_on() -> None:
    assert Lookup(2, [7, 8, 7, 8]).draft(5) == [7, 8, 7, 8, 7]


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([1, 2, 3, 9, 1, 2], 2),
        ([5, 1, 2, 3, 9, 5, 1, 2], 3),
        ([6, 1, 2, 3, 9, 5, 1, 2], 2),
        ([*range(20), *range(19)], LONGEST_MATCH),
    ],
)
def test_length_of_a_match(token_ids: list[int], expected: int) -> None:
    assert Lookup(2, token_ids).matched() == expected


def test_without_drafts_each_token_but_the_first_is_a_step() -> None:
    counts = simulate(PROMPT, [2, 3, 4, 7], 8, POLICIES[NEVER])
    assert (counts.tokens, counts.steps) == (3, {1: 3})


def test_a_right_draft_brings_its_tokens_and_one_more() -> None:
    counts = simulate(PROMPT, [2, 3, 4, 7], 8, TWO)  # 1, 2 foretells 3, 4; then comes 7
    assert (counts.tokens, counts.steps) == (3, {3: 1})


def test_a_wrong_draft_costs_rows_and_brings_one_token() -> None:
    counts = simulate(PROMPT, [2, 8, 8], 8, TWO)
    assert (counts.tokens, counts.steps) == (2, {3: 1, 1: 1})


def test_a_partly_right_draft_is_taken_up_to_its_fault() -> None:
    counts = simulate(PROMPT, [2, 3, 8, 7], 8, FOUR)  # 3 of 3, 4, 5, 9 came, then 8
    assert (counts.tokens, counts.steps) == (3, {5: 1, 1: 1})


def test_nothing_is_drafted_over_the_limit() -> None:
    assert simulate(PROMPT, [2, 3, 4], 3, FOUR).steps == {2: 1}


def test_an_end_is_no_reason_to_draft_less() -> None:
    assert simulate(PROMPT, [2, 3], 8, FOUR).steps == {5: 1}


def test_the_bound_pays_for_right_tokens_alone() -> None:
    bound = Policy(2, lambda: Fixed(4), is_bound=True)
    assert simulate(PROMPT, [2, 3, 8, 7], 8, bound).steps == {2: 1, 1: 1}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_brings_all_tokens_within_its_rows(name: str) -> None:
    reply = [2, 3, 4, 5, 9, 1, 2, 3, 4, 6, 6, 6, 6, 6, 6, 1, 2, 3]
    counts = simulate(PROMPT, reply, 64, POLICIES[name])
    assert counts.tokens == len(reply) - 1
    rows = sum(rows * steps for rows, steps in counts.steps.items())
    assert max(counts.steps) <= 1 + MAX_DRAFT
    assert sum(counts.steps.values()) <= counts.tokens <= rows


def test_backing_off_grows_and_pauses() -> None:
    pace = BackingOff()
    assert pace.most(3) == 2
    pace.verified(2, 2)
    assert pace.most(3) == 4
    pace.verified(4, 1)
    assert pace.most(3) == 4
    pace.verified(4, 0)
    for _ in range(FIRST_PAUSE):
        assert pace.most(3) == 0
        pace.saw(3, False)
    assert pace.most(3) == 2
    pace.verified(2, 0)
    for _ in range(2 * FIRST_PAUSE):
        assert pace.most(3) == 0
        pace.saw(0, False)
    assert pace.most(3) == 1


def test_record_decides_for_matches_as_long() -> None:
    pace = ByRecord(0.5)
    untried = pace.most(3)
    for _ in range(8):
        pace.saw(3, False)
        pace.saw(6, True)
    assert pace.most(3) == 0 < untried < pace.most(6)
