"""What the tests of sessions share: a turn, a whole exchange, a clock that is moved by hand."""

from services.sessions import SessionStore, Turn

TURN = Turn("chat", "hi", "hello", "Positive", (1,), (2,))


class Clock:
    """A clock that stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def talk(store: SessionStore, session_id: str) -> int:
    """One whole turn; returns the key of its K/V."""
    ticket = store.join(session_id)
    ticket.commit((*ticket.look()[0], TURN))
    ticket.release()
    key = ticket.key
    assert key is not None
    return key
