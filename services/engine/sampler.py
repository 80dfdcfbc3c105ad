"""Logits -> next token, with a generator of the sequence's own."""

import torch

from services.engine.tasks import EngineError, Sampling

# The nucleus nearly always lies within the likeliest few; only otherwise all are sorted.
FIRST_CANDIDATES = 256
# A lower temperature is as good as greedy, and fp32 can't divide by much less.
MIN_TEMPERATURE = 1e-6


class Sampler:
    """Draws the tokens of one reply; the same seed and logits give the same tokens."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def next_id(self, logits: torch.Tensor, reply_ids: list[int]) -> int:
        """Choose from `logits` `[vocab_size]`, given the tokens of the reply so far.

        Raises:
            EngineError: a logit is NaN or plus infinity, or all are minus infinity.
        """
        if not torch.isfinite(logits.max()):
            raise EngineError("the model's logits are not finite")
        if self._sampling.repetition_penalty != 1.0 and reply_ids:
            logits = self._penalised(logits, reply_ids)
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        # Less the greatest, so that the division can't make plus infinity.
        scaled = (logits - logits.max()) / max(self._sampling.temperature, MIN_TEMPERATURE)
        probs, ids = self._candidates(scaled)
        return int(ids[torch.multinomial(probs, 1, generator=self._generator)])

    def _penalised(self, logits: torch.Tensor, reply_ids: list[int]) -> torch.Tensor:
        logits = logits.clone()
        seen = torch.tensor(sorted(set(reply_ids)))
        values, penalty = logits[seen], self._sampling.repetition_penalty
        logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
        return logits

    def _candidates(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities, not normalised, and ids of what may be drawn: top-k, then the nucleus."""
        top_k, top_p = self._sampling.top_k, self._sampling.top_p
        if top_k:
            values, ids = logits.topk(min(top_k, logits.numel()))
            return _nucleus(values.softmax(-1), ids, top_p)
        probs = logits.softmax(-1)
        if top_p >= 1.0:
            return probs, torch.arange(probs.numel())
        likeliest, ids = probs.topk(min(FIRST_CANDIDATES, probs.numel()))
        if float(likeliest.cumsum(-1)[-1]) < top_p:
            likeliest, ids = probs.sort(descending=True)
        return _nucleus(likeliest, ids, top_p)


def _nucleus(
    probs: torch.Tensor, ids: torch.Tensor, top_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The fewest of these, which descend, whose probabilities reach `top_p` (Holtzman et al.,
    2020)."""
    if top_p >= 1.0:
        return probs, ids
    kept = 1 + int((probs.cumsum(-1)[:-1] < top_p).sum())
    return probs[:kept], ids[:kept]
