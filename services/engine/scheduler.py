"""Which tokens run in the next step. Pure: no torch, no clock, no state of its own."""

from collections.abc import Iterable
from dataclasses import dataclass

from services.engine.sequence import EngineSequence, Status

# Prompts are cut at multiples of this behind their prefix, so that chunks don't depend on load.
CHUNK_TOKENS = 64
# Prompts share so many tokens of a step. With the oldest chat's chunk, which runs in any case,
# running replies never pause for longer than 128 prompt tokens take.
MAX_PREFILL_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Work:
    """Run the next `num_tokens` tokens of a sequence (of each branch, where a label branches)."""

    sequence: EngineSequence
    num_tokens: int


def next_chunk(kv_len: int, prompt_len: int, prefix_len: int = 0) -> int:
    """Tokens from `kv_len` to the next chunk boundary, or to the prompt's end."""
    return min(prompt_len - kv_len, CHUNK_TOKENS - (kv_len - prefix_len) % CHUNK_TOKENS)


def schedule(sequences: Iterable[EngineSequence]) -> list[Work]:
    """Plan one step over admitted sequences, which stand in order of arrival.

    Every reply gets its next token. Prompts share what `MAX_PREFILL_TOKENS` allows, labels
    first; yet the oldest chat prompt always advances, so that labels can't starve it. The first
    prompt of each kind may exceed the allowance: a chunk is never cut by load.
    """
    step: list[Work] = []
    labels: list[Work] = []
    chats: list[Work] = []
    for sequence in sequences:
        if sequence.status is Status.DECODE:
            step.append(Work(sequence, 1))
        elif sequence.status is Status.PREFILL and sequence.is_ready:
            size = next_chunk(sequence.kv_len, sequence.prompt_len, sequence.prefix_len)
            (labels if sequence.is_label else chats).append(Work(sequence, size))
    left = MAX_PREFILL_TOKENS
    for queue in (labels, chats):
        for position, work in enumerate(queue):
            if position and work.num_tokens > left:
                break
            step.append(work)
            left -= work.num_tokens
    return step
