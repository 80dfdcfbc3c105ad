"""A dialogue that grows until its oldest turns are dropped, and goes on a while."""

import statistics
import time

from bench.contender import Figures
from bench.prompts import random_ids
from bench.timed_engine import TimedEngine, wait
from services.dialogue import Dialogue
from services.sessions import Turn

_KEY = "growing dialogue"
LONGEST_TURNS = 3  # whose median is what a turn costs just before the limit


def grow_dialogue(
    engine: TimedEngine, dialogue: Dialogue, turns_after: int, text_tokens: int, new_tokens: int
) -> Figures:
    """First tokens in ms: `before` at the longest history, `drop` at the turn that drops the
    oldest, `after_1` and so on behind it; `dropped_turns`, and `prompt_tokens` of that turn."""
    turns: tuple[Turn, ...] = ()
    times: list[float] = []
    figures: Figures = {}
    while len(figures) < 3 + turns_after:
        turn = dialogue.next_turn(turns, random_ids(text_tokens, seed=len(times)))
        begun = time.perf_counter()
        reply = wait(engine.submit(turn.prompt_ids, new_tokens, _KEY))
        times.append(1000 * (reply.times[0] - begun))
        if figures:
            figures[f"after_{len(figures) - 2}"] = times[-1]
        elif len(turn.kept) < len(turns):
            figures["drop"] = times[-1]
            figures["dropped_turns"] = len(turns) - len(turn.kept)
            figures["prompt_tokens"] = len(turn.prompt_ids)
        turns = turn.finished("", "", None, reply.token_ids)
    engine.forget([_KEY])
    before = times[: -1 - turns_after][-LONGEST_TURNS:]
    return {"before": statistics.median(before), **figures}
