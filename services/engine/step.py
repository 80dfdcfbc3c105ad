"""One sequence's part in a step: what it adds to the batch, and what its logits mean."""

import torch

from services.engine.attention import Segment
from services.engine.scheduler import Work
from services.engine.sequence import EngineSequence, Status
from services.engine.tasks import (
    ChatTask,
    EngineError,
    Event,
    FinishedEvent,
    LabelTask,
    ScoredEvent,
    TokenEvent,
)


def segments_of(work: Work) -> list[Segment]:
    """The segments that this work adds to the step's batch."""
    sequence, task = work.sequence, work.sequence.task
    assert sequence.kv is not None  # it was admitted
    if sequence.status is Status.PREFILL:
        start = sequence.kv_len
        end = start + work.num_tokens
        is_last = end == sequence.prompt_len
        return [Segment(task.prompt_ids[start:end], sequence.kv, num_logits=int(is_last))]
    if isinstance(task, LabelTask):
        return [
            Segment(choice[:-1], sequence.kv.branch(len(choice) - 1), len(choice) - 1)
            for choice in task.choices
            if len(choice) > 1
        ]
    return [Segment(sequence.reply_ids[-1:], sequence.kv, num_logits=1)]


def advance(sequence: EngineSequence, logits: torch.Tensor) -> Event | None:
    """Take a sequence's logits `[num_rows, vocab_size]`, none while its prompt isn't done; the
    event that ends it, once it is at its end.

    Raises:
        EngineError: a logit that counts is not finite.
    """
    if not len(logits):
        return None
    if isinstance(sequence.task, LabelTask):
        return _score(sequence, sequence.task, logits)
    return _sample(sequence, sequence.task, logits[-1])


def _score(sequence: EngineSequence, task: LabelTask, logits: torch.Tensor) -> ScoredEvent | None:
    """Add up the choices' log-probabilities: first tokens after the prompt, then the branches."""
    log_probs = logits.log_softmax(-1)
    if sequence.status is Status.PREFILL:
        totals = [float(log_probs[-1, choice[0]]) for choice in task.choices]
        is_done = all(len(choice) == 1 for choice in task.choices)
    else:
        totals, row, is_done = list(sequence.first_log_probs), 0, True
        for index, choice in enumerate(task.choices):
            for token_id in choice[1:]:
                totals[index] += float(log_probs[row, token_id])
                row += 1
    if not torch.isfinite(torch.tensor(totals)).all():
        raise EngineError("a label's log-probability is not finite")
    if is_done:
        return ScoredEvent(tuple(totals))
    sequence.first_log_probs = tuple(totals)
    sequence.status = Status.DECODE
    return None


def _sample(sequence: EngineSequence, task: ChatTask, logits: torch.Tensor) -> FinishedEvent | None:
    """Draw the next token and hand it out; the end of the reply where it ends it."""
    assert sequence.sampler is not None  # it was accepted, and admitted
    assert sequence.kv is not None
    sequence.status = Status.DECODE
    token_id = sequence.sampler.next_id(logits, sequence.reply_ids)
    reason = "stop" if token_id in task.end_ids else None
    if reason is None:
        sequence.reply_ids.append(token_id)
        sequence.handle.put(TokenEvent(token_id))
        if len(sequence.reply_ids) >= task.max_new_tokens:
            reason = "length"
    if reason is None:
        return None
    cached = sequence.cached_len - sequence.kv.prefix_len
    return FinishedEvent(reason, sequence.prompt_len, cached, len(sequence.reply_ids))
