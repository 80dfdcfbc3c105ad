"""When and how far to draft, decided by one sequence's own tokens alone and never by load."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.engine.drafting import MAX_DRAFT, ByRecord

FIRST_PAUSE, LONGEST_PAUSE = 4, 32
NEVER = "never"


class Pace(Protocol):
    """How far to draft, decided by one sequence's own tokens alone."""

    def most(self, matched: int) -> int:
        """Tokens to draft now, behind a match of this length."""
        ...

    def saw(self, matched: int, is_right: bool) -> None:
        """A token came: whether it was the one that a match of this length foretold (0: none).
        This is known of every token, drafted or not."""
        ...

    def verified(self, drafted: int, accepted: int) -> None:
        """A step's draft, if there was one, was verified."""
        ...


@dataclass(slots=True)
class Fixed:
    """The same always."""

    draft: int

    def most(self, matched: int) -> int:
        return self.draft

    def saw(self, matched: int, is_right: bool) -> None:
        pass

    def verified(self, drafted: int, accepted: int) -> None:
        pass


@dataclass(slots=True)
class BackingOff:
    """Twice as far after a draft that was right throughout; half as far after one that was
    wrong at once, and none for some tokens, twice as many each time."""

    draft: int = 2
    pause: int = 0
    next_pause: int = FIRST_PAUSE

    def most(self, matched: int) -> int:
        return 0 if self.pause else self.draft

    def saw(self, matched: int, is_right: bool) -> None:
        self.pause = max(self.pause - 1, 0)

    def verified(self, drafted: int, accepted: int) -> None:
        if accepted == drafted:
            self.draft, self.next_pause = min(2 * self.draft, MAX_DRAFT), FIRST_PAUSE
        elif not accepted:
            self.draft = max(self.draft // 2, 1)
            self.pause, self.next_pause = self.next_pause, min(2 * self.next_pause, LONGEST_PAUSE)


class OwnRecord(ByRecord):
    """The engine's own pace."""

    def verified(self, drafted: int, accepted: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a match has to be, and the pace of a sequence, from its start."""

    match: int
    begin: Callable[[], Pace]
    is_bound: bool = False  # it drafts only what will be accepted, which nothing real can know


def _fixed(match: int, draft: int) -> Policy:
    return Policy(match, lambda: Fixed(draft))


POLICIES = {
    NEVER: _fixed(2, 0),
    **{
        f"always {draft} behind a match of {match}": _fixed(match, draft)
        for match in (2, 3)
        for draft in (2, 4, 8)
    },
    **{f"backing off, match of {match}": Policy(match, BackingOff) for match in (2, 3)},
    **{f"by its record, match of {match}": Policy(match, lambda: OwnRecord()) for match in (2, 3)},
    **{
        f"bound: right ones alone, match of {match}": Policy(match, lambda: Fixed(MAX_DRAFT), True)
        for match in (2, 3)
    },
}
