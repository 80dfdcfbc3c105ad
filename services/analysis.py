"""One request's events in order, labels first; JSON answers and streams both read them."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from services.dialogue import RESET_RESPONSES, NextTurn
from services.engine.detokenizer import Detokenizer
from services.engine.tasks import (
    ChatTask,
    EngineStoppedError,
    FailedEvent,
    FinishedEvent,
    Sampling,
    ScoredEvent,
    SequenceHandle,
    TokenEvent,
)
from services.errors import ClientLeftError, ServiceError, UnavailableError
from services.events import SENTIMENT, Delta, Done, Event, Label, Timings, Usage
from services.places import Places
from services.prompts import Prompt
from services.router import Route
from services.schemas import AnalyzeRequest
from services.sentiment import Verdict
from services.sessions import SessionStore, Ticket

if TYPE_CHECKING:
    from services.ready import Ready

# How often one who waits looks whether the client has left.
LOOK_S = 0.2


@dataclass(slots=True)
class Analysis:
    """One request on its way through the engine.

    `events` raises `ServiceError` for what fails, `ClientLeftError` when `has_left` says so.
    Closing it at any point cancels what still runs and rolls the session's turn back.
    """

    ready: "Ready"
    sessions: SessionStore
    places: Places
    request: AnalyzeRequest
    route: Route
    text_ids: Sequence[int]
    has_left: Callable[[], bool]
    arrived: float = field(default_factory=time.monotonic)
    _label_ms: float | None = None
    _first_token_ms: float | None = None
    _sentiment: str | None = None

    def events(self) -> Generator[Event]:
        """`Label`s, `Delta`s, then one `Done`."""
        with ExitStack() as stack:
            stack.enter_context(self.places.held())
            ticket = self._join_session(stack)
            if ticket is not None and self._is_reset():
                yield from self._reset(ticket)
                return
            labels = {task: self._submit_label(task, stack) for task in self.route.labels}
            chat = None
            if self.route.chat is not None and (ticket is None or ticket.wait(0)):
                # At once, behind the labels: no way back to this thread between the two.
                chat = self._submit_chat(self.route.chat, ticket, tuple(labels.values()), stack)
            for task, handle in labels.items():
                yield Label(task, self._verdict(task, handle))
            if self.route.chat is None:
                yield self._done(None, None)
                return
            if chat is None:
                self._await_turn(ticket)
                chat = self._submit_chat(self.route.chat, ticket, (), stack)
            yield from self._reply(*chat, ticket)

    # --- labels ---

    def _submit_label(self, task: str, stack: ExitStack) -> SequenceHandle:
        handle = self.ready.engine.submit(self.ready.scorers[task].task(self.text_ids))
        stack.callback(handle.cancel)
        return handle

    def _verdict(self, task: str, handle: SequenceHandle) -> Verdict:
        event = self._next(handle)
        assert isinstance(event, ScoredEvent)  # a label task has no other end
        verdict = self.ready.scorers[task].decide(event.log_probs)
        self._label_ms = self._elapsed_ms()
        if task == SENTIMENT:
            self._sentiment = verdict.label
        return verdict

    # --- the chat ---

    def _join_session(self, stack: ExitStack) -> Ticket | None:
        if self.route.chat is None or self.request.session_id is None:
            return None
        ticket = self.sessions.join(self.request.session_id)
        stack.callback(ticket.release)
        return ticket

    def _await_turn(self, ticket: Ticket | None) -> None:
        while ticket is not None and not ticket.wait(LOOK_S):
            self._check_client()

    def _is_reset(self) -> bool:
        return self.request.text in RESET_RESPONSES

    def _reset(self, ticket: Ticket) -> Iterator[Event]:
        self._await_turn(ticket)
        ticket.reset()
        yield Delta(RESET_RESPONSES[self.request.text])
        yield self._done("stop", Usage())

    def _submit_chat(
        self,
        name: str,
        ticket: Ticket | None,
        after: tuple[SequenceHandle, ...],
        stack: ExitStack,
    ) -> tuple[SequenceHandle, NextTurn]:
        history, key = ticket.look() if ticket is not None else ((), None)
        if self.request.replace_last:
            history = history[:-1]
        turn = self.ready.dialogues[name].next_turn(history, self.text_ids)
        prompt = self.ready.prompts[name]
        handle = self.ready.engine.submit(
            ChatTask(
                prompt_ids=turn.prompt_ids,
                end_ids=self.ready.encoder.end_ids,
                max_new_tokens=self.request.max_new_tokens or prompt.max_new_tokens,
                sampling=_sampling(self.request, prompt),
                key=key,
                after=after,
            )
        )
        stack.callback(handle.cancel)
        if ticket is not None:
            stack.callback(self._forget_stale, ticket, key)
        return handle, turn

    def _forget_stale(self, ticket: Ticket, key: int | None) -> None:
        """A session deleted between our look at its key and our submitting left K/V behind."""
        if key is not None and ticket.key != key:
            self.ready.engine.forget(key)

    def _reply(
        self, handle: SequenceHandle, turn: NextTurn, ticket: Ticket | None
    ) -> Iterator[Event]:
        detokenizer = Detokenizer(self.ready.encoder.token_bytes)
        reply_ids: list[int] = []
        pieces: list[str] = []
        while isinstance(event := self._next(handle), TokenEvent):
            if self._first_token_ms is None:
                self._first_token_ms = self._elapsed_ms()
            reply_ids.append(event.token_id)
            if piece := detokenizer.push(event.token_id):
                pieces.append(piece)
                yield Delta(piece)
        assert isinstance(event, FinishedEvent)  # a chat task has no other end
        if piece := detokenizer.flush():
            pieces.append(piece)
            yield Delta(piece)
        if ticket is not None:
            ticket.commit(
                turn.finished(self.request.text, "".join(pieces), self._sentiment, reply_ids)
            )
        yield self._done(
            event.reason, Usage(event.prompt_tokens, event.cached_tokens, event.completion_tokens)
        )

    # --- both ---

    def _next(self, handle: SequenceHandle) -> TokenEvent | ScoredEvent | FinishedEvent:
        """The sequence's next event, looking now and then whether the client has left."""
        while True:
            event = handle.next_event(LOOK_S)
            self._check_client()
            if isinstance(event, FailedEvent):
                if isinstance(event.error, EngineStoppedError):
                    raise UnavailableError(str(event.error), retry_after_s=10)
                raise ServiceError(str(event.error))
            if event is not None:
                return event

    def _check_client(self) -> None:
        if self.has_left():
            raise ClientLeftError("the connection was closed from its client's side")

    def _done(self, finish_reason: str | None, usage: Usage | None) -> Done:
        timings = Timings(self._label_ms, self._first_token_ms, self._elapsed_ms())
        session_id = self.request.session_id if self.route.chat is not None else None
        return Done(finish_reason, session_id, usage, timings, self.ready.files.name)

    def _elapsed_ms(self) -> float:
        return round(1000 * (time.monotonic() - self.arrived), 1)


def _sampling(request: AnalyzeRequest, prompt: Prompt) -> Sampling:
    """The request's wishes over the prompt file's defaults."""
    wishes = {"temperature": request.temperature, "top_p": request.top_p}
    given = {name: value for name, value in wishes.items() if value is not None}
    return Sampling(**(asdict(prompt.sampling) | given), seed=request.seed)
