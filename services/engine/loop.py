"""The sequences and how they advance. The engine's thread alone touches this."""

import logging
from collections.abc import Hashable, Sequence

import torch

from services.engine.admission import Admission
from services.engine.attention import Segment
from services.engine.kv_cache import KVCache
from services.engine.kv_store import KVStore
from services.engine.model import Forward
from services.engine.sampler import Sampler
from services.engine.scheduler import Work, next_chunk, schedule
from services.engine.sequence import EngineSequence, Status
from services.engine.step import advance, segments_of
from services.engine.tasks import (
    ChatTask,
    EngineError,
    EngineStoppedError,
    Event,
    FailedEvent,
)
from services.traces import trace

log = logging.getLogger(__name__)


class Loop:
    """Runs sequences side by side: each step takes the next tokens of every one."""

    def __init__(
        self,
        model: Forward,
        store: KVStore,
        max_running: int,
        max_chat_tokens: int | None = None,
    ) -> None:
        self._model = model
        self._store = store
        self._admission = Admission(
            store,
            model.kv_spec,
            max_positions=model.max_positions,
            max_running=max_running,
            max_chat_tokens=max_chat_tokens,
        )
        self._sequences: list[EngineSequence] = []  # in order of arrival
        self.num_steps = 0

    @property
    def num_sequences(self) -> int:
        return len(self._sequences)

    @property
    def prefixes(self) -> Sequence[KVCache]:
        return tuple(self._admission.prefixes)

    def shortage(self, num_tokens: int, branches: Sequence[int] = ()) -> str | None:
        """See `Admission.shortage`."""
        return self._admission.shortage(num_tokens, branches)

    def accept(self, sequence: EngineSequence) -> None:
        """Let it wait for memory and a place; tell its caller at once where it can never run."""
        try:
            reason = self._admission.refusal(sequence)
            if reason is not None:
                raise EngineError(reason)
            if isinstance(sequence.task, ChatTask):
                sequence.sampler = Sampler(sequence.task.sampling)
        except Exception as error:
            sequence.handle.put(_failed(error))
        else:
            self._sequences.append(sequence)

    def forget(self, key: Hashable) -> None:
        """Drop the K/V kept under `key`, and keep nothing of what runs under it."""
        self._store.forget(key)
        for sequence in self._sequences:
            if isinstance(sequence.task, ChatTask) and sequence.task.key == key:
                sequence.is_forgotten = True

    def add_prefix(self, token_ids: Sequence[int]) -> None:
        """Prefill tokens that many prompts begin with, if any, and share their K/V.

        Raises:
            EngineError: they exceed the model's positions.
        """
        if len(token_ids) > self._model.max_positions:
            raise EngineError(f"a prefix exceeds the model's {self._model.max_positions} positions")
        if not token_ids:
            return
        kv = KVCache(self._model.kv_spec, len(token_ids))
        while len(kv) < len(token_ids):
            end = len(kv) + next_chunk(len(kv), len(token_ids))
            self._model.forward([Segment(token_ids[len(kv) : end], kv)])
        self._admission.add_prefix(kv)

    def step(self) -> bool:
        """Run the next tokens of every sequence that can; False if none could."""
        self._end_cancelled()
        for sequence in self._admission.admit(self._sequences):
            self._end(sequence, FailedEvent(EngineError("the system gives no memory for K/V")))
        work = schedule(self._sequences)
        if work:
            self._postprocess(work, self._forward(work))
        return bool(work)

    def close(self) -> None:
        """Tell everyone who is still there, and free all K/V."""
        sequences, self._sequences = self._sequences, []
        for sequence in sequences:
            sequence.handle.put(FailedEvent(EngineStoppedError("the engine has stopped")))
        self._store.clear()

    def _end_cancelled(self) -> None:
        for sequence in [s for s in self._sequences if s.handle.is_cancelled]:
            self._end(sequence, FailedEvent(EngineError("cancelled")))

    def _forward(self, work: list[Work]) -> list[torch.Tensor]:
        """Logits `[num_rows, vocab_size]` for each item of work."""
        segments = [segments_of(item) for item in work]
        logits = self._model.forward([segment for group in segments for segment in group])
        self.num_steps += 1
        return list(logits.split([sum(s.num_logits for s in group) for group in segments]))

    def _postprocess(self, work: list[Work], logits: list[torch.Tensor]) -> None:
        for item, rows in zip(work, logits, strict=True):
            event: Event | None
            try:
                event = advance(item.sequence, rows)
            except Exception as error:
                event = _failed(error)
            if event is not None:
                self._end(item.sequence, event)

    def _end(self, sequence: EngineSequence, event: Event) -> None:
        """Free what it holds, keep its K/V for the session, then tell the caller."""
        self._sequences.remove(sequence)
        sequence.status = Status.FAILED if isinstance(event, FailedEvent) else Status.FINISHED
        try:
            self._admission.release(sequence)
        finally:  # whatever happens, its caller must not wait for ever
            sequence.handle.put(event)


def _failed(error: Exception) -> FailedEvent:
    """The event for what went wrong with one sequence; unforeseen errors are logged."""
    if isinstance(error, EngineError):
        return FailedEvent(error)
    log.error("a sequence failed by %s", trace(error))
    return FailedEvent(EngineError(type(error).__name__))
