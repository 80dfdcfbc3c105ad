"""Greedy replies of the engine, and what a difference between two of them is worth."""

from collections.abc import Sequence

import torch
from transformers import Qwen2ForCausalLM

from services.engine.tasks import ChatTask, FinishedEvent, SequenceHandle, TokenEvent
from services.ready import Ready

NUM_TOKENS = 48
NEAR_TIE = 1e-3


def submit(ready: Ready, prompt_ids: Sequence[int], key: str | None = None) -> SequenceHandle:
    return ready.engine.submit(ChatTask(prompt_ids, ready.encoder.end_ids, NUM_TOKENS, key=key))


def collect(handle: SequenceHandle) -> tuple[list[int], FinishedEvent]:
    """The reply's tokens and its end."""
    ids = []
    while isinstance(event := handle.next_event(300), TokenEvent):
        ids.append(event.token_id)
    assert isinstance(event, FinishedEvent), event
    return ids, event


def chat_ids(ready: Ready, text: str) -> list[int]:
    """The prompt of a first turn."""
    return ready.dialogues["chat"].next_turn((), ready.encoder.encode_text(text)).prompt_ids


@torch.inference_mode()
def assert_near_tie(
    stock: Qwen2ForCausalLM, prompt_ids: Sequence[int], first: list[int], second: list[int]
) -> None:
    """Two replies may part only where the stock model's two candidates are as good as equal."""
    at = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    assert at < min(len(first), len(second)), "one reply ends where the other goes on"
    logits = stock(torch.tensor([[*prompt_ids, *first[:at]]])).logits[0, -1]
    gap = abs(float(logits[first[at]] - logits[second[at]]))
    assert gap < NEAR_TIE, f"token {at}: {first[at]} and {second[at]} are {gap:.5f} apart"
