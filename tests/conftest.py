"""Fixtures that most tests share: settings, a tiny model folder, an app over a scripted forward."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from transformers import AutoTokenizer

from app import create_app
from services.encoding import TextEncoder, load_tokenizer
from services.engine.engine import Engine
from services.prompt_encoding import PromptEncoder
from services.runtime import Runtime
from services.schemas import MAX_NEW_TOKENS
from services.sessions import SessionStore
from services.settings import Settings
from tests.tiny import ScriptedForward, write_tokenizer
from tests.turns import Clock


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny tokenizer and chat template, no weights."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tokenizer(folder)
    return folder


@pytest.fixture
def settings(tiny_folder: Path) -> Settings:
    return Settings(model=str(tiny_folder), max_running=4, max_waiting=4)


@pytest.fixture
def forward(tiny_folder: Path) -> ScriptedForward:
    return ScriptedForward(tiny_folder)


@pytest.fixture
def app(settings: Settings, forward: ScriptedForward) -> Iterator[Flask]:
    """The application, ready to answer, over the scripted forward."""
    engine = Engine(
        lambda: forward,
        kv_budget_bytes=settings.kv_budget_mb * 2**20,
        max_running=4,
        max_chat_tokens=settings.context_tokens + MAX_NEW_TOKENS,
    )
    app = create_app(settings, engine)
    runtime: Runtime = app.extensions["aio"]
    runtime.start()
    runtime.wait_decided()
    runtime.ready()
    yield app
    forward.gate.set()
    runtime.stop()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def forgotten() -> list[int]:
    return []


@pytest.fixture
def store(clock: Clock, forgotten: list[int]) -> SessionStore:
    return SessionStore(ttl_s=60, max_sessions=3, on_forget=forgotten.append, clock=clock)


@pytest.fixture(scope="session")
def tokenizer(tiny_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_folder)


@pytest.fixture(scope="session")
def encoder(tiny_folder: Path) -> TextEncoder:
    return TextEncoder.from_folder(tiny_folder)


@pytest.fixture(scope="session")
def prompt_encoder(tiny_folder: Path) -> PromptEncoder:
    return PromptEncoder(load_tokenizer(tiny_folder))
