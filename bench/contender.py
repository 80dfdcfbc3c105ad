"""What can be measured, and what a section of the benchmark gets and gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from services.settings import Settings

Figures = dict[str, float]


class UnavailableError(Exception):
    """This contender can't run here; the message says what it lacks and how to get it."""


class Contender(Protocol):
    """One engine with its weights loaded. It lives in a process of its own, so that its memory
    is its own and no two libraries' threads fight for the cores; see `child.py`.

    A job is a method `NAME(**params) -> Figures`, the same work under the same name in every
    contender that can do it. Times are in ms. A contender warms itself up when it is made.
    """

    def first_token(self, prompt_tokens: int) -> Figures:
        """`ms` from a prompt of so many tokens to its first new one; nothing cached."""
        ...

    def decode(self, sequences: int, new_tokens: int) -> Figures:
        """Greedy, behind a 40-token prompt each: `ms_a_step`, `tokens_a_second` in all."""
        ...

    def prefill(self, prompt_tokens: int) -> Figures:
        """`ms_a_token` for a prompt of random tokens."""
        ...

    def memory(self) -> Figures:
        """`resident_mb` of this process, and `peak_mb`."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What the person at the keyboard asked for."""

    settings: Settings
    rounds: int  # how often everything is measured; medians are reported
    work_dir: Path  # for what the bench makes: requantized weights, random checkpoints
    data_dir: Path | None  # labelled texts and dialogues for the quality gate
    is_quick: bool  # fewer tokens and sizes: to see that it runs, not to quote
    say: Callable[[str], None]  # progress, a line at a time
    skip: Callable[[str, str], None]  # what was left out and why: printed, and in the report


class Section(Protocol):
    """A chapter of the report: a module with these."""

    TITLE: str

    def measure(self, plan: Plan) -> dict[str, Any]:
        """Everything compared here, measured interleaved `plan.rounds` times. JSON alone."""
        ...

    def tables(self, result: Mapping[str, Any]) -> str:
        """The same as Markdown."""
        ...
