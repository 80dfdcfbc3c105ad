"""Prompts as token ids: pieces join as the whole would encode."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.encoding import TemplateError, TextEncoder, load_tokenizer
from services.prompt_encoding import EncodedPrompt, PromptEncoder
from services.prompts import Example, Prompt
from tests.tiny import TEXTS, write_tokenizer

CHAT = Prompt("talk", "chat", "", "", "", "session", 8, system="You are kind.")


LABEL = Prompt(
    "mood",
    "label",
    "",
    "",
    "",
    "none",
    2,
    system="Judge.",
    labels=("Positive", "Negative"),
    examples=(Example("the food was cold", "Negative"), Example("你好", "Positive")),
)


def rendered(tokenizer: Any, prompt: Prompt, turns: list[str]) -> list[int]:
    """What the model's own template makes of the prompt and these turns, user first."""
    messages = [{"role": "system", "content": prompt.system}]
    for example in prompt.examples:
        messages.append({"role": "user", "content": prompt.before + example.text + prompt.after})
        messages.append({"role": "assistant", "content": example.label})
    for index, text in enumerate(turns):
        is_reply = index % 2
        content = text if is_reply else prompt.before + text + prompt.after
        messages.append({"role": "assistant" if is_reply else "user", "content": content})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer.encode(text)
    return ids


def joined(encoder: TextEncoder, encoded: EncodedPrompt, turns: list[str]) -> list[int]:
    """The same from the pieces that the service joins."""
    ids = list(encoded.head_ids)
    for index, text in enumerate(turns):
        ids += encoder.encode_text(text)
        ids += encoded.bridge_ids if index % 2 else encoded.tail_ids
    return ids


@pytest.mark.parametrize("text", TEXTS)
def test_first_turn_is_what_the_template_makes(
    encoder: TextEncoder, prompt_encoder: PromptEncoder, tokenizer: Any, text: str
) -> None:
    encoded = prompt_encoder.encode(CHAT)
    assert joined(encoder, encoded, [text]) == rendered(tokenizer, CHAT, [text])


@pytest.mark.parametrize("text", TEXTS)
def test_later_turns_are_what_the_template_makes(
    encoder: TextEncoder, prompt_encoder: PromptEncoder, tokenizer: Any, text: str
) -> None:
    turns = [text, "Well, " + text, "And?", text, text]
    encoded = prompt_encoder.encode(CHAT)
    assert joined(encoder, encoded, turns) == rendered(tokenizer, CHAT, turns)


@pytest.mark.parametrize("text", TEXTS)
def test_label_prompt_with_examples_is_what_the_template_makes(
    encoder: TextEncoder, prompt_encoder: PromptEncoder, tokenizer: Any, text: str
) -> None:
    encoded = prompt_encoder.encode(LABEL)
    assert joined(encoder, encoded, [text]) == rendered(tokenizer, LABEL, [text])


def test_user_template_stands_around_every_text(
    encoder: TextEncoder, prompt_encoder: PromptEncoder, tokenizer: Any
) -> None:
    prompt = replace(CHAT, before="Question:\n", after="\nThink.")
    turns = ["Why", "Because", "Why so"]
    encoded = prompt_encoder.encode(prompt)
    assert joined(encoder, encoded, turns) == rendered(tokenizer, prompt, turns)


def test_prompt_ends_with_the_assistant_header(
    prompt_encoder: PromptEncoder, tokenizer: Any
) -> None:
    encoded = prompt_encoder.encode(CHAT)
    assert tokenizer.decode(encoded.tail_ids) == "<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(encoded.bridge_ids) == "<|im_end|>\n<|im_start|>user\n"


def test_template_pieces_have_control_ids(
    encoder: TextEncoder, prompt_encoder: PromptEncoder
) -> None:
    encoded = prompt_encoder.encode(CHAT)
    for ids in (encoded.head_ids, encoded.tail_ids, encoded.bridge_ids):
        assert encoder.control_ids & set(ids)


def test_labels_that_differ_at_once_are_told_apart_by_one_token(
    prompt_encoder: PromptEncoder,
) -> None:
    choices = prompt_encoder.encode(LABEL).choices
    assert [len(choice) for choice in choices] == [1, 1]
    assert choices[0] != choices[1]


def test_labels_that_begin_alike_are_scored_to_their_end(
    prompt_encoder: PromptEncoder, tokenizer: Any
) -> None:
    prompt = replace(LABEL, labels=("Positive", "Positive Negative"), examples=())
    shorter, longer = prompt_encoder.encode(prompt).choices
    assert tokenizer.decode(shorter) == "Positive<|im_end|>"
    assert tokenizer.decode(longer) == "Positive Negative<|im_end|>"


def test_label_over_its_budget_is_refused(prompt_encoder: PromptEncoder) -> None:
    prompt = replace(LABEL, labels=("Positive", "无可奉告"), examples=(), max_new_tokens=2)
    with pytest.raises(TemplateError, match=r"labels: '无可奉告' has .*max_new_tokens is 2"):
        prompt_encoder.encode(prompt)


def test_labels_that_the_tokenizer_makes_equal_are_refused(prompt_encoder: PromptEncoder) -> None:
    prompt = replace(LABEL, labels=("é", "e\u0301"), examples=(), max_new_tokens=4)
    with pytest.raises(TemplateError, match="labels: two are the same"):
        prompt_encoder.encode(prompt)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages[0].content }}", "drops or reorders"),
        (
            "{% for message in messages %}{{ message.content }}|"
            "{% if loop.last %}the end{% endif %}{% endfor %}",
            "differently",
        ),
    ],
)
def test_template_that_treats_turns_in_other_ways_is_refused(
    tmp_path: Path, template: str, reason: str
) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template, "utf-8")
    with pytest.raises(TemplateError, match=reason):
        PromptEncoder(load_tokenizer(tmp_path)).encode(CHAT)
