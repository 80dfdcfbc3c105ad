"""A session's turn: history and text -> token ids; what to keep when the reply is whole."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.prompt_encoding import EncodedPrompt
from services.sessions import Turn

RESET_RESPONSES = {
    "重新开始": "好的，我们重新开始。之前的对话已经忘掉了。",
    "/reset": "Done. The conversation so far is forgotten.",
}


@dataclass(frozen=True, slots=True)
class NextTurn:
    """A turn about to run: its prompt, and the earlier turns that the prompt still has."""

    task: str
    prompt_ids: list[int]
    kept: tuple[Turn, ...]
    text_ids: tuple[int, ...]

    def finished(
        self, text: str, response: str, sentiment: str | None, reply_ids: Sequence[int]
    ) -> tuple[Turn, ...]:
        """The session's turns once this one has its reply."""
        turn = Turn(self.task, text, response, sentiment, self.text_ids, tuple(reply_ids))
        return (*self.kept, turn)


class Dialogue:
    """Lays turns out in one chat prompt, by the very token ids that ran.

    A turn that ran under another chat prompt of the same session stands in this one's frame.
    """

    def __init__(self, encoded: EncodedPrompt, context_tokens: int) -> None:
        self._encoded = encoded
        self._context_tokens = context_tokens

    def next_turn(self, history: Sequence[Turn], text_ids: Sequence[int]) -> NextTurn:
        """The next turn's prompt, at most `context_tokens` long.

        A history too long loses its oldest whole turns until three quarters of the room are
        enough: the turns after this one then find their K/V again instead of losing one more
        turn, and with it the whole K/V, each time.
        """
        kept = tuple(history)
        if self._prompt_len(kept, text_ids) > self._context_tokens:
            room = self._context_tokens * 3 // 4
            while kept and self._prompt_len(kept, text_ids) > room:
                kept = kept[1:]
        encoded = self._encoded
        prompt_ids = list(encoded.head_ids)
        for turn in kept:
            prompt_ids += [*turn.text_ids, *encoded.tail_ids, *turn.reply_ids, *encoded.bridge_ids]
        prompt_ids += [*text_ids, *encoded.tail_ids]
        return NextTurn(encoded.prompt.name, prompt_ids, kept, tuple(text_ids))

    def num_tokens(self, history: Sequence[Turn]) -> int:
        """Tokens of these turns laid out, the system text included; 0 for none."""
        if not history:
            return 0
        *earlier, last = history
        return self._prompt_len(earlier, last.text_ids) + len(last.reply_ids)

    def _prompt_len(self, history: Sequence[Turn], text_ids: Sequence[int]) -> int:
        frame = len(self._encoded.tail_ids) + len(self._encoded.bridge_ids)
        turns = sum(len(turn.text_ids) + len(turn.reply_ids) + frame for turn in history)
        own = len(text_ids) + len(self._encoded.tail_ids)
        return len(self._encoded.head_ids) + turns + own
