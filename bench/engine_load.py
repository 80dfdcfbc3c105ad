"""A client at the engine itself: the same tasks that a request over HTTP becomes."""

import time
from dataclasses import asdict

from bench.load import Answer, Question
from bench.timed_engine import wait
from services.engine.tasks import ChatTask, Sampling, SequenceHandle
from services.ready import Ready

LABEL, CHAT = "sentiment", "chat"  # the shipped prompts


class EngineClient:
    """Asks without HTTP: no frames, no session, texts encoded on the client's thread."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready

    def __call__(self, question: Question) -> Answer:
        begun = time.perf_counter()
        text_ids = self._ready.encoder.encode_text(question.text)
        label = chat = None
        if question.has_label:
            label = self._ready.engine.submit(self._ready.scorers[LABEL].task(text_ids))
        if question.has_reply:
            chat = self._ready.engine.submit(self._chat_task(question, text_ids, label))
        label_at = first_at = None
        num_tokens = 0
        if label is not None:
            wait(label)
            label_at = time.perf_counter()
        if chat is not None:
            times = wait(chat).times
            num_tokens = len(times)
            first_at = times[0] if times else None
        return Answer(begun, time.perf_counter(), label_at, first_at, num_tokens)

    def _chat_task(
        self, question: Question, text_ids: list[int], label: SequenceHandle | None
    ) -> ChatTask:
        prompt = self._ready.prompts[CHAT]
        return ChatTask(
            self._ready.dialogues[CHAT].next_turn((), text_ids).prompt_ids,
            self._ready.encoder.end_ids,
            question.new_tokens,
            Sampling(**asdict(prompt.sampling), seed=question.seed),
            after=(label,) if label is not None else (),
        )
