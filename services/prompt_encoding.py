"""Prompts as token ids: a template's pieces are encoded once, around the user's texts."""

from dataclasses import dataclass
from typing import Any

from services.encoding import END_TOKENS, TemplateError
from services.prompts import Prompt

# Stand for texts while the chat template is rendered; private-use characters, so never a text's.
_MARKS = tuple(f"\ue000{n}\ue001" for n in range(3))


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt's token ids around the user's texts.

    `head + text + tail` is a first turn's prompt; `bridge` stands between a reply and the next
    text. `choices` are the labels' token ids, each ended by the end of turn where first tokens
    alone don't tell the labels apart.
    """

    prompt: Prompt
    head_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    bridge_ids: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...] = ()


class PromptEncoder:
    """Puts prompts into the model's own chat template.

    It holds transformers' tokenizer, which knows the control tokens and needs over 100 MB, and
    so it goes once the prompts are encoded.
    """

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is one of transformers' fast tokenizers, with a chat template."""
        self._tokenizer = tokenizer

    def encode(self, prompt: Prompt) -> EncodedPrompt:
        """Render the prompt with the model's own chat template and encode its pieces.

        Raises:
            TemplateError: the template changes the text or its frame, or a label is too long.
        """
        first, reply, second = _MARKS
        turns = [
            {"role": role, "content": content}
            for example in prompt.examples
            for role, content in (
                ("user", f"{prompt.before}{example.text}{prompt.after}"),
                ("assistant", example.label),
            )
        ]
        turns += [
            {"role": "user", "content": f"{prompt.before}{first}{prompt.after}"},
            {"role": "assistant", "content": reply},
            {"role": "user", "content": f"{prompt.before}{second}{prompt.after}"},
        ]
        if prompt.system:
            turns.insert(0, {"role": "system", "content": prompt.system})
        head, tail, bridge, last = self._render_pieces(turns)
        if tail != last:
            raise TemplateError("user: the chat template treats its turns differently")
        return EncodedPrompt(
            prompt, self._ids(head), self._ids(tail), self._ids(bridge), self._choices(prompt)
        )

    def _render_pieces(self, turns: list[dict[str, str]]) -> list[str]:
        text = self._tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        pieces = []
        for mark in _MARKS:
            piece, found, text = text.partition(mark)
            if not found:
                raise TemplateError("user: the chat template drops or reorders texts")
            pieces.append(piece)
        return [*pieces, text]

    def _ids(self, piece: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(piece, add_special_tokens=False))

    def _choices(self, prompt: Prompt) -> tuple[tuple[int, ...], ...]:
        labels = [self._ids(label) for label in prompt.labels]
        for label, ids in zip(prompt.labels, labels, strict=True):
            if len(ids) > prompt.max_new_tokens:
                raise TemplateError(
                    f"labels: {label!r} has {len(ids)} tokens, budget.max_new_tokens is "
                    f"{prompt.max_new_tokens}"
                )
        if len(set(labels)) < len(labels):
            raise TemplateError("labels: two are the same to the tokenizer")
        firsts = [ids[:1] for ids in labels]
        if len(set(firsts)) == len(firsts):
            return tuple(firsts)
        end = self._ids(END_TOKENS[0])
        return tuple(ids + end for ids in labels)
