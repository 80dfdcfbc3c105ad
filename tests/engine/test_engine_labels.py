"""Label tasks over the scripted forward, whose next token has logit 10 and all others 0."""

import math

import pytest

from services.engine.engine import Engine
from services.engine.tasks import EngineError, FailedEvent, LabelTask, ScoredEvent
from tests.engine.stepwise import StepwiseForward, outcome

REPLY = "good food"


@pytest.fixture
def prompt(forward: StepwiseForward) -> list[int]:
    forward.answer = lambda prompt: REPLY
    return forward.turn("hello")


def choices_of(forward: StepwiseForward) -> tuple[tuple[int, ...], ...]:
    """Three labels with one first token: the reply, one that goes on otherwise, one that ends."""
    end, other = forward.ids("<|im_end|>x")
    reply = forward.ids(REPLY)
    assert len(reply) == 2
    return (*reply, end), (reply[0], other, end), (reply[0], end)


def expected(forward: StepwiseForward, choice: tuple[int, ...]) -> float:
    """Summed by hand: a token of the reply at its place is a hit."""
    norm = math.log(math.exp(10) + len(forward.tokenizer) - 1)
    reply = [*forward.ids(REPLY), *forward.ids("<|im_end|>")]
    return sum(10 * (a == b) - norm for a, b in zip(choice, reply, strict=False))


def test_first_tokens_decide_where_they_differ(
    engine: Engine, forward: StepwiseForward, prompt: list[int]
) -> None:
    choices = ((forward.ids(REPLY)[0],), (1,), (2,))
    tokens, end = outcome(engine.submit(LabelTask(prompt, choices)))
    assert tokens == []
    assert isinstance(end, ScoredEvent)
    assert end.log_probs == pytest.approx([expected(forward, choice) for choice in choices])
    assert forward.steps == [[prompt]]


def test_branches_are_summed_to_their_end(
    engine: Engine, forward: StepwiseForward, prompt: list[int]
) -> None:
    choices = choices_of(forward)
    _, end = outcome(engine.submit(LabelTask(prompt, choices)))
    assert isinstance(end, ScoredEvent)
    assert end.log_probs == pytest.approx([expected(forward, choice) for choice in choices])


def test_branches_run_in_one_step(
    engine: Engine, forward: StepwiseForward, prompt: list[int]
) -> None:
    choices = choices_of(forward)
    outcome(engine.submit(LabelTask(prompt, choices)))
    assert forward.steps == [[prompt], [list(choice[:-1]) for choice in choices]]


def test_choice_of_one_token_needs_no_branch(
    engine: Engine, forward: StepwiseForward, prompt: list[int]
) -> None:
    choices = (choices_of(forward)[0], (5,))
    _, end = outcome(engine.submit(LabelTask(prompt, choices)))
    assert isinstance(end, ScoredEvent)
    assert end.log_probs == pytest.approx([expected(forward, choice) for choice in choices])
    assert [len(step) for step in forward.steps] == [1, 1]


def test_nothing_of_a_label_is_kept(
    engine: Engine, forward: StepwiseForward, prompt: list[int]
) -> None:
    outcome(engine.submit(LabelTask(prompt, choices_of(forward))))
    stats = engine.stats()
    assert (stats.num_sequences, stats.reserved_bytes, stats.idle_bytes) == (0, 0, 0)


def test_long_prompt_is_scored_at_its_end(engine: Engine, forward: StepwiseForward) -> None:
    forward.answer = lambda prompt: REPLY if prompt.count("x") == 400 else "bad"
    choices = choices_of(forward)
    _, end = outcome(engine.submit(LabelTask(forward.turn("x" * 400), choices)))
    assert isinstance(end, ScoredEvent)
    assert end.log_probs == pytest.approx([expected(forward, choice) for choice in choices])


@pytest.mark.parametrize("is_branching", [False, True])
def test_label_ends_before_its_chats_first_prefill(
    engine: Engine, forward: StepwiseForward, prompt: list[int], is_branching: bool
) -> None:
    choices = choices_of(forward) if is_branching else ((1,), (2,))
    forward.hold()
    engine.submit(forward.chat("other"))
    forward.wait_step()
    label = engine.submit(LabelTask(prompt, choices))
    task = forward.chat("mine", after=(label,))
    chat = engine.submit(task)
    while not label.is_ended:
        assert task.prompt_ids not in forward.ran()
        forward.pass_step()
        forward.wait_step()
    # The label's event is out while the chat's first step still waits to run.
    assert isinstance(label.next_event(0), ScoredEvent)
    assert task.prompt_ids not in forward.ran()
    forward.let_go()
    outcome(chat)
    assert task.prompt_ids in forward.ran()


def test_chat_goes_on_after_a_label_that_failed(
    engine: Engine, forward: StepwiseForward, prompt: list[int]
) -> None:
    label = engine.submit(LabelTask(prompt, ()))
    tokens, _ = outcome(engine.submit(forward.chat("hello", after=(label,))))
    assert isinstance(outcome(label)[1], FailedEvent)
    assert tokens == forward.ids(REPLY)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_an_error(
    engine: Engine, forward: StepwiseForward, prompt: list[int], value: float
) -> None:
    forward.poison = value
    _, end = outcome(engine.submit(LabelTask(prompt, ((1,), (2,)))))
    assert isinstance(end, FailedEvent)
    assert isinstance(end.error, EngineError)
    assert "not finite" in str(end.error)


def test_labels_batched_equal_single_ones(engine: Engine, forward: StepwiseForward) -> None:
    positive, negative = forward.ids("Positive"), forward.ids("Negative")
    choices = (tuple(positive), tuple(negative))
    texts = ["bad food", "nice weather", "差", "bad " * 70, "good"]
    tasks = [LabelTask(forward.turn(f"Answer with one word: {t}"), choices) for t in texts]
    alone = [outcome(engine.submit(task)) for task in tasks]
    handles = [engine.submit(task) for task in tasks]
    assert [outcome(handle) for handle in handles] == alone
    assert len({end.log_probs for _, end in alone if isinstance(end, ScoredEvent)}) == 2
