"""The fetched weights, in fp32: the stock model beside our engine. Loaded once for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import Qwen2ForCausalLM

from services.prompts import load_prompts
from services.ready import Ready, make_ready
from services.settings import Settings, load_settings
from services.weights import find_model

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that lies here needs the weights."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.model)


@pytest.fixture(scope="session")
def model_settings() -> Settings:
    """The caller's settings, from which the model comes, in fp32."""
    given = load_settings()
    return Settings(model=given.model, model_dir=ROOT / given.model_dir, precision="fp32")


@pytest.fixture(scope="session")
def ready(model_settings: Settings) -> Iterator[Ready]:
    ready = make_ready(model_settings, load_prompts(ROOT / "prompts"))
    yield ready
    ready.engine.stop()


@pytest.fixture(scope="session")
def stock(model_settings: Settings) -> Qwen2ForCausalLM:
    """transformers' own model over the same files."""
    folder = find_model(model_settings).folder
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
