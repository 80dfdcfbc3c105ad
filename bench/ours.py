"""Our own engine as a contender, measured through the seam: tasks in, events out."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.contender import Figures, UnavailableError
from bench.engine_load import CHAT, LABEL, EngineClient
from bench.growing_dialogue import grow_dialogue
from bench.load import label_probe, reply_load
from bench.memory import memory_figures
from bench.prompts import random_ids
from bench.timed_engine import TimedEngine, wait
from services.engine.tasks import LabelTask, Sampling
from services.prompts import load_prompts
from services.ready import Ready, make_ready
from services.settings import Settings
from services.weights import WeightsError

PROMPT_TOKENS = 40
# Sequences beside the one that is timed go on for longer, so that every timed step has them all.
SPARE_TOKENS = 8
MAX_SEQUENCES = 16
MIN_KV_BUDGET_MB = 4096  # room for long histories side by side, in any shape


def make(settings: Settings, work_dir: Path) -> "Ours":
    """The engine in the precision that the settings name, loaded and warm.

    Raises:
        UnavailableError: the model isn't there.
    """
    settings = with_room(settings)
    try:
        return Ours(make_ready(settings, load_prompts(settings.prompts_dir)))
    except WeightsError as error:
        raise UnavailableError(str(error)) from None


def with_room(settings: Settings) -> Settings:
    """The same with K/V enough for every job."""
    return replace(
        settings,
        kv_budget_mb=max(settings.kv_budget_mb, MIN_KV_BUDGET_MB),
        max_running=max(settings.max_running, MAX_SEQUENCES),
    )


class Ours:
    """The service's engine and prompts, without HTTP.

    A prompt that begins with another token than the service's own finds no prefix kept: so one
    process measures both ways.
    """

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._engine = TimedEngine(ready.engine)
        self._load_clients = EngineClient(ready)
        self.decode(sequences=2, new_tokens=4)
        self.label(text_tokens=16, is_kept=True)

    # --- what every contender does ---

    def first_token(self, prompt_tokens: int) -> Figures:
        return {"ms": self.reply(prompt_tokens, 1)["ms"]}

    def prefill(self, prompt_tokens: int) -> Figures:
        return {"ms_a_token": self.reply(prompt_tokens, 1)["ms"] / prompt_tokens}

    def decode(
        self, sequences: int, new_tokens: int, history_tokens: int = PROMPT_TOKENS
    ) -> Figures:
        """As every contender; behind another number of tokens where asked for."""
        prompts = {("decode", n): random_ids(history_tokens, seed=n) for n in range(sequences)}
        for key, prompt in prompts.items():  # before: then all begin in one step, or the next
            self._engine.keep(prompt, key)
        (timed_key, timed), *others = prompts.items()
        beside = [
            self._engine.submit(prompt, new_tokens + SPARE_TOKENS, key) for key, prompt in others
        ]
        times = wait(self._engine.submit(timed, new_tokens, timed_key)).times
        self._engine.cancel(beside)
        self._engine.forget(prompts)
        step_ms = 1000 * (times[-1] - times[0]) / (len(times) - 1)
        return {"ms_a_step": step_ms, "tokens_a_second": 1000 * sequences / step_ms}

    def memory(self) -> Figures:
        return memory_figures()

    # --- what the service's own work needs ---

    def reply(self, prompt_tokens: int, new_tokens: int) -> Figures:
        """`ms` from a random prompt, nothing cached, to the last of so many new tokens;
        `first_token_ms` to the first."""
        begun = time.perf_counter()
        times = wait(self._engine.submit(random_ids(prompt_tokens), new_tokens)).times
        return {"ms": 1000 * (times[-1] - begun), "first_token_ms": 1000 * (times[0] - begun)}

    def lengths(self) -> Figures:
        """Tokens that stand around a text: in the label's prompt, and in a chat's."""
        label = self._ready.scorers[LABEL].task([])
        chat = self._ready.dialogues[CHAT].next_turn((), [])
        return {"label": len(label.prompt_ids), "chat": len(chat.prompt_ids)}

    def label(self, text_tokens: int, is_kept: bool) -> Figures:
        """`ms` to a label, its template's K/V kept or not."""
        task = self._label_task(text_tokens, is_kept)
        with _stopwatch() as figures:
            wait(self._engine.submit_label(task))
        return figures

    def turn(self, history_tokens: int, text_tokens: int, is_kept: bool) -> Figures:
        """`ms` to the first token of a turn behind so many tokens of history: with the session's
        K/V and the template's kept, or with nothing."""
        history, text = self._history(history_tokens, is_kept), random_ids(text_tokens)
        if is_kept and history_tokens:
            self._engine.keep(history, "turn")
        with _stopwatch() as figures:
            wait(self._engine.submit(history + text, 1, "turn" if is_kept else None))
        self._engine.forget(["turn"])
        return figures

    def requests(
        self,
        batch: int,
        is_kept: bool,
        text_tokens: int,
        history_tokens: int,
        new_tokens: int,
        temperature: float,
        top_p: float,
    ) -> Figures:
        """`batch` requests at once, a label and a turn's reply each: `requests_a_minute`, and
        `ms_a_token` over all tokens of their replies."""
        drawn, text = Sampling(temperature, top_p, seed=0), random_ids(text_tokens)
        histories = [self._history(history_tokens, is_kept, seed=n) for n in range(batch)]
        keys = [("requests", n) if is_kept else None for n in range(batch)]
        for history, key in zip(histories, keys, strict=True):
            if key is not None:
                self._engine.keep(history, key)
        with _stopwatch() as figures:
            replies = []
            for history, key in zip(histories, keys, strict=True):
                label = self._engine.submit_label(self._label_task(text_tokens, is_kept))
                reply = self._engine.submit(history + text, new_tokens, key, drawn, (label,))
                replies.append(reply)
            for handle in replies:
                wait(handle)
        self._engine.forget(key for key in keys if key is not None)
        return {
            "requests_a_minute": 60_000 * batch / figures["ms"],
            "ms_a_token": figures["ms"] / (batch * new_tokens),
        }

    def session(self, history_tokens: int) -> Figures:
        """`resident_mb` that a session of so many tokens takes while it is idle."""
        before = memory_figures()
        self._engine.keep(random_ids(history_tokens), "session")
        after = memory_figures()
        self._engine.forget(["session"])
        return {name: after[name] - before[name] for name in after if name == "resident_mb"}

    def long_history(self, turns_after: int, text_tokens: int, new_tokens: int) -> Figures:
        """See `grow_dialogue`."""
        dialogue = self._ready.dialogues[CHAT]
        return grow_dialogue(self._engine, dialogue, turns_after, text_tokens, new_tokens)

    def load(self, clients: int, seconds: float, new_tokens: int) -> Figures:
        """See `reply_load`."""
        return reply_load(self._load_clients, clients, seconds, new_tokens)

    def label_probe(self, replies: int, seconds: float) -> Figures:
        """See `label_probe`."""
        return label_probe(self._load_clients, replies, seconds)

    def _label_task(self, text_tokens: int, is_kept: bool) -> LabelTask:
        task = self._ready.scorers[LABEL].task(random_ids(text_tokens))
        ids = task.prompt_ids if is_kept else _strange(task.prompt_ids)
        return LabelTask(ids, task.choices)

    def _history(self, num_tokens: int, is_kept: bool, seed: int = 0) -> list[int]:
        """What stands before a turn's text: the template's head, and so many tokens."""
        ids = self._ready.dialogues[CHAT].next_turn((), random_ids(num_tokens, seed)).prompt_ids
        return list(ids if is_kept else _strange(ids))


def _strange(prompt_ids: Sequence[int]) -> list[int]:
    """The same number of tokens, but the first is none that a prefix begins with."""
    return [*random_ids(1), *prompt_ids[1:]]


@contextmanager
def _stopwatch() -> Iterator[Figures]:
    """`ms` that the block took; there once it has ended."""
    figures: Figures = {}
    begun = time.perf_counter()
    yield figures
    figures["ms"] = 1000 * (time.perf_counter() - begun)
