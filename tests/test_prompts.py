"""Prompt files: what is refused, by file and key, and what a new file needs."""

from pathlib import Path

import pytest

from services.prompts import PromptError, load_prompts

SHIPPED = Path(__file__).parent.parent / "prompts"
LABEL = """\
name: urgency
kind: label
description: Whether a message can wait.
system: Judge how urgent each message is. Answer with one word, Urgent or Later.
user: "{text}"
labels: [Urgent, Later]
examples:
  - {text: The server room is flooding!, label: Urgent}
content_free: ["N/A"]
budget: {max_new_tokens: 2}
cache: none
"""
CHAT = """\
name: tutor
kind: chat
description: A patient teacher.
system: You are a patient teacher.
user: "Question:\\n{text}"
budget: {max_new_tokens: 64}
sampling: {temperature: 0.2, top_p: 0.5, top_k: 20, repetition_penalty: 1.1}
cache: session
"""


def load(folder: Path, text: str, name: str = "task.yaml") -> None:
    (folder / name).write_text(text, "utf-8")
    load_prompts(folder)


def without(text: str, key: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith(f"{key}:"))


def test_shipped_prompts_load() -> None:
    prompts = load_prompts(SHIPPED)
    assert set(prompts) == {"chat", "sentiment"}
    assert (prompts["chat"].kind, prompts["chat"].cache) == ("chat", "session")
    assert (prompts["sentiment"].kind, prompts["sentiment"].cache) == ("label", "none")


def test_shipped_sentiment_examples_are_balanced_and_mixed() -> None:
    examples = load_prompts(SHIPPED)["sentiment"].examples
    chinese = [any("\u4e00" <= c <= "\u9fff" for c in example.text) for example in examples]
    kinds = [
        (is_chinese, example.label) for is_chinese, example in zip(chinese, examples, strict=True)
    ]
    assert sorted(map(kinds.count, set(kinds))) == [2, 2, 2, 2]
    labels = [example.label for example in examples]
    assert labels not in (sorted(labels), sorted(labels, reverse=True))


def test_shipped_defaults_of_the_chat() -> None:
    chat = load_prompts(SHIPPED)["chat"]
    assert chat.max_new_tokens == 256
    assert (chat.sampling.temperature, chat.sampling.top_p) == (0.7, 0.9)


def test_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "label.yaml").write_text(LABEL, "utf-8")
    (tmp_path / "chat.yml").write_text(CHAT, "utf-8")
    prompts = load_prompts(tmp_path)
    urgency, tutor = prompts["urgency"], prompts["tutor"]
    assert urgency.labels == ("Urgent", "Later")
    assert urgency.examples[0].label == "Urgent"
    assert urgency.content_free == ("N/A",)
    assert (urgency.before, urgency.after, urgency.max_new_tokens) == ("", "", 2)
    assert (tutor.before, tutor.after) == ("Question:\n", "")
    assert (tutor.sampling.top_k, tutor.sampling.repetition_penalty) == (20, 1.1)


@pytest.mark.parametrize("key", ["name", "kind", "description", "user", "budget", "cache"])
def test_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(PromptError, match=rf"task\.yaml: {key}: "):
        load(tmp_path, without(LABEL, key))


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("colour", "colour: blue"),
        ("budget.minutes", "budget: {max_new_tokens: 2, minutes: 3}"),
        ("budget.max_new_tokens", "budget: {max_new_tokens: 0}"),
        ("budget.max_new_tokens", "budget: {max_new_tokens: 513}"),
        ("budget.max_new_tokens", "budget: {max_new_tokens: '2'}"),
        ("name", "name: Urgent Things"),
        ("name", "name: 7"),
        ("kind", "kind: sonnet"),
        ("cache", "cache: session"),
        ("cache", "cache: forever"),
        ("sampling", "sampling: {temperature: 1}"),
        ("labels", "labels: [Urgent]"),
        ("labels", "labels: [Urgent, Urgent]"),
        ("labels.1", "labels: [Urgent, '']"),
        ("examples", "examples: [{text: Hm, label: Soon}]"),
        ("examples.0.label", "examples: [{text: Hm}]"),
        ("examples.0.mood", "examples: [{text: Hm, label: Later, mood: bad}]"),
        ("content_free", "content_free: N/A"),
        ("user", "user: Judge this."),
        ("user", "user: '{text} {name}'"),
        ("user", "user: '{name}'"),
        ("user", "user: '{text} {text}'"),
        ("user", "user: '{text!r}'"),
        ("user", "user: '{text:>9}'"),
        ("user", "user: '{text.upper}'"),
        ("user", "user: '{'"),
        ("user", "user: 'Text: {text}'"),
        ("user", "user: 'Text:\u3000{text}'"),
    ],
)
def test_bad_value_is_named_by_file_and_key(tmp_path: Path, key: str, line: str) -> None:
    text = without(LABEL, line.partition(":")[0]) + line + "\n"
    if key.startswith("examples"):
        text = text.replace("  - {text: The server room is flooding!, label: Urgent}\n", "")
    with pytest.raises(PromptError) as caught:
        load(tmp_path, text)
    assert f"{tmp_path / 'task.yaml'}: {key}: " in str(caught.value)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("labels", "labels: [Urgent, Later]"),
        ("examples", "examples: []"),
        ("content_free", "content_free: []"),
        ("sampling.temperature", "sampling: {temperature: 3}"),
        ("sampling.top_p", "sampling: {top_p: 0}"),
        ("sampling.temperature", "sampling: {temperature: .nan}"),
        ("sampling.top_k", "sampling: {top_k: 1.5}"),
        ("sampling.beam", "sampling: {beam: 4}"),
    ],
)
def test_bad_value_of_a_chat_is_named(tmp_path: Path, key: str, line: str) -> None:
    with pytest.raises(PromptError, match=rf"task\.yaml: {key}: "):
        load(tmp_path, without(CHAT, line.partition(":")[0]) + line + "\n")


def test_label_that_yaml_reads_as_no_text_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"task\.yaml: labels\.0: must be text; put it in quotes"):
        load(tmp_path, without(LABEL, "labels") + "labels: [Yes, No]\n")


def test_label_task_without_labels_is_refused(tmp_path: Path) -> None:
    text = without(without(LABEL, "labels"), "examples").replace("  - {text", "# - {text")
    with pytest.raises(PromptError, match=r"task\.yaml: labels: .*two"):
        load(tmp_path, text)


def test_every_bad_key_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(PromptError) as caught:
        load(tmp_path, without(LABEL, "cache") + "colour: blue\nmood: bad\n")
    assert {line.split(": ")[1] for line in str(caught.value).splitlines()} == {
        "cache",
        "colour",
        "mood",
    }


def test_key_that_stands_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"task\.yaml: system: stands twice"):
        load(tmp_path, LABEL + "system: Something else.\n")


def test_key_that_stands_twice_inside_is_named(tmp_path: Path) -> None:
    text = without(LABEL, "budget") + "budget: {max_new_tokens: 2, max_new_tokens: 3}\n"
    with pytest.raises(PromptError, match=r"task\.yaml: max_new_tokens: stands twice"):
        load(tmp_path, text)


def test_name_that_another_file_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LABEL, "utf-8")
    with pytest.raises(PromptError, match=r"b\.yaml: name: 'urgency' is taken"):
        load(tmp_path, LABEL, "b.yaml")


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words", "a: [", "{[]: 1}", "\t- a"])
def test_file_that_is_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(PromptError, match=r"task\.yaml: "):
        load(tmp_path, text)


def test_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_bytes(LABEL.encode("utf-16"))
    with pytest.raises(PromptError, match=r"task\.yaml: "):
        load_prompts(tmp_path)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").mkdir()
    with pytest.raises(PromptError, match=r"task\.yaml"):
        load_prompts(tmp_path)


def test_folder_without_prompts_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=tmp_path.name):
        load_prompts(tmp_path)


def test_yaml_runs_no_code(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="could not determine a constructor"):
        load(tmp_path, without(LABEL, "system") + "system: !!python/object/apply:os.getcwd []\n")


def test_braces_can_be_written_twice(tmp_path: Path) -> None:
    load(tmp_path, without(LABEL, "user") + 'user: "{{text}} is\\n{text}"\n')
    assert load_prompts(tmp_path)["urgency"].before == "{text} is\n"
