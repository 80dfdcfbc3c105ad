"""Users' texts as token ids, which are only text, and token ids as bytes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

END_TOKENS = ("<|im_end|>", "<|endoftext|>")


class TemplateError(Exception):
    """A prompt can't be put into this model's chat template."""


def load_tokenizer(folder: Path) -> Any:
    """transformers' fast tokenizer of the files in `folder`."""
    from transformers import AutoTokenizer  # slow to import, and commands need no tokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


class TextEncoder:
    """A tokenizer for texts by users.

    It is an object of its own that knows no control tokens for good: switching the model's
    tokenizer per call isn't thread-safe, and its split mode would let `<tool_call>` pass.
    """

    def __init__(self, tokenizer: Any, extra_end_ids: Sequence[int] = ()) -> None:
        """`tokenizer` is one of transformers' fast tokenizers; it is not kept."""
        plain, control = _without_added_tokens(tokenizer.backend_tokenizer.to_str())
        self._plain = Tokenizer.from_str(plain)
        self._plain.no_truncation()
        self._plain.no_padding()
        self.control_ids = frozenset(token["id"] for token in control)
        for token in control:
            if self.control_ids & set(self.encode_text(token["content"])):
                raise TemplateError(f"the tokenizer encodes {token['content']} typed by a user")
        named = (tokenizer.convert_tokens_to_ids(token) for token in END_TOKENS)
        known = {i for i in named if i is not None and i != tokenizer.unk_token_id}
        self.end_ids = frozenset(known | {tokenizer.eos_token_id, *extra_end_ids} - {None})
        self._bytes = _token_bytes(tokenizer, control)

    @classmethod
    def from_folder(cls, folder: Path, tokenizer: Any = None) -> "TextEncoder":
        """From the folder's tokenizer, unless it is given, and the end ids of the model's
        generation config."""
        try:
            config = json.loads((folder / "generation_config.json").read_text("utf-8"))
        except FileNotFoundError:
            config = {}
        ends = config.get("eos_token_id") or []
        return cls(tokenizer or load_tokenizer(folder), [ends] if isinstance(ends, int) else ends)

    def encode_text(self, text: str) -> list[int]:
        """A user's text; no control token comes out, whatever it says."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; none for a control token."""
        return self._bytes.get(token_id, b"")


def _without_added_tokens(serialized: str) -> tuple[str, list[dict[str, Any]]]:
    """A serialized tokenizer without its added tokens, and these. The list is cut out of the
    text: parsing all of it, with a vocabulary of 150,000 tokens, takes half a second and 50 MB."""
    key = '"added_tokens":'
    start = serialized.index(key) + len(key)
    start += len(serialized[start:]) - len(serialized[start:].lstrip())
    added, end = json.JSONDecoder().raw_decode(serialized, start)
    return f"{serialized[:start]}[]{serialized[end:]}", added


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
