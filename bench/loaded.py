"""One precision's model, and an engine over the very same weights, for comparing precisions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from bench.changed_model import make_ready_with
from bench.contender import UnavailableError
from bench.engine_load import LABEL
from services.engine.attention import Segment
from services.engine.kv_cache import KVCache
from services.engine.model import Qwen2Model
from services.engine.tasks import ScoredEvent
from services.ready import Ready
from services.settings import Settings


@dataclass(frozen=True, slots=True)
class Loaded:
    """Ask one of the two at a time: they share the cores and the weights."""

    model: Qwen2Model
    ready: Ready

    def logits(self, token_ids: Sequence[int], num_logits: int) -> torch.Tensor:
        """`[num_logits, vocab_size]` of the last so many positions, from nothing cached."""
        kv = KVCache(self.model.kv_spec, len(token_ids))
        return self.model.forward([Segment(token_ids, kv, num_logits)])

    def label(self, text_ids: Sequence[int]) -> str:
        """As the service decides it."""
        scorer = self.ready.scorers[LABEL]
        event = self.ready.engine.submit(scorer.task(text_ids)).next_event()
        if not isinstance(event, ScoredEvent):
            raise UnavailableError(f"a label failed: {event}")
        return scorer.decide(event.log_probs).label


def load(settings: Settings, weights: str, kv: str) -> Loaded:
    """The model in this precision of its weights and of its K/V.

    Raises:
        UnavailableError: the model isn't there.
    """
    models: list[Qwen2Model] = []

    def note(model: Qwen2Model) -> Qwen2Model:
        models.append(model)
        return model

    settings = replace(settings, precision=weights, kv_precision=kv)
    ready = make_ready_with(settings, note)
    return Loaded(models[0], ready)
