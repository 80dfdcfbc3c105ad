"""The session store: ids, time and room."""

import pytest

from services.errors import UnavailableError
from services.sessions import SessionStore
from tests.turns import TURN, Clock, talk


def test_issued_ids_are_unguessable_and_marked(store: SessionStore) -> None:
    first, second = store.create(), store.create()
    assert first.session_id != second.session_id
    assert len(first.session_id) >= 22  # 128 bits in 64 characters each
    assert first.is_issued


def test_first_use_makes_a_session(store: SessionStore) -> None:
    assert store.find("a") is None
    talk(store, "a")
    session = store.find("a")
    assert session is not None
    assert (session.turns, session.is_issued) == ((TURN,), False)


def test_sessions_do_not_mix(store: SessionStore) -> None:
    assert talk(store, "a") != talk(store, "b")
    talk(store, "a")
    a, b = store.find("a"), store.find("b")
    assert a is not None
    assert b is not None
    assert (len(a.turns), len(b.turns)) == (2, 1)


def test_idle_longer_than_the_ttl_is_forgotten(
    store: SessionStore, clock: Clock, forgotten: list[int]
) -> None:
    key = talk(store, "a")
    clock.now += 60
    assert store.find("a") is not None
    clock.now += 60.5
    assert store.find("a") is None
    assert forgotten == [key]


def test_sweep_forgets_without_anyone_asking(
    store: SessionStore, clock: Clock, forgotten: list[int]
) -> None:
    keys = [talk(store, "a"), talk(store, "b")]
    clock.now += 61
    store.expire()
    assert (len(store), forgotten) == (0, keys)


def test_use_keeps_a_session(store: SessionStore, clock: Clock) -> None:
    talk(store, "a")
    for _ in range(3):
        clock.now += 50
        talk(store, "a")
    session = store.find("a")
    assert session is not None
    assert len(session.turns) == 4


def test_time_to_live_counts_from_the_end_of_a_turn(store: SessionStore, clock: Clock) -> None:
    ticket = store.join("a")
    clock.now += 500
    ticket.commit((TURN,))
    ticket.release()
    clock.now += 59
    assert store.find("a") is not None


def test_session_with_a_turn_under_way_does_not_expire(store: SessionStore, clock: Clock) -> None:
    ticket = store.join("a")
    talk(store, "b")
    clock.now += 1000
    store.expire()
    assert store.find("b") is None
    session = store.find("a")
    assert session is not None
    ticket.commit((TURN,))
    assert session.turns == (TURN,)


def test_least_recently_used_goes_first(store: SessionStore, forgotten: list[int]) -> None:
    keys = {session_id: talk(store, session_id) for session_id in "abc"}
    talk(store, "a")
    talk(store, "d")
    assert forgotten == [keys["b"]]
    assert [session_id for session_id in "abcd" if store.find(session_id)] == ["a", "c", "d"]


def test_looking_counts_as_use(store: SessionStore) -> None:
    for session_id in "abc":
        talk(store, session_id)
    store.find("a")
    talk(store, "d")
    assert store.find("a") is not None
    assert store.find("b") is None


def test_active_session_is_never_evicted(store: SessionStore) -> None:
    ticket = store.join("a")
    for session_id in "bcdef":
        talk(store, session_id)
    ticket.commit((TURN,))
    session = store.find("a")
    assert session is not None
    assert session.turns == (TURN,)


def test_no_room_among_active_sessions_is_refused(store: SessionStore) -> None:
    tickets = [store.join(session_id) for session_id in "abc"]
    with pytest.raises(UnavailableError) as caught:
        store.join("d")
    assert caught.value.retry_after_s is not None
    with pytest.raises(UnavailableError):
        store.create()
    tickets[1].release()
    assert store.create().is_issued
