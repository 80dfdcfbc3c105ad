"""Logits -> next token, with a generator of the sequence's own."""

import math

import torch

from services.engine.tasks import EngineError, Sampling

# The nucleus nearly always lies within the tokens over this share of the likeliest; only
# otherwise more of them are sorted.
FIRST_SHARE = 1e-4
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
        if not math.isfinite(float(logits.max())):
            raise EngineError("the model's logits are not finite")
        if self._sampling.repetition_penalty != 1.0 and reply_ids:
            logits = self._penalised(logits, reply_ids)
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        probs, ids = self._candidates(logits, max(self._sampling.temperature, MIN_TEMPERATURE))
        return int(ids[torch.multinomial(probs, 1, generator=self._generator)])

    def _penalised(self, logits: torch.Tensor, reply_ids: list[int]) -> torch.Tensor:
        logits = logits.clone()
        seen = torch.tensor(sorted(set(reply_ids)))
        values, penalty = logits[seen], self._sampling.repetition_penalty
        logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
        return logits

    def _candidates(
        self, logits: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities, not normalised, and ids of what may be drawn: top-k, then the nucleus."""
        top_k = self._sampling.top_k
        ids = None
        if top_k:
            logits, ids = logits.topk(min(top_k, logits.numel()))
        # Less the greatest, so that the division can't make plus infinity.
        probs = logits.sub(logits.max()).div_(temperature).softmax(-1)
        probs, chosen = _nucleus(probs, self._sampling.top_p)
        return probs, chosen if ids is None else ids[chosen]


def _nucleus(probs: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The fewest of these whose probabilities reach `top_p`, in descending order, and where they
    stand (Holtzman et al., 2020)."""
    if top_p >= 1.0:
        return probs, torch.arange(probs.numel())
    likely = (probs > FIRST_SHARE * probs.max()).nonzero().squeeze(1)
    if float(probs[likely].sum()) < top_p:
        likely = torch.arange(probs.numel())
    probs, order = probs[likely].sort(descending=True)
    kept = 1 + int((probs.cumsum(-1)[:-1] < top_p).sum())
    return probs[:kept], likely[order[:kept]]
