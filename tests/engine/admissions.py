"""Admission on the store alone: no thread, no model."""

from services.engine.admission import Admission
from services.engine.kv_cache import KVCache, KVSpec
from services.engine.kv_store import KVStore
from services.engine.sequence import EngineSequence, Status
from services.engine.tasks import ChatTask, LabelTask, SequenceHandle

SPEC = KVSpec(num_layers=1, num_kv_heads=1, head_dim=1)  # 8 bytes a token
MAX_POSITIONS = 1024


def label(num_tokens: int) -> EngineSequence:
    return EngineSequence(LabelTask(range(num_tokens), ((1,), (2,))), SequenceHandle())


def chat(num_tokens: int, key: str | None = None) -> EngineSequence:
    """A chat that needs `num_tokens`, all but one for its prompt."""
    prompt = range(num_tokens - 1)
    return EngineSequence(ChatTask(prompt, frozenset(), 1, key=key), SequenceHandle())


def admission_of(
    budget_tokens: int, max_running: int = 16, max_chat_tokens: int | None = None
) -> tuple[Admission, KVStore]:
    store = KVStore(budget_tokens * SPEC.token_bytes)
    admission = Admission(
        store,
        SPEC,
        max_positions=MAX_POSITIONS,
        max_running=max_running,
        max_chat_tokens=max_chat_tokens,
    )
    return admission, store


def prefix_of(num_tokens: int) -> KVCache:
    kv = KVCache(SPEC, num_tokens)
    kv.extend(range(num_tokens))
    return kv


def admitted(admission: Admission, *sequences: EngineSequence) -> list[EngineSequence]:
    """Which of the waiting ones are admitted now."""
    waiting = [s for s in sequences if s.status is Status.WAITING]
    admission.admit(sequences)
    return [s for s in waiting if s.status is not Status.WAITING]


def end(admission: Admission, sequence: EngineSequence) -> None:
    sequence.status = Status.FINISHED
    admission.release(sequence)
