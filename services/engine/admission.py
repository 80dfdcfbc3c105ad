"""Who gets memory and a place: K/V found again, worst cases reserved, K/V kept at the end."""

from collections.abc import Iterable, Sequence

from services.engine.kv_cache import MAX_COPIED_TOKENS, KVCache, KVSpec
from services.engine.kv_store import KVStore
from services.engine.sequence import EngineSequence, Status
from services.engine.tasks import ChatTask


class Admission:
    """Admits waiting sequences, labels first, each kind in order of arrival."""

    def __init__(
        self,
        store: KVStore,
        spec: KVSpec,
        *,
        max_positions: int,
        max_running: int,
        max_chat_tokens: int | None = None,
    ) -> None:
        """`max_chat_tokens` bounds a chat's prompt and answer together, where that is less than
        the model's `max_positions`, which bound all."""
        self._store = store
        self._spec = spec
        self._max_positions = max_positions
        self._max_chat_tokens = min(max_positions, max_chat_tokens or max_positions)
        self._max_running = max_running
        self.prefixes: list[KVCache] = []  # longest first

    def add_prefix(self, kv: KVCache) -> None:
        """Share this K/V, read-only from now on, with every prompt that begins with its tokens."""
        self.prefixes.append(kv)
        self.prefixes.sort(key=len, reverse=True)

    def refusal(self, sequence: EngineSequence) -> str | None:
        """Why this sequence can never run, if so."""
        task = sequence.task
        if isinstance(task, ChatTask):
            shortest = longest = task.max_new_tokens
            limit = self._max_chat_tokens
        else:
            lengths = [len(choice) for choice in task.choices] or [0]
            shortest, longest = min(lengths), max(lengths)
            limit = self._max_positions
        if not task.prompt_ids or shortest < 1:
            return "the prompt or the answer is empty"
        if sequence.prompt_len + longest > limit:
            return f"prompt and answer exceed {limit} positions"
        if self._need_bytes(sequence) > self._store.budget_bytes:
            return "prompt and answer exceed the K/V budget"
        return None

    def shortage(self, num_tokens: int, branches: Sequence[int] = ()) -> str | None:
        """Why `num_tokens`, and branches of so many tokens behind them, could never run."""
        longest = num_tokens + max(branches, default=0)
        if longest > self._max_positions:
            return f"the model has {self._max_positions} positions, {longest} are needed"
        need = sum(map(self._spec.bytes_of, (num_tokens, *branches)))
        if need > self._store.budget_bytes:
            return f"the K/V budget has {self._store.budget_bytes} bytes, {need} are needed"
        return None

    def admit(self, sequences: Iterable[EngineSequence]) -> list[EngineSequence]:
        """Move what fits from WAITING to PREFILL; those to which the system gives no memory,
        though the budget has it, are returned.

        One that doesn't fit holds up those of its kind behind it; and those of the other kind,
        where they have the room that it would need. So nobody is starved, neither by smaller
        ones nor by ever more of the other kind.
        """
        sequences = list(sequences)
        ready = [s for s in sequences if s.status is Status.WAITING and s.is_ready]
        running = sum(not s.is_label and s.status is not Status.WAITING for s in sequences)
        labels = [s for s in ready if s.is_label]
        chats = [s for s in ready if not s.is_label][: max(0, self._max_running - running)]
        queues = [labels, chats]
        if chats and chats[0].is_overdue:
            queues.insert(0, chats[:1])
        failed: list[EngineSequence] = []
        for queue in queues:
            for sequence in queue:
                if sequence.status is not Status.WAITING:
                    continue
                try:
                    is_admitted = self._admit_one(sequence)
                except OSError:
                    failed.append(sequence)
                    continue
                if is_admitted:
                    continue
                if self._is_held_up_by_other_kind(sequence, sequences):
                    sequence.is_overdue = True
                    return failed
                break
        return failed

    def release(self, sequence: EngineSequence) -> None:
        """Give back what it reserved. K/V of a keyed chat is kept: all of it where the reply is
        whole; else as it was admitted, which is what stood there before as far as the prompt has
        it."""
        task, kv = sequence.task, sequence.kv
        sequence.kv = None
        if kv is None:
            return
        self._store.unreserve(sequence.reserved_bytes)
        if not isinstance(task, ChatTask) or task.key is None or sequence.is_forgotten:
            return
        if sequence.status is Status.FAILED:
            kv.truncate(sequence.cached_len)
        if len(kv) > kv.prefix_len:
            self._store.keep(task.key, kv)

    def _is_held_up_by_other_kind(
        self, sequence: EngineSequence, sequences: Iterable[EngineSequence]
    ) -> bool:
        """Whether one that doesn't fit now would fit beside those of its own kind alone."""
        own_kind = sum(s.reserved_bytes for s in sequences if s.is_label == sequence.is_label)
        return own_kind + self._need_bytes(sequence) <= self._store.budget_bytes

    def _admit_one(self, sequence: EngineSequence) -> bool:
        task, need = sequence.task, self._need_bytes(sequence)
        key = task.key if isinstance(task, ChatTask) else None
        kept = self._store.take(key) if key is not None else None
        if not self._store.reserve(need):
            if kept is not None:
                self._store.keep(key, kept)
            return False
        prefix = self._prefix_of(sequence)
        try:
            sequence.kv = self._reused(kept, sequence, prefix) or self._new_cache(sequence, prefix)
        except OSError:
            self._store.unreserve(need)
            raise
        sequence.reserved_bytes = need
        sequence.cached_len = len(sequence.kv)
        sequence.status = Status.PREFILL
        return True

    def _reused(
        self, kept: KVCache | None, sequence: EngineSequence, prefix: KVCache | None
    ) -> KVCache | None:
        """The kept K/V as far as its tokens are the prompt's; one token is always left to run."""
        if kept is None:
            return None
        common = min(kept.common_len(sequence.task.prompt_ids), sequence.prompt_len - 1)
        # Behind a shorter prefix it would have more tokens of its own than were reserved.
        prefix_len = len(prefix) if prefix is not None else 0
        if common <= kept.prefix_len or kept.prefix_len != prefix_len:
            return None
        kept.truncate(common)
        return kept

    def _new_cache(self, sequence: EngineSequence, prefix: KVCache | None) -> KVCache:
        if sequence.is_label:  # its length is known and nothing is kept
            return KVCache(self._spec, sequence.prompt_len, prefix)
        if prefix is not None and _is_copied(sequence, prefix):
            return KVCache.copying(self._spec, self._max_chat_tokens, prefix)
        return KVCache(self._spec, self._max_chat_tokens, prefix)

    def _prefix_of(self, sequence: EngineSequence) -> KVCache | None:
        ids = sequence.task.prompt_ids
        for prefix in self.prefixes:
            if len(prefix) < len(ids) and prefix.common_len(ids) == len(prefix):
                return prefix
        return None

    def _need_bytes(self, sequence: EngineSequence) -> int:
        """Bytes of its own K/V at the worst: the prompt without the prefix, and the answer."""
        task = sequence.task
        prefix = self._prefix_of(sequence)
        is_shared = prefix is not None and not _is_copied(sequence, prefix)
        own = sequence.prompt_len - (len(prefix) if is_shared and prefix is not None else 0)
        if isinstance(task, ChatTask):
            return self._spec.bytes_of(own + task.max_new_tokens)
        branches = sum(self._spec.bytes_of(len(choice) - 1) for choice in task.choices)
        return self._spec.bytes_of(own) + branches


def _is_copied(sequence: EngineSequence, prefix: KVCache) -> bool:
    """A chat attends in many steps, a label in one or two."""
    return not sequence.is_label and len(prefix) <= MAX_COPIED_TOKENS
