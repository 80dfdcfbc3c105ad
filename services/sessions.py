"""Dialogues by id: their turns, whose turn it is, and when they are forgotten."""

import itertools
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from services.errors import UnavailableError

# Turns of one session run one after the other; more of them waiting would take others' places.
MAX_LINE = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange. The token ids are exactly those that ran; the frame around them is the
    prompt's."""

    task: str  # the chat prompt that it ran under
    text: str
    response: str
    sentiment: str | None
    text_ids: tuple[int, ...]
    reply_ids: tuple[int, ...]


_keys = itertools.count(1)


@dataclass(slots=True, eq=False)
class Session:
    """A dialogue. `key` names its K/V, and changes when its turns are forgotten."""

    session_id: str
    is_issued: bool  # by us, unguessable; else the client chose the id
    turns: tuple[Turn, ...] = ()
    key: int = field(default_factory=_keys.__next__)
    last_used: float = 0.0
    is_forgotten: bool = False
    line: deque["Ticket"] = field(default_factory=deque)  # who talks, then who waits


class Ticket:
    """A place in the line of a session: turns of one dialogue run one after the other."""

    def __init__(self, store: "SessionStore", session: Session) -> None:
        self._store = store
        self._session = session
        self._called = threading.Event()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is this ticket's turn, within `timeout_s`."""
        return self._called.wait(timeout_s)

    def call(self) -> None:
        """For the store: it is this ticket's turn."""
        self._called.set()

    def look(self) -> tuple[tuple[Turn, ...], int | None]:
        """The session's turns so far and `key`, in one look: it may be forgotten meanwhile."""
        return self._store.look(self._session, self)

    @property
    def key(self) -> int | None:
        """Names the session's K/V; None once it was forgotten, for nothing may be kept then."""
        return None if self._session.is_forgotten else self._session.key

    def commit(self, turns: tuple[Turn, ...]) -> None:
        """Make these the session's turns, unless it was forgotten meanwhile."""
        self._store.commit(self._session, turns)

    def reset(self) -> None:
        """Forget the session's turns; the session itself stays."""
        self._store.reset(self._session)

    def release(self) -> None:
        """Leave the line, wherever in it; the next one is called."""
        self._store.leave(self._session, self)


class SessionStore:
    """All sessions, behind one lock, since HTTP threads share them.

    At most `max_sessions` are kept, the least recently used is forgotten first; so is one that
    was idle for `ttl_s`. A session with a turn under way is never forgotten by itself.
    `on_forget` is told the key of what is forgotten.
    """

    def __init__(
        self,
        *,
        ttl_s: float,
        max_sessions: int,
        on_forget: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl_s = ttl_s
        self._max_sessions = max_sessions
        self._on_forget = on_forget
        self._clock = clock
        self._lock = threading.RLock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self) -> Session:
        """A new session under an unguessable id (128 bits).

        Raises:
            UnavailableError: every session that could make room has a turn under way.
        """
        with self._lock:
            return self._add(secrets.token_urlsafe(16), is_issued=True)

    def find(self, session_id: str) -> Session | None:
        """The session, which counts as used; None if there is none."""
        with self._lock:
            self.expire()
            session = self._sessions.get(session_id)
            if session is not None:
                self._touch(session)
            return session

    def join(self, session_id: str) -> Ticket:
        """Stand in line for a turn of a session, which is made at first use.

        Raises:
            UnavailableError: as in `create`, or the line is `MAX_LINE` long.
        """
        with self._lock:
            session = self.find(session_id) or self._add(session_id, is_issued=False)
            if len(session.line) >= MAX_LINE:
                raise UnavailableError("too many turns wait in this session", retry_after_s=5)
            ticket = Ticket(self, session)
            session.line.append(ticket)
            if session.line[0] is ticket:
                ticket.call()
            return ticket

    def forget(self, session_id: str) -> bool:
        """Forget a session and its turns; a turn under way ends without being kept."""
        with self._lock:
            self.expire()
            session = self._sessions.get(session_id)
            if session is not None:
                self._drop(session)
            return session is not None

    def expire(self) -> None:
        """Forget what was idle too long."""
        with self._lock:
            horizon = self._clock() - self._ttl_s
            for session in list(self._sessions.values()):
                if session.last_used >= horizon:
                    break
                if not session.line:
                    self._drop(session)

    # --- for tickets ---

    def look(self, session: Session, ticket: Ticket) -> tuple[tuple[Turn, ...], int | None]:
        with self._lock:
            return session.turns, ticket.key

    def commit(self, session: Session, turns: tuple[Turn, ...]) -> None:
        with self._lock:
            if not session.is_forgotten:
                session.turns = turns

    def reset(self, session: Session) -> None:
        with self._lock:
            session.turns = ()
            self._on_forget(session.key)
            session.key = next(_keys)

    def leave(self, session: Session, ticket: Ticket) -> None:
        with self._lock:
            if ticket not in session.line:
                return
            session.line.remove(ticket)
            if session.line:
                session.line[0].call()
            if not session.is_forgotten:
                self._touch(session)

    # --- under the lock ---

    def _drop(self, session: Session) -> None:
        del self._sessions[session.session_id]
        session.is_forgotten = True
        self.reset(session)

    def _touch(self, session: Session) -> None:
        session.last_used = self._clock()
        self._sessions.move_to_end(session.session_id)

    def _add(self, session_id: str, *, is_issued: bool) -> Session:
        if len(self._sessions) >= self._max_sessions:
            idle = next((s for s in self._sessions.values() if not s.line), None)
            if idle is None:
                raise UnavailableError("every session has a turn under way", retry_after_s=5)
            self._drop(idle)
        session = Session(session_id, is_issued)
        self._sessions[session_id] = session
        self._touch(session)
        return session
