"""How turns are laid out as token ids, and what a history too long loses."""

import pytest

from services.dialogue import Dialogue
from services.prompt_encoding import EncodedPrompt
from services.prompts import Prompt
from services.sessions import Turn

HEAD, TAIL, BRIDGE = (1, 2, 3), (4, 5), (6, 7, 8)
PROMPT = Prompt("chat", "chat", "", "", "", "session", 8)


@pytest.fixture
def dialogue() -> Dialogue:
    return Dialogue(EncodedPrompt(PROMPT, HEAD, TAIL, BRIDGE), context_tokens=100)


def turn(text_ids: tuple[int, ...], reply_ids: tuple[int, ...], task: str = "chat") -> Turn:
    return Turn(task, "", "", None, text_ids, reply_ids)


def turns(num: int, tokens: int) -> list[Turn]:
    """Turns that each take `tokens` of the room, frame included; told apart by their ids."""
    return [turn((100 + index,), (200,) * (tokens - 6)) for index in range(num)]


def test_first_turn(dialogue: Dialogue) -> None:
    assert dialogue.next_turn([], [10, 11]).prompt_ids == [1, 2, 3, 10, 11, 4, 5]


def test_history_is_laid_out_by_the_ids_that_ran(dialogue: Dialogue) -> None:
    history = [turn((10, 11), (20, 21, 22)), turn((12,), (23,))]
    assert dialogue.next_turn(history, [13]).prompt_ids == [
        *HEAD, 10, 11, *TAIL, 20, 21, 22, *BRIDGE, 12, *TAIL, 23, *BRIDGE, 13, *TAIL,
    ]  # fmt: skip


def test_prompt_begins_with_what_ran_in_the_turn_before(dialogue: Dialogue) -> None:
    first = dialogue.next_turn([], [10])
    ran = [*first.prompt_ids, 20, 21]
    history = first.finished("hi", "hello", "Positive", [20, 21])
    assert dialogue.next_turn(history, [11]).prompt_ids[: len(ran)] == ran


def test_finished_turn_holds_all_of_it(dialogue: Dialogue) -> None:
    earlier = turn((9,), (9,))
    history = dialogue.next_turn([earlier], [10]).finished("hi", "hello", "Positive", [20])
    assert history == (earlier, Turn("chat", "hi", "hello", "Positive", (10,), (20,)))


def test_reply_without_tokens_keeps_the_frame(dialogue: Dialogue) -> None:
    assert dialogue.next_turn([turn((10,), ())], [11]).prompt_ids == [
        *HEAD, 10, *TAIL, *BRIDGE, 11, *TAIL,
    ]  # fmt: skip


def test_turn_of_another_chat_prompt_stands_in_this_ones_frame(dialogue: Dialogue) -> None:
    history = [turn((10,), (20,), "tutor")]
    assert dialogue.next_turn(history, [11]).prompt_ids == [
        *HEAD, 10, *TAIL, 20, *BRIDGE, 11, *TAIL,
    ]  # fmt: skip


def test_history_that_just_fits_is_kept_whole(dialogue: Dialogue) -> None:
    history = turns(4, 20)  # 3 + 80 + 15 + 2
    next_turn = dialogue.next_turn(history, [10] * 15)
    assert len(next_turn.prompt_ids) == 100
    assert next_turn.kept == tuple(history)


def test_history_too_long_loses_oldest_whole_turns_to_three_quarters(dialogue: Dialogue) -> None:
    history = turns(4, 20)
    next_turn = dialogue.next_turn(history, [10] * 16)
    assert next_turn.kept == tuple(history[2:])  # one turn less would leave 81 of 75
    assert len(next_turn.prompt_ids) == 61


def test_system_text_is_never_lost(dialogue: Dialogue) -> None:
    next_turn = dialogue.next_turn(turns(30, 20), [10] * 95)
    assert next_turn.kept == ()
    assert next_turn.prompt_ids == [*HEAD, *[10] * 95, *TAIL]


def test_turns_after_a_trim_find_their_beginning_again(dialogue: Dialogue) -> None:
    history, next_ids = tuple(turns(4, 20)), [10] * 16
    trimmed = dialogue.next_turn(history, next_ids)
    history = trimmed.finished("", "", None, [20])
    later = dialogue.next_turn(history, [11])
    assert later.prompt_ids[: len(trimmed.prompt_ids)] == trimmed.prompt_ids


def test_positions_of_a_long_dialogue_stay_within_the_context(dialogue: Dialogue) -> None:
    history: tuple[Turn, ...] = ()
    lengths, trims = [], 0
    for index in range(60):
        next_turn = dialogue.next_turn(history, [300 + index] * 5)
        trims += len(next_turn.kept) < len(history)
        lengths.append(len(next_turn.prompt_ids))
        assert next_turn.prompt_ids[:3] == list(HEAD)
        history = next_turn.finished("", "", None, [20] * 4)
    assert max(lengths) <= 100
    assert 0 < trims < 20  # not one in every turn, once it is full


def test_num_tokens_is_what_ran(dialogue: Dialogue) -> None:
    assert dialogue.num_tokens([]) == 0
    next_turn = dialogue.next_turn([turn((10,), (20,))], [11])
    history = next_turn.finished("", "", None, [21, 22])
    assert dialogue.num_tokens(history) == len(next_turn.prompt_ids) + 2
