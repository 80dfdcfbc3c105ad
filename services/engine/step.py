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
    sequence.draft_ids = _draft(sequence, task)
    rows = [sequence.reply_ids[-1], *sequence.draft_ids]
    return [Segment(rows, sequence.kv, num_logits=len(rows))]


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
    return _sample(sequence, sequence.task, logits)


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


def _draft(sequence: EngineSequence, task: ChatTask) -> list[int]:
    """What may follow the token that runs now, but for the last one that is allowed."""
    if sequence.drafter is None:
        return []
    return sequence.drafter.draft(task.max_new_tokens - len(sequence.reply_ids) - 1)


def _sample(sequence: EngineSequence, task: ChatTask, logits: torch.Tensor) -> FinishedEvent | None:
    """Draw the next token, and as long as it is the drafted one the token after it too; forget
    the K/V of the rest of the draft.

    Every token is drawn from its own logits, as it would be without a draft: greedy or sampled,
    speculation changes no probability.
    """
    assert sequence.kv is not None  # it was accepted, and admitted
    sequence.status = Status.DECODE
    draft, sequence.draft_ids = sequence.draft_ids, []
    event, accepted = _take(sequence, task, logits[0]), 0
    while event is None and accepted < len(draft) and sequence.reply_ids[-1] == draft[accepted]:
        accepted += 1
        event = _take(sequence, task, logits[accepted])
    sequence.kv.truncate(len(sequence.kv) - (len(draft) - accepted))
    return event


def _take(sequence: EngineSequence, task: ChatTask, logits: torch.Tensor) -> FinishedEvent | None:
    """Draw one token from logits `[vocab_size]`; the end of the reply where it ends it."""
    assert sequence.sampler is not None
    assert sequence.kv is not None
    token_id = sequence.sampler.next_id(logits, sequence.reply_ids)
    reason = "stop" if token_id in task.end_ids else None
    if reason is None:
        sequence.reply_ids.append(token_id)
        sequence.handle.put(TokenEvent(token_id))
        if sequence.drafter is not None:
            sequence.drafter.append(token_id)
        if len(sequence.reply_ids) >= task.max_new_tokens:
            reason = "length"
    if reason is None:
        return None
    cached = sequence.cached_len - sequence.kv.prefix_len
    return FinishedEvent(reason, sequence.prompt_len, cached, len(sequence.reply_ids))
