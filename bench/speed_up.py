"""What speculation gains: counts of steps, priced by what a step with so many rows takes."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TOGETHER = 8  # sequences

Curve = Sequence[tuple[int, float]]  # (rows in all, ms), rows ascending


@dataclass(frozen=True, slots=True)
class Prices:
    """What steps cost; ms."""

    alone: Curve
    together: Curve  # `TOGETHER` sequences' steps
    draw: float  # for each token that comes: a draft that is wrong isn't drawn any further


def interpolated(curve: Curve, rows: int) -> float:
    """The curve's ms at so many rows, which must not lie outside of it."""
    at = max(bisect_left(curve, rows, key=lambda point: point[0]), 1)
    (low, low_ms), (high, high_ms) = curve[at - 1], curve[at]
    return low_ms + (high_ms - low_ms) * (rows - low) / (high - low)


def tokens_a_step(tokens: int, steps: Mapping[int, int]) -> float:
    """`steps` has the number of steps by their rows; 1 where there were no steps."""
    return tokens / sum(steps.values()) if steps else 1.0


def speed_up_alone(tokens: int, steps: Mapping[int, int], prices: Prices) -> float:
    """Tokens a second over those without speculation, one sequence running."""
    return _speed_up(tokens_a_step(tokens, steps), _shares(steps), prices.alone, 1, prices.draw)


def speed_up_together(tokens: int, steps: Mapping[int, int], prices: Prices) -> float:
    """The same with `TOGETHER` of them, each at its own pace: how many rows one has in a step
    says nothing of the others'."""
    gain = tokens_a_step(tokens, steps)
    rows = in_all(_shares(steps), TOGETHER)
    return _speed_up(gain, rows, prices.together, TOGETHER, prices.draw)


def in_all(shares: Mapping[int, float], sequences: int) -> dict[int, float]:
    """The distribution of the sum of so many independent draws from one."""
    total = {0: 1.0}
    for _ in range(sequences):
        longer: dict[int, float] = {}
        for rows, share in total.items():
            for more, chance in shares.items():
                longer[rows + more] = longer.get(rows + more, 0.0) + share * chance
        total = longer
    return total


def _shares(steps: Mapping[int, int]) -> dict[int, float]:
    total = sum(steps.values())
    return {rows: number / total for rows, number in steps.items()} if total else {1: 1.0}


def _speed_up(
    gain: float, rows: Mapping[int, float], curve: Curve, sequences: int, draw: float
) -> float:
    """Of a step of `sequences` that each get `gain` tokens from it in the mean."""
    plain = interpolated(curve, sequences) + draw * sequences
    spent = sum(share * interpolated(curve, number) for number, share in rows.items())
    return gain * plain / (spent + draw * sequences * gain)
