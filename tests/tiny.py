"""What tests run in the real model's place: tiny tokenizer and checkpoints, scripted forward."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from services.engine.attention import Segment
from services.engine.kv_cache import KVSpec

CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Texts whose ends tokenizers like to join with what stands beside them.
TEXTS = [
    "Hello",
    "Hello.",
    "你好。",
    "12 o'clock!",
    "(well)",
    "«é»",
    "e\u0301 and 🔥👩\u200d👩\u200d👧",
    "a\nb",
    "\u0301x",
]
_CORPUS = [
    *["Positive", "Negative", "Neutral"] * 3,
    "system\nuser\nassistant\n Positive Negative Neutral You said hello there today",
    "good bad great awful the weather is nice and the food was cold",
    "今天的服务太差了 你好 谢谢 我的猫叫咪咪",
]


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE of a few hundred tokens with Qwen's control tokens and turn layout."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=alphabet, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    tokenizer.add_special_tokens(CONTROL_TOKENS[:3])
    tokenizer.add_tokens(CONTROL_TOKENS[3:])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, "utf-8")


def write_checkpoint(folder: Path, **overrides: Any) -> Qwen2ForCausalLM:
    """A random two-layer Qwen2 checkpoint with the tiny tokenizer; returns the stock model."""
    write_tokenizer(folder)
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": len(AutoTokenizer.from_pretrained(folder)),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "initializer_range": 0.2,
    }
    model = Qwen2ForCausalLM(Qwen2Config(**(shape | overrides))).eval()
    for name, parameter in model.named_parameters():  # zeros would hide a forgotten bias
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return model


class ScriptedForward:
    """A forward that answers by script, and reads what it is asked from the K/V.

    It stores token ids as keys, so a wrong reuse of K/V makes a wrong answer. `answer` gets the
    prompt's text, control tokens included, and returns the reply; the next token of it gets
    logit 10, all others 0. `gate`, when cleared, holds every step back.
    """

    def __init__(self, folder: Path, answer: Callable[[str], str] | None = None) -> None:
        self.kv_spec = KVSpec(num_layers=1, num_kv_heads=1, head_dim=1)
        self.max_positions = 8192
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.answer = answer or default_answer
        self.gate = threading.Event()
        self.gate.set()
        self.steps: list[list[list[int]]] = []  # token ids of each segment of each step
        self.prompts: list[list[int]] = []  # token ids of each prompt that logits were asked for
        self.error: Exception | None = None
        self.poison: float | None = None  # put into all logits
        self._header = self.tokenizer.encode("<|im_start|>assistant\n")
        self._end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        assert self.gate.wait(30), "a test forgot to open the gate"
        if self.error is not None:
            raise self.error
        self.steps.append([list(segment.token_ids) for segment in segments])
        rows = [self._rows(segment) for segment in segments]
        logits = torch.cat(rows) if rows else torch.empty(0, len(self.tokenizer))
        return logits if self.poison is None else logits.fill_(self.poison)

    def _rows(self, segment: Segment) -> torch.Tensor:
        segment.kv.extend(segment.token_ids)[0, 0, 0, :, 0] = torch.tensor(list(segment.token_ids))
        keys = torch.cat([span[0, 0, 0, :, 0] for span in segment.kv.spans()])
        history = [int(value) for value in keys.tolist()]
        logits = torch.zeros(segment.num_logits, len(self.tokenizer))
        for row in range(segment.num_logits):
            seen = history[: len(history) - segment.num_logits + row + 1]
            logits[row, self._next_id(seen)] = 10.0
        return logits

    def _next_id(self, history: list[int]) -> int:
        """The reply's next token; a reply begins behind the last assistant header."""
        size = len(self._header)
        start = next(
            (
                at
                for at in range(len(history), size - 1, -1)
                if history[at - size : at] == self._header
            ),
            len(history),
        )
        if start == len(history):
            self.prompts.append(history)
        reply = self.tokenizer.encode(self.answer(self.tokenizer.decode(history[:start])))
        done = len(history) - start
        return int(reply[done]) if done < len(reply) else int(self._end)


def default_answer(prompt: str) -> str:
    """Labels by the word `bad`; a chat gets its last text back, with the number of its turn."""
    turns = prompt.split("<|im_start|>user\n")[1:]
    text = turns[-1].split("<|im_end|>")[0]
    if "Answer with one word" in prompt:
        return "Negative" if "bad" in text or "差" in text else "Positive"
    return f"You said {text} in turn {len(turns)}"
