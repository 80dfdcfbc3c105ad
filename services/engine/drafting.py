"""Speculation without a draft model: what followed when these tokens last stood here.

The draft is what followed the last earlier place where the newest tokens stood, in prompt and
reply (Saxena, 2023, prompt lookup decoding), and is verified as further rows of the same step.
How far it goes is decided by the sequence's own tokens alone and never by load, so that a
sequence computes the same whatever runs beside it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

MATCH = 3  # so many newest tokens have to stand there
LONGEST_MATCH = 8  # longer ones count as this long
MAX_DRAFT = 8
LEAST_CHANCE = 0.5  # a draft ends where it is right throughout less often than this


class Lookup:
    """All tokens of a sequence, and where each run of `match` of them last stood."""

    __slots__ = ("_following", "_ids", "_match")

    def __init__(self, match: int, token_ids: Sequence[int]) -> None:
        self._match = match
        self._ids: list[int] = []
        self._following: dict[tuple[int, ...], int] = {}
        for token_id in token_ids:
            self.append(token_id)

    def append(self, token_id: int) -> None:
        if len(self._ids) >= self._match:
            self._following[self._newest()] = len(self._ids)
        self._ids.append(token_id)

    def matched(self) -> int:
        """How many tokens before the place found are the newest ones, up to `LONGEST_MATCH`; 0
        where there is no such place."""
        start = self._following.get(self._newest())
        if start is None:
            return 0
        length, limit = self._match, min(start, LONGEST_MATCH)
        while length < limit and self._ids[start - length - 1] == self._ids[-length - 1]:
            length += 1
        return length

    def draft(self, most: int) -> list[int]:
        """Up to `most` tokens, as they followed the place found; a loop goes on."""
        start = self._following.get(self._newest())
        if start is None:
            return []
        period = len(self._ids) - start
        return [self._ids[start + number % period] for number in range(most)]

    def _newest(self) -> tuple[int, ...]:
        return tuple(self._ids[-self._match :])


@dataclass(slots=True)
class ByRecord:
    """As far as the draft is right with probability `least`, by how often matches as long as
    this one foretold this sequence's tokens so far; that costs nothing to know."""

    least: float = LEAST_CHANCE
    right: Counter[int] = field(default_factory=Counter)
    seen: Counter[int] = field(default_factory=Counter)

    def most(self, matched: int) -> int:
        """Tokens to draft now, behind a match of this length."""
        chance, draft = 1.0, 0
        while draft < MAX_DRAFT:
            chance *= self._chance(matched + draft)
            if chance < self.least:
                break
            draft += 1
        return draft

    def saw(self, matched: int, is_right: bool) -> None:
        """A token came: whether it was the one that a match of this length foretold. This is
        known of every token, drafted or not."""
        length = min(matched, LONGEST_MATCH)
        self.seen[length] += 1
        self.right[length] += is_right

    def _chance(self, matched: int) -> float:
        """The share seen to be right, and a guess by the length alone that weighs two tokens."""
        length = min(matched, LONGEST_MATCH)
        guess = 1 - 1 / length
        return (self.right[length] + 2 * guess) / (self.seen[length] + 2)


class Drafter:
    """Foretells one reply's tokens."""

    __slots__ = ("_lookup", "_record")

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        self._lookup = Lookup(MATCH, prompt_ids)
        self._record = ByRecord()

    def append(self, token_id: int) -> None:
        """The reply's next token is known."""
        matched = self._lookup.matched()
        if matched:
            self._record.saw(matched, self._lookup.draft(1) == [token_id])
        self._lookup.append(token_id)

    def draft(self, room: int) -> list[int]:
        """The tokens that are likely to come next, at most `room`."""
        matched = self._lookup.matched()
        return self._lookup.draft(min(self._record.most(matched), room)) if matched else []
