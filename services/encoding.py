"""Prompts and texts as token ids. A template's pieces are encoded once; user text is only text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from services.prompts import Prompt

END_TOKENS = ("<|im_end|>", "<|endoftext|>")
# Stand for texts while the chat template is rendered; private-use characters, so never a text's.
_MARKS = tuple(f"\ue000{n}\ue001" for n in range(3))


class TemplateError(Exception):
    """A prompt can't be put into this model's chat template."""


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


class TextEncoder:
    """The model's tokenizer twice: once for template pieces, once for texts by users.

    The second is a separate object that knows no control tokens for good: switching one object's
    mode per call isn't thread-safe, and its split mode would let `<tool_call>` pass.
    """

    def __init__(self, tokenizer: Any, extra_end_ids: Sequence[int] = ()) -> None:
        """`tokenizer` is one of transformers' fast tokenizers, with a chat template."""
        self.template_tokenizer = tokenizer
        plain = json.loads(tokenizer.backend_tokenizer.to_str())
        control = plain["added_tokens"]
        plain["added_tokens"] = []
        plain["truncation"] = plain["padding"] = None
        self._plain = Tokenizer.from_str(json.dumps(plain))
        self.control_ids = frozenset(token["id"] for token in control)
        for token in control:
            if self.control_ids & set(self.encode_text(token["content"])):
                raise TemplateError(f"the tokenizer encodes {token['content']} typed by a user")
        named = (tokenizer.convert_tokens_to_ids(token) for token in END_TOKENS)
        known = {i for i in named if i is not None and i != tokenizer.unk_token_id}
        self.end_ids = frozenset(known | {tokenizer.eos_token_id, *extra_end_ids} - {None})
        self._bytes = _token_bytes(tokenizer, control)

    @classmethod
    def from_folder(cls, folder: Path) -> "TextEncoder":
        """Load the tokenizer, and the end ids of the model's generation config, from files."""
        from transformers import AutoTokenizer  # slow to import, and commands need no tokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        try:
            config = json.loads((folder / "generation_config.json").read_text("utf-8"))
        except FileNotFoundError:
            config = {}
        ends = config.get("eos_token_id") or []
        return cls(tokenizer, [ends] if isinstance(ends, int) else ends)

    def encode_text(self, text: str) -> list[int]:
        """A user's text; no control token comes out, whatever it says."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; none for a control token."""
        return self._bytes.get(token_id, b"")

    def encode_prompt(self, prompt: Prompt) -> EncodedPrompt:
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
        text = self.template_tokenizer.apply_chat_template(
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
        return tuple(self.template_tokenizer.encode(piece, add_special_tokens=False))

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


def _token_bytes(tokenizer: Any, control: list[dict[str, Any]]) -> dict[int, bytes]:
    """Bytes of each token of a byte-level BPE, whose vocabulary spells bytes as characters."""
    spelled = {character: byte for byte, character in _byte_characters().items()}
    special = {token["id"]: token for token in control}
    table = {}
    for token, token_id in tokenizer.get_vocab().items():
        if token_id not in special:
            table[token_id] = bytes(spelled[character] for character in token)
        elif not special[token_id]["special"]:
            table[token_id] = token.encode()
    return table


def _byte_characters() -> dict[int, str]:
    """Byte-level BPE's spelling (Radford et al., 2019, GPT-2): printable bytes stand for
    themselves, the others for the characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable}
    return spelled | {byte: chr(0x100 + index) for index, byte in enumerate(others)}
