"""Score the labels of a prompt, calibrate, decide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from services.engine.tasks import LabelTask
from services.prompt_encoding import EncodedPrompt


@dataclass(frozen=True, slots=True)
class Verdict:
    """A label, its probability among the labels, and that of each of them."""

    label: str
    confidence: float
    scores: dict[str, float]


class LabelScorer:
    """Asks one label prompt about texts.

    The content-free bias is the mean log-probability that texts without content get; it is
    taken off every text's (contextual calibration, Zhao et al., 2021).
    """

    def __init__(self, encoded: EncodedPrompt) -> None:
        self._encoded = encoded
        self._bias = [0.0] * len(encoded.choices)

    def task(self, text_ids: Sequence[int]) -> LabelTask:
        """The engine's task for a text's token ids."""
        encoded = self._encoded
        return LabelTask([*encoded.head_ids, *text_ids, *encoded.tail_ids], encoded.choices)

    def calibrate(self, content_free: Sequence[Sequence[float]]) -> None:
        """Set the bias from the log-probabilities of content-free texts, a row each."""
        normalised = [_normalise(row) for row in content_free]
        self._bias = [sum(column) / len(normalised) for column in zip(*normalised, strict=True)]

    def decide(self, log_probs: Sequence[float]) -> Verdict:
        """The verdict on the labels' log-probabilities."""
        unbiased = [value - bias for value, bias in zip(log_probs, self._bias, strict=True)]
        probs = [math.exp(value) for value in _normalise(unbiased)]
        scores = dict(zip(self._encoded.prompt.labels, probs, strict=True))
        label = max(scores, key=scores.__getitem__)
        return Verdict(label, scores[label], scores)


def _normalise(log_probs: Sequence[float]) -> list[float]:
    """Log-probabilities among themselves: their exponentials sum to 1."""
    top = max(log_probs)
    total = top + math.log(sum(math.exp(value - top) for value in log_probs))
    return [value - total for value in log_probs]
