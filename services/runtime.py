"""The service's life: loading, ready, stopped or failed. Started after the fork, never before."""

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from services.errors import UnavailableError
from services.places import MAX_LABEL_REQUESTS, Places
from services.prompts import Prompt
from services.sessions import SessionStore, Turn
from services.settings import Settings
from services.traces import trace

if TYPE_CHECKING:  # torch takes seconds to import: commands and the opening port don't wait for it
    from services.engine.engine import Engine
    from services.ready import Ready

log = logging.getLogger(__name__)

NOT_STARTED = "the model is not loaded here; serve with make run or python app.py"
LOADING = "the model is loading"
STOPPING = "the service is stopping"
DEAD = "the engine has stopped"
# How often the engine is looked after, and every how many looks the idle sessions are.
LOOK_S = 1.0
SWEEP_LOOKS = 30


class Runtime:
    """Holds what a process has one of: engine, sessions, places; and what is ready, or why not."""

    def __init__(
        self, settings: Settings, prompts: Mapping[str, Prompt], engine: "Engine | None" = None
    ) -> None:
        """Nothing is loaded before `start`. `engine` stands in for the one that would be made."""
        self.settings = settings
        self.prompts = prompts
        self.sessions = SessionStore(
            ttl_s=settings.session_ttl_s,
            max_sessions=settings.max_sessions,
            on_forget=self._forget,
        )
        self.chat_places = Places(settings.max_running + settings.max_waiting, settings.max_running)
        self.label_places = Places(MAX_LABEL_REQUESTS, MAX_LABEL_REQUESTS)
        self._engine = engine
        self._ready: Ready | None = None
        self._reason = NOT_STARTED  # why nothing is answered; empty while it is
        self._lock = threading.Lock()  # loading may end while stopping
        self._stopping = threading.Event()
        self._decided = threading.Event()

    def start(
        self,
        on_ready: "Callable[[Ready], None]" = lambda ready: None,
        on_failure: Callable[[Exception], None] = lambda error: None,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        """Load in the background; call back, on that thread, once it is decided.

        `on_death` is called once if the engine dies later, when all who waited have been told.
        """
        self._reason = LOADING
        for name, target in (
            ("boot", lambda: self._boot(on_ready, on_failure)),
            ("watch", lambda: self._watch(on_death)),
        ):
            threading.Thread(target=target, name=name, daemon=True).start()

    def wait_decided(self) -> None:
        """Return once loading has ended, well or badly; `ready` then tells which."""
        self._decided.wait()

    def drain(self) -> None:
        """Take no new work; what runs goes on."""
        with self._lock:
            self._reason = STOPPING
            self._stopping.set()

    def stop(self) -> None:
        """Stop the engine; whoever waits is told."""
        self.drain()
        ready = self._ready
        if ready is not None:
            ready.engine.stop()

    def ready(self) -> "Ready":
        """What answering needs.

        Raises:
            UnavailableError: while it loads, after it failed, and when the engine is gone.
        """
        with self._lock:
            ready, reason = self._ready, self._reason
        if ready is not None and not reason and not ready.engine.is_alive:
            reason = DEAD
        if ready is None or reason:
            raise UnavailableError(reason, retry_after_s=5)
        return ready

    def session_size(self, turns: Sequence[Turn], key: int) -> tuple[int, int]:
        """Tokens of a session's turns, and the bytes of K/V kept under its key."""
        ready = self._ready
        if ready is None or not turns:
            return 0, 0
        return ready.dialogues[turns[-1].task].num_tokens(turns), ready.engine.cached_bytes(key)

    def _boot(
        self, on_ready: "Callable[[Ready], None]", on_failure: Callable[[Exception], None]
    ) -> None:
        try:
            from services.ready import make_ready

            ready = make_ready(self.settings, self.prompts, self._engine)
        except Exception as error:
            log.error("loading failed by %s", trace(error))
            if self._decide(None, f"the model can't be loaded: {error}"):
                on_failure(error)
        else:
            if self._decide(ready, ""):
                on_ready(ready)
            else:
                ready.engine.stop()
        finally:
            self._decided.set()

    def _decide(self, ready: "Ready | None", reason: str) -> bool:
        """Take over what loading came to; False if the service has been stopped meanwhile."""
        with self._lock:
            if self._stopping.is_set():
                return False
            self._ready, self._reason = ready, reason
            return True

    def _forget(self, key: int) -> None:
        ready = self._ready
        if ready is not None:
            ready.engine.forget(key)

    def _watch(self, on_death: Callable[[], None]) -> None:
        """Look after the engine and the idle sessions until the service stops."""
        for look in itertools.count(1):
            if self._stopping.wait(LOOK_S):
                return
            ready = self._ready
            if ready is not None and not ready.engine.is_alive:
                log.error(DEAD)
                on_death()
                return
            if look % SWEEP_LOOKS == 0:
                self.sessions.expire()
