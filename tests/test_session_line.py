"""The session store: whose turn it is, and what is forgotten meanwhile."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.errors import UnavailableError
from services.sessions import MAX_LINE, SessionStore
from tests.turns import TURN, talk


def test_turns_of_one_session_go_in_order_of_arrival(store: SessionStore) -> None:
    tickets = [store.join("a") for _ in range(4)]
    called = []
    for ticket in tickets:
        called.append([other.wait(0) for other in tickets])
        ticket.release()
    assert called == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_who_leaves_the_line_early_is_skipped(store: SessionStore) -> None:
    first, second, third = (store.join("a") for _ in range(3))
    second.release()
    assert not third.wait(0)
    first.release()
    assert third.wait(0)


def test_leaving_twice_calls_nobody_early(store: SessionStore) -> None:
    first, second, third = (store.join("a") for _ in range(3))
    first.release()
    first.release()
    assert (second.wait(0), third.wait(0)) == (True, False)


def test_sessions_do_not_wait_for_each_other(store: SessionStore) -> None:
    store.join("a")
    assert store.join("b").wait(0)


def test_next_turn_sees_what_the_last_one_committed(store: SessionStore) -> None:
    first, second = store.join("a"), store.join("a")
    first.commit((TURN,))
    first.release()
    assert second.look()[0] == (TURN,)


def test_turn_that_was_not_committed_leaves_nothing(store: SessionStore) -> None:
    talk(store, "a")
    store.join("a").release()
    session = store.find("a")
    assert session is not None
    assert session.turns == (TURN,)


def test_forgetting_tells_whether_there_was_something(store: SessionStore) -> None:
    talk(store, "a")
    assert store.forget("a")
    assert not store.forget("a")


def test_forgotten_while_running_keeps_nothing(store: SessionStore, forgotten: list[int]) -> None:
    key = talk(store, "a")
    ticket = store.join("a")
    assert ticket.key == key
    store.forget("a")
    assert forgotten == [key]
    assert ticket.key is None
    ticket.commit((TURN, TURN))
    ticket.release()
    assert store.find("a") is None


def test_id_can_be_used_anew_while_its_old_turn_still_runs(store: SessionStore) -> None:
    old = store.join("a")
    store.forget("a")
    new = store.join("a")
    assert new.wait(0)
    old.commit((TURN, TURN))
    old.release()
    assert new.look()[0] == ()
    new.commit((TURN,))
    session = store.find("a")
    assert session is not None
    assert session.turns == (TURN,)


def test_who_waits_in_a_forgotten_session_is_still_called(store: SessionStore) -> None:
    first, second = store.join("a"), store.join("a")
    first.commit((TURN,))
    store.forget("a")
    assert not second.wait(0)
    first.release()
    assert second.wait(0)
    assert second.look() == ((), None)


def test_reset_forgets_turns_but_not_the_session(store: SessionStore, forgotten: list[int]) -> None:
    session = store.create()
    key = talk(store, session.session_id)
    ticket = store.join(session.session_id)
    ticket.reset()
    ticket.release()
    assert (session.turns, session.is_issued) == ((), True)
    assert store.find(session.session_id) is session
    assert forgotten == [key]
    assert session.key != key


def test_lines_hold_under_threads(store: SessionStore) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def turn(_: int) -> None:
        nonlocal running, most
        ticket = store.join("a")
        assert ticket.wait(20)
        with lock:
            running += 1
            most = max(most, running)
        ticket.commit((*ticket.look()[0], TURN))
        with lock:
            running -= 1
        ticket.release()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(turn, range(200)))
    session = store.find("a")
    assert session is not None
    assert (most, len(session.turns)) == (1, 200)


def test_line_of_one_session_is_bounded(store: SessionStore) -> None:
    tickets = [store.join("a") for _ in range(MAX_LINE)]
    with pytest.raises(UnavailableError) as caught:
        store.join("a")
    assert caught.value.retry_after_s is not None
    assert store.join("b").wait(0)
    tickets[0].release()
    assert not store.join("a").wait(0)
