"""The seam's engine: any thread submits, the one thread that owns the model runs."""

import atexit
import logging
import queue
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from services.engine.drafting import Drafter
from services.engine.kv_cache import KVCache
from services.engine.kv_store import KVStore
from services.engine.loop import Loop
from services.engine.model import Forward
from services.engine.sequence import EngineSequence
from services.engine.tasks import (
    ChatTask,
    EngineStoppedError,
    FailedEvent,
    LabelTask,
    SequenceHandle,
)
from services.traces import trace

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A look at the engine from outside; numbers may be a step old."""

    num_steps: int
    num_sequences: int
    reserved_bytes: int
    idle_bytes: int
    evictions: int


class Engine:
    """Owns the inbox, and the one thread that runs the tasks in it side by side.

    `submit` and `forget` may be called from any thread. They put a message into the inbox, and
    the engine's thread alone acts on it. Once that thread is gone, whoever puts a message in
    answers what the inbox holds, with failures only.
    """

    def __init__(
        self,
        load_model: Callable[[], Forward],
        *,
        kv_budget_bytes: int,
        max_running: int,
        max_chat_tokens: int | None = None,
    ) -> None:
        """`load_model` is called on the engine's thread, after `start`. A chat, prompt and answer
        together, has at most `max_chat_tokens` tokens, or as many as the model has positions."""
        self._load_model = load_model
        self._store = KVStore(kv_budget_bytes)
        self._max_running = max_running
        self._max_chat_tokens = max_chat_tokens
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._loop: Loop | None = None  # None while the model loads
        self._is_closed = False
        self._is_stopping = False
        self._loaded: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # --- any thread ---

    def start(self) -> None:
        """Start the thread, which loads the model first."""
        # A daemon thread inside torch when the interpreter ends would abort the process.
        atexit.register(self.stop)
        self._thread.start()

    def wait_loaded(self) -> None:
        """Return once the model is loaded; raise what its loading raised."""
        self._loaded.result()

    def stop(self) -> None:
        """End the thread; every sequence still there gets a `FailedEvent`."""
        atexit.unregister(self.stop)
        self._send(self._stop)
        if self._thread.ident is None:  # never started, so nobody else will read the inbox
            self._close()
        else:
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._is_closed

    def submit(self, task: LabelTask | ChatTask) -> SequenceHandle:
        """Run a task; its handle gets the events, exactly one of which ends it."""
        handle = SequenceHandle()
        sequence = EngineSequence(task, handle)
        if (
            isinstance(task, ChatTask) and task.may_draft
        ):  # here, for the engine's thread has enough to do
            sequence.drafter = Drafter(task.prompt_ids)
        self._send(partial(self._accept, sequence))
        return handle

    def add_prefix(self, token_ids: Sequence[int]) -> None:
        """Prefill tokens that many prompts begin with, once; wait for it.

        Raises:
            EngineError: they exceed the model's positions, or the engine has stopped.
        """
        done: Future[None] = Future()
        self._send(partial(self._add_prefix, tuple(token_ids), done))
        done.result()

    def forget(self, key: Hashable) -> None:
        """Drop the K/V kept under `key`, and keep nothing more of it."""
        self._send(partial(self._forget, key))

    def cached_bytes(self, key: Hashable) -> int:
        """Bytes of K/V kept under `key` while no sequence of it runs."""
        return self._store.bytes_of(key)

    def shortage(self, num_tokens: int, branches: Sequence[int] = ()) -> str | None:
        """Why `num_tokens`, a prompt's or a whole chat's, and branches of so many tokens behind
        them, could never run."""
        return self._loop.shortage(num_tokens, branches) if self._loop is not None else None

    def prefixes(self) -> Sequence[KVCache]:
        """The shared K/V, longest first; read-only."""
        return self._loop.prefixes if self._loop is not None else ()

    def stats(self) -> EngineStats:
        loop = self._loop
        return EngineStats(
            num_steps=loop.num_steps if loop is not None else 0,
            num_sequences=loop.num_sequences if loop is not None else 0,
            reserved_bytes=self._store.reserved_bytes,
            idle_bytes=self._store.idle_bytes,
            evictions=self._store.evictions,
        )

    def _send(self, message: Callable[[], None]) -> None:
        self._inbox.put(message)
        if self._is_closed:  # nobody reads the inbox any more: answer what is in it here
            self._read_inbox()

    # --- the engine's thread ---

    def _run(self) -> None:
        try:
            if self._is_closed:
                raise EngineStoppedError("the engine was stopped before it started")
            self._loop = Loop(
                self._load_model(), self._store, self._max_running, self._max_chat_tokens
            )
        except BaseException as error:
            self._close()
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(None)
        try:
            self._run_loop(self._loop)
        except Exception as error:
            log.error("the engine's loop failed by %s", trace(error))
        finally:
            self._close()

    def _run_loop(self, loop: Loop) -> None:
        while True:
            self._read_inbox(wait=not loop.num_sequences)
            if self._is_stopping:
                return
            if not loop.step() and loop.num_sequences:
                # All wait for memory or for one another: a moment, not a busy loop.
                self._read_inbox(wait=True, timeout_s=IDLE_WAIT_S)

    def _read_inbox(self, *, wait: bool = False, timeout_s: float | None = None) -> None:
        with suppress(queue.Empty):
            if wait:
                self._inbox.get(timeout=timeout_s)()
            # No more than there are now: a flood must not keep the steps from running.
            for _ in range(self._inbox.qsize()):
                self._inbox.get_nowait()()

    def _close(self) -> None:
        """Tell everyone who waits; from here on `_send` answers by itself."""
        self._is_closed = True  # first: what comes from now on is answered by who sends it
        if self._loop is not None:
            self._loop.close()
        self._read_inbox()

    # --- messages; once it is closed, any thread may run them ---

    def _stop(self) -> None:
        self._is_stopping = True

    def _accept(self, sequence: EngineSequence) -> None:
        if self._is_closed or self._loop is None:
            sequence.handle.put(FailedEvent(EngineStoppedError("the engine has stopped")))
        else:
            self._loop.accept(sequence)

    def _forget(self, key: Hashable) -> None:
        if not self._is_closed and self._loop is not None:
            self._loop.forget(key)

    def _add_prefix(self, token_ids: tuple[int, ...], done: "Future[None]") -> None:
        if self._is_closed or self._loop is None:
            done.set_exception(EngineStoppedError("the engine has stopped"))
            return
        try:
            self._loop.add_prefix(token_ids)
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)
