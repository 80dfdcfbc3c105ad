"""How much is taken on at once, and how soon a refused caller should come back."""

import pytest

from services.errors import UnavailableError
from services.places import Places


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def use(places: Places, clock: Clock, seconds: float) -> None:
    with places.held():
        clock.now += seconds


def refused_for(places: Places) -> int | None:
    """Seconds after which to come back; None where a place is free."""
    try:
        with places.held():
            return None
    except UnavailableError as error:
        return error.retry_after_s


def test_beyond_the_bound_is_refused_at_once() -> None:
    places = Places(2, 2)
    with places.held(), places.held():
        assert refused_for(places) is not None
    assert refused_for(places) is None


def test_place_is_free_again_after_an_error() -> None:
    places = Places(1, 1)
    with pytest.raises(KeyError), places.held():
        raise KeyError
    assert refused_for(places) is None


def test_retry_after_is_a_whole_second_or_more() -> None:
    clock = Clock()
    places = Places(1, 4, clock)
    for _ in range(50):
        use(places, clock, 0.01)
    with places.held():
        assert refused_for(places) == 1


def test_retry_after_follows_how_long_requests_take() -> None:
    clock = Clock()
    places = Places(4, 4, clock)
    for _ in range(50):
        use(places, clock, 40)
    with places.held(), places.held(), places.held(), places.held():
        assert refused_for(places) == 10
