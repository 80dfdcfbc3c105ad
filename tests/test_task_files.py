"""A new prompt file is a new task of `POST /analyze`, with no code."""

from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from services.settings import Settings
from tests.exchange import ask, copy_prompts, problem_of
from tests.tiny import ScriptedForward

URGENCY = """\
name: urgency
kind: label
description: Whether a message can wait.
system: How urgent is it? Answer with one word.
user: "{text}"
labels: [Positive, Positive Negative]
budget: {max_new_tokens: 3}
cache: none
"""


TUTOR = """\
name: tutor
kind: chat
description: A patient teacher.
system: You are a patient teacher.
user: "Question:\\n{text}"
budget: {max_new_tokens: 3}
sampling: {temperature: 0}
cache: session
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """With two tasks more than are shipped, each a file and no code."""
    copy_prompts(tmp_path, urgency=URGENCY, tutor=TUTOR)
    return replace(settings, prompts_dir=tmp_path)


def test_further_label_task_comes_under_labels(
    client: FlaskClient, forward: ScriptedForward
) -> None:
    forward.answer = lambda prompt: "Positive Negative" if "urgent" in prompt else "Negative"
    body = ask(client, tasks=["urgency", "sentiment"])
    assert body["sentiment"] == "Negative"
    assert list(body["labels"]) == ["urgency"]
    urgency = body["labels"]["urgency"]
    assert list(urgency) == ["label", "confidence", "scores"]
    assert urgency["label"] == "Positive Negative"
    assert urgency["confidence"] == urgency["scores"]["Positive Negative"] > 0.9


def test_further_label_task_alone_leaves_sentiment_null(client: FlaskClient) -> None:
    body = ask(client, tasks=["urgency"])
    assert (body["sentiment"], body["confidence"], body["scores"]) == (None, None, None)
    assert list(body["labels"]) == ["urgency"]


def test_new_chat_file_is_a_new_task(client: FlaskClient, forward: ScriptedForward) -> None:
    body = ask(client, "why", tasks=["tutor"])
    assert body["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 3  # its own budget
    prompt = forward.tokenizer.decode(forward.prompts[-1])
    assert prompt.startswith("<|im_start|>system\nYou are a patient teacher.<|im_end|>")
    assert "<|im_start|>user\nQuestion:\nwhy<|im_end|>" in prompt


def test_session_goes_on_under_another_chat_prompt(
    client: FlaskClient, forward: ScriptedForward
) -> None:
    ask(client, "hello", tasks=["chat"], session_id="a")
    ask(client, "why", tasks=["tutor"], session_id="a")
    assert forward.tokenizer.decode(forward.prompts[-1]) == (
        "<|im_start|>system\nYou are a patient teacher.<|im_end|>\n"
        "<|im_start|>user\nQuestion:\nhello<|im_end|>\n"
        "<|im_start|>assistant\nYou said hello in turn 1<|im_end|>\n"
        "<|im_start|>user\nQuestion:\nwhy<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert client.get("/sessions/a").get_json()["num_tokens"] > len(forward.prompts[-1])


@pytest.mark.parametrize("tasks", [["poem"], ["sentiment", "poem"], [""]])
def test_unknown_task_is_not_found(client: FlaskClient, tasks: list[str]) -> None:
    response = client.post("/analyze", json={"text": "hi", "tasks": tasks})
    assert "tasks" in problem_of(response, 404)["errors"]


def test_two_chats_are_refused(client: FlaskClient) -> None:
    response = client.post("/analyze", json={"text": "hi", "tasks": ["chat", "tutor"]})
    assert "tasks" in problem_of(response, 422)["errors"]


def flatten(forward: ScriptedForward) -> None:
    """Make every token equally likely, so that chance alone decides."""
    forward.poison = 0.0


def test_prompt_files_sampling_is_the_default(
    client: FlaskClient, forward: ScriptedForward
) -> None:
    flatten(forward)  # `tutor` is greedy by its file, so the first of all tokens wins
    replies = {ask(client, tasks=["tutor"])["response"] for _ in range(4)}
    assert len(replies) == 1
    assert len({ask(client, tasks=["tutor"], temperature=1)["response"] for _ in range(4)}) > 1
