"""A Qwen2 GGUF file of a few kilobytes, quantised in part, with a byte-level tokenizer."""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

HIDDEN, INNER, KV_ROWS, LAYERS = 32, 64, 16, 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def write_gguf(path: Path, architecture: str = "qwen2") -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    _add_shape(writer)
    num_tokens = _add_tokenizer(writer)
    _add_tensors(writer, num_tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_shape(writer: GGUFWriter) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)


def _add_tokenizer(writer: GGUFWriter) -> int:
    tokens = [*_byte_characters(), "he", *SPECIAL]
    normal, control = 1, 3
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([normal] * 257 + [control] * len(SPECIAL))
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template(CHAT_TEMPLATE)
    return len(tokens)


def _byte_characters() -> list[str]:
    """How byte-level tokenizers write bytes: printable ones as themselves, the rest from U+0100."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def embedding(num_tokens: int = 260) -> np.ndarray:
    """Values that 8-bit blocks and bf16 hold exactly, so that a test can compare them."""
    return (np.arange(num_tokens * HIDDEN) % 128 - 63.0).reshape(num_tokens, HIDDEN) * 1.0


def _add_tensors(writer: GGUFWriter, num_tokens: int) -> None:
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.standard_normal(shape).astype(np.float32))

    q8 = GGMLQuantizationType.Q8_0
    blocks = quantize(embedding(num_tokens).astype(np.float32), q8)
    writer.add_tensor("token_embd.weight", blocks, raw_dtype=q8)
    add("output_norm.weight", HIDDEN)
    for index in range(LAYERS):
        block = f"blk.{index}"
        for name in ("attn_norm.weight", "ffn_norm.weight", "attn_q.bias"):
            add(f"{block}.{name}", HIDDEN)
        for name in ("attn_q.weight", "attn_output.weight"):
            add(f"{block}.{name}", HIDDEN, HIDDEN)
        for name in ("attn_k", "attn_v"):
            add(f"{block}.{name}.weight", KV_ROWS, HIDDEN)
            add(f"{block}.{name}.bias", KV_ROWS)
        for name in ("ffn_gate", "ffn_up"):
            add(f"{block}.{name}.weight", INNER, HIDDEN)
        add(f"{block}.ffn_down.weight", HIDDEN, INNER)
