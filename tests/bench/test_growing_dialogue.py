"""A dialogue grows up to the turn that drops its oldest turns, and a few on."""

from collections.abc import Hashable, Iterable, Sequence

import pytest

from bench.growing_dialogue import grow_dialogue
from bench.timed_engine import TimedEngine
from services.dialogue import Dialogue
from services.engine.tasks import FinishedEvent, SequenceHandle, TokenEvent
from services.prompt_encoding import EncodedPrompt
from services.prompts import Prompt

PROMPT = Prompt("chat", "chat", "", "", "", "session", 8)
CONTEXT = 100


class Answering(TimedEngine):
    """Every reply is there as soon as it is asked for."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.forgotten: list[Hashable] = []

    def submit(self, prompt_ids: Sequence[int], new_tokens: int, *_: object) -> SequenceHandle:
        self.prompts.append(list(prompt_ids))
        handle = SequenceHandle()
        for token_id in range(new_tokens):
            handle.put(TokenEvent(token_id))
        handle.put(FinishedEvent("length", len(prompt_ids), 0, new_tokens))
        return handle

    def forget(self, keys: Iterable[Hashable]) -> None:
        self.forgotten += keys


@pytest.fixture
def engine() -> Answering:
    return Answering()


@pytest.fixture
def dialogue() -> Dialogue:
    return Dialogue(EncodedPrompt(PROMPT, (1, 2), (3,), (4,)), context_tokens=CONTEXT)


def test_figures_name_the_drop_and_the_turns_around_it(
    engine: Answering, dialogue: Dialogue
) -> None:
    figures = grow_dialogue(engine, dialogue, turns_after=2, text_tokens=12, new_tokens=4)
    assert set(figures) == {
        *("before", "drop", "after_1", "after_2"),
        *("dropped_turns", "prompt_tokens"),
    }
    lengths = [len(prompt) for prompt in engine.prompts]
    drop = next(at for at in range(1, len(lengths)) if lengths[at] < lengths[at - 1])
    assert len(lengths) == drop + 3
    assert figures["prompt_tokens"] == lengths[drop]
    assert figures["dropped_turns"] >= 1


def test_replies_stand_in_the_next_prompt(engine: Answering, dialogue: Dialogue) -> None:
    grow_dialogue(engine, dialogue, turns_after=1, text_tokens=12, new_tokens=4)
    first, second = engine.prompts[:2]
    assert second[: len(first) + 4] == [*first, 0, 1, 2, 3]


def test_session_is_forgotten(engine: Answering, dialogue: Dialogue) -> None:
    grow_dialogue(engine, dialogue, turns_after=1, text_tokens=12, new_tokens=4)
    assert len(engine.forgotten) == 1
