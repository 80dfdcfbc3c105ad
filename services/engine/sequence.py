"""One sequence's state inside the engine."""

import enum
from dataclasses import dataclass, field

from services.engine.drafting import Drafter
from services.engine.kv_cache import KVCache
from services.engine.sampler import Sampler
from services.engine.tasks import ChatTask, LabelTask, SequenceHandle


class Status(enum.Enum):
    """WAITING for memory or a place, then PREFILL of its prompt, then DECODE, then one end."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class EngineSequence:
    """One sequence's state; the engine's thread alone touches it."""

    task: LabelTask | ChatTask
    handle: SequenceHandle
    status: Status = Status.WAITING
    kv: KVCache | None = None
    sampler: Sampler | None = None
    cached_len: int = 0
    reserved_bytes: int = 0
    reply_ids: list[int] = field(default_factory=list)
    drafter: Drafter | None = None
    draft_ids: list[int] = field(default_factory=list)  # to be verified by the step that runs
    first_log_probs: tuple[float, ...] = ()  # of each choice's first token
    is_forgotten: bool = False  # its key was, so nothing of it may be kept
    is_overdue: bool = False  # the other kind had the room that it needs: it goes before them

    @property
    def is_label(self) -> bool:
        return isinstance(self.task, LabelTask)

    @property
    def is_ready(self) -> bool:
        """Whether all that it has to follow has ended."""
        return isinstance(self.task, LabelTask) or all(h.is_ended for h in self.task.after)

    @property
    def prompt_len(self) -> int:
        return len(self.task.prompt_ids)

    @property
    def kv_len(self) -> int:
        """Tokens whose K/V is there; 0 while it waits."""
        return len(self.kv) if self.kv is not None else 0

    @property
    def prefix_len(self) -> int:
        """Tokens of its template's prefix, if that was prefilled for all; 0 while it waits."""
        return self.kv.prefix_len if self.kv is not None else 0
