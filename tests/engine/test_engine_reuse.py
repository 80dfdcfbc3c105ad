"""K/V found again: shared prefixes, a key's longest common token prefix, and forgetting."""

import pytest

from services.engine.engine import Engine
from services.engine.kv_cache import MAX_COPIED_TOKENS
from services.engine.scheduler import CHUNK_TOKENS
from services.engine.tasks import FailedEvent, FinishedEvent, LabelTask
from tests.engine.stepwise import StepwiseForward, assert_free, outcome

HEAD = "<|im_start|>system\ngood weather<|im_end|>\n"


def cached_tokens(end: object) -> int:
    assert isinstance(end, FinishedEvent)
    return end.cached_tokens


# --- prefixes ---


def test_prefix_is_never_prefilled_again(engine: Engine, forward: StepwiseForward) -> None:
    head = forward.ids(HEAD)
    engine.add_prefix(head)
    forward.steps.clear()
    label = LabelTask(forward.turn("bad", head), ((1,), (2,)))
    task = forward.chat(forward.turn("hello", head))
    outcome(engine.submit(label))
    tokens, end = outcome(engine.submit(task))
    assert forward.steps[0] == [label.prompt_ids[len(head) :]]
    assert forward.steps[1] == [task.prompt_ids[len(head) :]]
    assert forward.tokenizer.decode(tokens) == "You said hello in turn 1"
    assert cached_tokens(end) == 0  # a prefix isn't counted


def test_prefix_itself_is_prefilled_in_chunks(engine: Engine, forward: StepwiseForward) -> None:
    ids = list(range(2 * CHUNK_TOKENS + 44))
    engine.add_prefix(ids)
    starts = range(0, len(ids), CHUNK_TOKENS)
    assert forward.steps == [[ids[at : at + CHUNK_TOKENS]] for at in starts]


def test_longest_prefix_wins(engine: Engine, forward: StepwiseForward) -> None:
    short, long = forward.ids(HEAD), forward.ids(HEAD * 2)
    engine.add_prefix(short)
    engine.add_prefix(long)
    forward.steps.clear()
    outcome(engine.submit(forward.chat(forward.turn("hello", long))))
    outcome(engine.submit(forward.chat(forward.turn("hello", short))))
    assert [prefix.token_ids for prefix in engine.prefixes()] == [long, short]
    assert [step[0] for step in forward.steps if len(step[0]) > 1] == [forward.turn("hello")] * 2


def test_other_prompts_do_without_the_prefix(engine: Engine, forward: StepwiseForward) -> None:
    engine.add_prefix(forward.ids(HEAD))
    task = forward.chat("hello")
    outcome(engine.submit(task))
    assert task.prompt_ids in forward.ran()


def test_prompt_that_is_just_the_prefix_runs(engine: Engine, forward: StepwiseForward) -> None:
    task = forward.chat("hello")
    engine.add_prefix(task.prompt_ids)
    tokens, _ = outcome(engine.submit(task))
    assert forward.tokenizer.decode(tokens) == "You said hello in turn 1"


def test_prefix_is_not_in_the_budget(engine: Engine, forward: StepwiseForward) -> None:
    engine.add_prefix(forward.ids(HEAD))
    stats = engine.stats()
    assert (stats.reserved_bytes, stats.idle_bytes) == (0, 0)


# --- a key's K/V ---


@pytest.mark.parametrize("max_new_tokens", [3, 64], ids=["length", "stop"])
@pytest.mark.parametrize("head", ["", HEAD, HEAD * 10], ids=["plain", "copied", "shared"])
def test_next_turn_runs_only_what_is_new(
    engine: Engine, forward: StepwiseForward, head: str, max_new_tokens: int
) -> None:
    if head:
        engine.add_prefix(forward.ids(head))
    assert (len(forward.ids(head)) > MAX_COPIED_TOKENS) == (head == HEAD * 10)
    first = forward.chat(
        forward.turn("hello", forward.ids(head)), key="a", max_new_tokens=max_new_tokens
    )
    reply, end = outcome(engine.submit(first))
    assert isinstance(end, FinishedEvent)
    # The last token of a reply that was cut has never run.
    num_run = len(reply) - (end.reason == "length")
    second = forward.next_turn(first.prompt_ids, reply, "good food")
    forward.steps.clear()
    tokens, end = outcome(engine.submit(forward.chat(second, key="a")))
    known = len(first.prompt_ids) + num_run
    assert forward.steps[0] == [second[known:]]
    assert cached_tokens(end) == known - len(forward.ids(head))
    assert forward.tokenizer.decode(tokens) == "You said good food in turn 2"


def test_from_the_cache_equals_from_scratch(engine: Engine, forward: StepwiseForward) -> None:
    history: list[int] = []
    for number, text in enumerate(["hello", "bad " * 40, "今天的服务太差了", "a"], start=1):
        prompt = forward.turn(text, history)
        scratch, _ = outcome(engine.submit(forward.chat(prompt)))
        cached, end = outcome(engine.submit(forward.chat(prompt, key="a")))
        assert cached == scratch
        assert (cached_tokens(end) > 0) == (number > 1)
        history = [*prompt, *cached, *forward.ids("<|im_end|>\n")]


def test_edit_in_the_middle_keeps_what_stands_before(
    engine: Engine, forward: StepwiseForward
) -> None:
    first = forward.chat("hello", key="a")
    reply, _ = outcome(engine.submit(first))
    second = forward.next_turn(first.prompt_ids, reply, "good food")
    outcome(engine.submit(forward.chat(second, key="a")))
    edited = forward.next_turn(first.prompt_ids, reply, "bad food")
    tokens, end = outcome(engine.submit(forward.chat(edited, key="a")))
    common = next(i for i, (a, b) in enumerate(zip(second, edited, strict=False)) if a != b)
    assert cached_tokens(end) == common
    assert forward.tokenizer.decode(tokens) == "You said bad food in turn 2"


def test_same_prompt_again_runs_its_last_token(engine: Engine, forward: StepwiseForward) -> None:
    task = forward.chat("hello", key="a")
    first = outcome(engine.submit(task))[0]
    forward.steps.clear()
    again, end = outcome(engine.submit(task))
    assert again == first
    assert forward.steps[0] == [task.prompt_ids[-1:]]
    assert cached_tokens(end) == len(task.prompt_ids) - 1


def test_other_dialogue_under_the_key_starts_anew(engine: Engine, forward: StepwiseForward) -> None:
    outcome(engine.submit(forward.chat(forward.turn("hello", forward.ids("good")), key="a")))
    task = forward.chat("hello", key="a")
    tokens, end = outcome(engine.submit(task))
    assert cached_tokens(end) == 0
    assert forward.tokenizer.decode(tokens) == "You said hello in turn 1"


def test_keys_do_not_share(engine: Engine, forward: StepwiseForward) -> None:
    outcome(engine.submit(forward.chat("hello", key="a")))
    _, end = outcome(engine.submit(forward.chat("hello", key="b")))
    assert cached_tokens(end) == 0


def test_nothing_is_kept_without_a_key(engine: Engine, forward: StepwiseForward) -> None:
    outcome(engine.submit(forward.chat("hello")))
    assert_free(engine)
    assert engine.stats().idle_bytes == 0


# --- forgetting ---


def test_forgotten_is_gone(engine: Engine, forward: StepwiseForward) -> None:
    task = forward.chat("hello", key="a")
    outcome(engine.submit(task))
    assert engine.cached_bytes("a") == engine.stats().idle_bytes > 0
    engine.forget("a")
    _, end = outcome(engine.submit(forward.chat("hello", key="b")))
    assert engine.cached_bytes("a") == 0
    _, end = outcome(engine.submit(task))
    assert cached_tokens(end) == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_forgotten_while_it_runs_keeps_nothing(
    engine: Engine, forward: StepwiseForward, num_steps: int, is_cancelled: bool
) -> None:
    first = forward.chat("hello", key="a")
    reply, _ = outcome(engine.submit(first))
    second = forward.next_turn(first.prompt_ids, reply, "x" * 200)
    forward.hold()
    handle = engine.submit(forward.chat(second, key="a"))
    for _ in range(num_steps):
        forward.run_step()
    forward.wait_step()
    engine.forget("a")
    if is_cancelled:
        handle.cancel()
    forward.let_go()
    assert isinstance(outcome(handle)[1], FailedEvent if is_cancelled else FinishedEvent)
    assert engine.cached_bytes("a") == engine.stats().idle_bytes == 0
    assert_free(engine)


def test_forgotten_while_it_waits_starts_anew(engine: Engine, forward: StepwiseForward) -> None:
    first = forward.chat("hello", key="a")
    outcome(engine.submit(first))
    forward.hold()
    label = engine.submit(LabelTask(forward.turn("bad"), ((1,), (2,))))
    handle = engine.submit(forward.chat("hello", key="a", after=(label,)))
    forward.wait_step()
    engine.forget("a")
    forward.let_go()
    assert cached_tokens(outcome(handle)[1]) == 0
    assert engine.cached_bytes("a") == 0
