"""Settings that can't work with the model end the start by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.engine.engine import Engine
from services.prompts import load_prompts
from services.ready import UnfitError, make_ready
from services.settings import Settings
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


def test_prompt_that_does_not_fit_the_model_is_named_by_file_and_key(
    settings: Settings, forward: ScriptedForward, tmp_path: Path
) -> None:
    text = Path("prompts/sentiment.yaml").read_text("utf-8")
    (tmp_path / "mood.yaml").write_text(text.replace("Positive", "Unbelievable"), "utf-8")
    with pytest.raises(UnfitError, match=r"mood\.yaml: labels: 'Unbelievable'"):
        make(replace(settings, prompts_dir=tmp_path), forward)
