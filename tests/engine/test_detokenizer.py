import random

import pytest
from transformers import AutoTokenizer

from services.encoding import TextEncoder
from services.engine.detokenizer import Detokenizer

TEXTS = {
    "ASCII": "Hello there, today the food was cold.",
    "Chinese": "今天的服务太差了，等了一个小时。谢谢！",
    "emoji": "🙂👍🏽👩‍👩‍👧‍👦🇨🇳❤️",
    "combining": "e\u0301 a\u0308 한국 ไทย नमस्ते",
    "spaceless": "x" * 200,
    "replacement": "a\ufffdb\ufffd\ufffd",
    "control": "line\n\ttab\r\n",
}


def one_byte(token_id: int) -> bytes:
    return bytes([token_id])


def pieces_of(content: bytes) -> list[str]:
    """A token a byte: what each gives, and what the end gives."""
    detokenizer = Detokenizer(one_byte)
    return [*(detokenizer.push(byte) for byte in content), detokenizer.flush()]


def test_whole_characters_only() -> None:
    assert pieces_of("aé差🙂".encode()) == ["a", "", "é", "", "", "差", "", "", "", "🙂", ""]


def test_incomplete_tail_waits_for_its_rest() -> None:
    detokenizer = Detokenizer(lambda i: [b"a\xe5", b"\xb7", b"\xaeb"][i])
    assert [detokenizer.push(i) for i in range(3)] == ["a", "", "差b"]


def test_genuine_replacement_character_does_not_stall() -> None:
    assert pieces_of("\ufffda".encode()) == ["", "", "\ufffd", "a", ""]


def test_invalid_bytes_do_not_hold_back_what_follows() -> None:
    assert pieces_of(b"\xff\xfea") == ["\ufffd", "\ufffd", "a", ""]


def test_spaceless_text_is_not_held_back() -> None:
    assert pieces_of(b"x" * 100) == [*"x" * 100, ""]


@pytest.mark.parametrize("cut", [b"\xe5", b"\xe5\xb7", b"\xf0\x9f\x99"])
def test_unfinished_character_at_a_cut_appears_once_at_the_end(cut: bytes) -> None:
    assert "".join(pieces_of(b"ok" + cut)[:-1]) == "ok"
    assert pieces_of(b"ok" + cut)[-1] == "\ufffd"


def test_nothing_is_left_after_the_end() -> None:
    detokenizer = Detokenizer(one_byte)
    detokenizer.push(0xE5)
    assert [detokenizer.flush(), detokenizer.flush()] == ["\ufffd", ""]


def joined(encoder: TextEncoder, token_ids: list[int]) -> str:
    detokenizer = Detokenizer(encoder.token_bytes)
    return "".join([*map(detokenizer.push, token_ids), detokenizer.flush()])


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_joined_pieces_are_the_text(encoder: TextEncoder, text: str) -> None:
    detokenizer = Detokenizer(encoder.token_bytes)
    pieces = [detokenizer.push(token_id) for token_id in encoder.encode_text(text)]
    assert "".join(pieces) == text.replace("e\u0301", "é").replace("a\u0308", "ä")  # NFC
    assert detokenizer.flush() == ""


@pytest.mark.parametrize("seed", range(20))
def test_joined_pieces_equal_the_one_shot_decode(
    tokenizer: AutoTokenizer, encoder: TextEncoder, seed: int
) -> None:
    """Random tokens: mostly invalid UTF-8, with control tokens among them."""
    token_ids = random.Random(seed).choices(range(len(tokenizer)), k=300)
    one_shot = tokenizer.decode(token_ids, skip_special_tokens=True)
    assert joined(encoder, token_ids) == one_shot


@pytest.mark.parametrize("seed", range(20))
def test_damaged_text_equals_the_one_shot_decode(
    tokenizer: AutoTokenizer, encoder: TextEncoder, seed: int
) -> None:
    """Nearly valid: tokens of real texts with some dropped, as sampling might."""
    generator = random.Random(seed)
    token_ids = [i for text in TEXTS.values() for i in encoder.encode_text(text)]
    token_ids = [i for i in token_ids if generator.random() < 0.9]
    one_shot = tokenizer.decode(token_ids, skip_special_tokens=True)
    assert joined(encoder, token_ids) == one_shot


def test_control_tokens_are_silent_unless_they_are_text(
    tokenizer: AutoTokenizer, encoder: TextEncoder
) -> None:
    ids = tokenizer.encode("<|im_start|>a<tool_call>b<|im_end|><|endoftext|>")
    assert joined(encoder, ids) == "a<tool_call>b"


def test_control_token_within_a_character_does_not_break_it(
    tokenizer: AutoTokenizer, encoder: TextEncoder
) -> None:
    first, *rest = encoder.encode_text("🙂")
    assert rest, "the tiny tokenizer must not know the emoji as one token"
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert joined(encoder, [first, end, *rest]) == "🙂"
