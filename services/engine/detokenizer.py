"""Token ids -> text, whole characters at a time."""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Decodes a reply incrementally; the joined pieces equal the one-shot decode.

    Works on bytes: a token of a byte-level BPE stands for a run of bytes, and an incomplete
    UTF-8 tail waits in the decoder until its rest comes. Bytes that can never become a
    character turn into U+FFFD at once, and a genuine U+FFFD is a character like any other.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The characters that this token completes; often none, seldom more than a word."""
        return self._decoder.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        """What an unfinished character at the end comes out as."""
        return self._decoder.decode(b"", final=True)
