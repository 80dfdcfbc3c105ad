"""Replies over the scripted forward: their ends, and sequences that join and leave."""

from collections.abc import Callable

import pytest

from services.engine.engine import Engine
from services.engine.scheduler import CHUNK_TOKENS
from services.engine.tasks import FinishedEvent, LabelTask, Sampling
from tests.engine.stepwise import StepwiseForward, outcome

TEXTS = ["hello", "今天的服务太差了", "the food was cold", "你好", "a", "bad " * 60]


def test_reply_and_its_usage(engine: Engine, forward: StepwiseForward) -> None:
    task = forward.chat("hello there")
    tokens, end = outcome(engine.submit(task))
    assert forward.tokenizer.decode(tokens) == "You said hello there in turn 1"
    assert end == FinishedEvent("stop", len(task.prompt_ids), 0, len(tokens))


def test_longest_answer_ends_by_length(engine: Engine, forward: StepwiseForward) -> None:
    whole, _ = outcome(engine.submit(forward.chat("hello")))
    tokens, end = outcome(engine.submit(forward.chat("hello", max_new_tokens=5)))
    assert tokens == whole[:5]
    assert isinstance(end, FinishedEvent)
    assert (end.reason, end.completion_tokens) == ("length", 5)


def test_answer_of_just_the_longest_length_still_ends_by_length(
    engine: Engine, forward: StepwiseForward
) -> None:
    whole, _ = outcome(engine.submit(forward.chat("hello")))
    _, end = outcome(engine.submit(forward.chat("hello", max_new_tokens=len(whole))))
    assert isinstance(end, FinishedEvent)
    assert end.reason == "length"


@pytest.mark.parametrize("end_token", ["<|im_end|>", "<|endoftext|>"])
def test_every_end_token_stops(engine: Engine, forward: StepwiseForward, end_token: str) -> None:
    forward.answer = lambda prompt: f"good{end_token} food"
    tokens, end = outcome(engine.submit(forward.chat("hello")))
    assert tokens == forward.ids("good")
    assert isinstance(end, FinishedEvent)
    assert (end.reason, end.completion_tokens) == ("stop", len(tokens))


def test_reply_may_be_empty(engine: Engine, forward: StepwiseForward) -> None:
    forward.answer = lambda prompt: ""
    task = forward.chat("hello")
    tokens, end = outcome(engine.submit(task))
    assert (tokens, end) == ([], FinishedEvent("stop", len(task.prompt_ids), 0, 0))


def test_sequence_joins_between_two_steps(engine: Engine, forward: StepwiseForward) -> None:
    first, second = forward.chat("hello"), forward.chat("good food")
    forward.hold()
    engine.submit(first)
    forward.wait_step()
    engine.submit(second)
    forward.pass_step()
    forward.run_step()
    forward.wait_step()
    reply = forward.ids("You said hello")
    assert forward.steps == [[first.prompt_ids], [reply[:1], second.prompt_ids]]


def test_sequence_leaves_and_the_others_go_on(engine: Engine, forward: StepwiseForward) -> None:
    forward.answer = lambda prompt: "good" if "short" in prompt else "the food was cold today"
    forward.hold()
    handles = [engine.submit(forward.chat("long"))]
    forward.wait_step()
    handles.append(engine.submit(forward.chat("short")))
    forward.let_go()
    replies = [forward.tokenizer.decode(outcome(handle)[0]) for handle in handles]
    assert replies == ["the food was cold today", "good"]
    widths = [len(step) for step in forward.steps]
    assert (widths[0], max(widths), widths[-1]) == (1, 2, 1)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_batched_replies_equal_single_ones(
    engine: Engine, forward: StepwiseForward, temperature: float
) -> None:
    tasks = [
        forward.chat(text, sampling=Sampling(temperature, seed=seed))
        for seed, text in enumerate(TEXTS)
    ]
    alone = [outcome(engine.submit(task)) for task in tasks]
    forward.hold()
    first = engine.submit(tasks[0])
    forward.wait_step()  # the others stand in the inbox when the next step is made up
    others = [engine.submit(task) for task in tasks[1:]]
    forward.let_go()
    assert [outcome(handle) for handle in [first, *others]] == alone
    assert max(len(step) for step in forward.steps) == len(tasks)


def test_prompt_runs_in_chunks_of_its_own(engine: Engine, forward: StepwiseForward) -> None:
    """Cut where it is cut alone, whatever runs beside it."""
    task = forward.chat("x" * 300)
    forward.hold()
    engine.submit(forward.chat("hello"))
    forward.wait_step()
    handle = engine.submit(task)
    engine.submit(forward.chat("y" * 200))
    forward.let_go()
    outcome(handle)
    prompt = list(task.prompt_ids)
    chunks = [prompt[at : at + CHUNK_TOKENS] for at in range(0, len(prompt), CHUNK_TOKENS)]
    assert [segment for segment in forward.ran() if segment in chunks] == chunks


def test_no_more_chats_run_than_allowed(
    start: Callable[..., Engine], forward: StepwiseForward
) -> None:
    engine = start(max_running=2)
    forward.hold()
    handles = [engine.submit(forward.chat(text)) for text in TEXTS[:5]]
    forward.let_go()
    for handle, text in zip(handles, TEXTS, strict=False):
        said = forward.tokenizer.decode(outcome(handle)[0])
        assert said == f"You said {text} in turn 1"
    assert max(len(step) for step in forward.steps) == 2


def test_labels_are_admitted_while_chats_wait(
    start: Callable[..., Engine], forward: StepwiseForward
) -> None:
    engine = start(max_running=1)
    label = LabelTask(forward.turn("Answer with one word: bad"), ((1,), (2,)))
    forward.hold()
    engine.submit(forward.chat("runs"))
    forward.wait_step()
    waiting = forward.chat("waits")
    engine.submit(waiting)
    engine.submit(label)
    forward.pass_step()
    forward.run_step()
    forward.wait_step()
    assert label.prompt_ids in forward.steps[1]
    assert waiting.prompt_ids not in forward.steps[1]


def test_seam_hands_out_plain_numbers(engine: Engine, forward: StepwiseForward) -> None:
    tokens, end = outcome(engine.submit(forward.chat("hello")))
    assert {type(token) for token in tokens} == {int}
    assert isinstance(end, FinishedEvent)
    assert {type(end.prompt_tokens), type(end.cached_tokens), type(end.completion_tokens)} == {int}
