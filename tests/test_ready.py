"""Settings that can't work with the model end the start by name."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.engine.engine import Engine
from services.engine.precision import Precision
from services.engine.tasks import ChatTask, FinishedEvent
from services.prompts import load_prompts
from services.ready import UnfitError, make_engine, make_ready
from services.schemas import MAX_NEW_TOKENS
from services.settings import Settings
from services.weights import find_model
from tests.engine.stepwise import failure, outcome
from tests.tiny import ScriptedForward


def make(settings: Settings, forward: ScriptedForward, budget_bytes: int = 2**20) -> None:
    engine = Engine(lambda: forward, kv_budget_bytes=budget_bytes, max_running=4)
    make_ready(settings, load_prompts(settings.prompts_dir), engine).engine.stop()


def test_default_settings_are_able(settings: Settings, forward: ScriptedForward) -> None:
    make(settings, forward)


def test_text_longer_than_the_context_is_named(
    settings: Settings, forward: ScriptedForward
) -> None:
    with pytest.raises(UnfitError, match=r"AIO_MAX_TEXT_TOKENS.*over AIO_CONTEXT_TOKENS"):
        make(replace(settings, context_tokens=1024), forward)


def test_budget_below_the_longest_sequence_is_named(
    settings: Settings, forward: ScriptedForward
) -> None:
    longest = settings.context_tokens + 512
    with pytest.raises(UnfitError, match="AIO_KV_BUDGET_MB"):
        make(settings, forward, longest * forward.kv_spec.token_bytes - 1)


def test_context_beyond_the_models_positions_is_named(
    settings: Settings, forward: ScriptedForward
) -> None:
    forward.max_positions = settings.context_tokens
    with pytest.raises(UnfitError, match="positions"):
        make(settings, forward)


def test_chat_has_room_for_the_context_and_the_longest_answer(
    settings: Settings, forward: ScriptedForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ready.load_model", lambda folder, precision, num_threads: forward)
    monkeypatch.setattr(torch, "set_num_threads", lambda num_threads: None)
    made = make_engine(settings, find_model(settings), Precision("fp32"))
    engine = make_ready(settings, load_prompts(settings.prompts_dir), made).engine
    filler, *turn = forward.tokenizer.encode(
        "a<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    fits = [filler] * (settings.context_tokens - len(turn)) + turn
    ends = frozenset(forward.tokenizer.encode("<|im_end|>"))
    longest, over = (
        engine.submit(ChatTask(prompt, ends, MAX_NEW_TOKENS)) for prompt in (fits, [filler, *fits])
    )
    tokens, end = outcome(longest)
    assert forward.tokenizer.decode(tokens) == "You said hello in turn 1"
    assert isinstance(end, FinishedEvent)
    assert f"{settings.context_tokens + MAX_NEW_TOKENS} positions" in str(failure(over))
    engine.stop()


def test_prompt_that_does_not_fit_the_model_is_named_by_file_and_key(
    settings: Settings, forward: ScriptedForward, tmp_path: Path
) -> None:
    text = Path("prompts/sentiment.yaml").read_text("utf-8")
    (tmp_path / "mood.yaml").write_text(text.replace("Positive", "Unbelievable"), "utf-8")
    with pytest.raises(UnfitError, match=r"mood\.yaml: labels: 'Unbelievable'"):
        make(replace(settings, prompts_dir=tmp_path), forward)
