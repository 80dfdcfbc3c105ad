"""Settings: read once, every bad variable named at once."""

import os
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from services.settings import Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no `.env` of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("AIO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults_without_variables() -> None:
    assert load_settings() == Settings()


def test_defaults_are_the_documented_ones() -> None:
    settings = load_settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert (settings.context_tokens, settings.max_text_tokens) == (2048, 1024)
    assert (settings.session_ttl_s, settings.max_sessions) == (600, 10_000)
    assert (settings.kv_budget_mb, settings.model_dir) == (1024, Path("models"))


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIO_MODEL", "Qwen/Qwen2.5-0.5B-Instruct")
    monkeypatch.setenv("AIO_PORT", "9000")
    monkeypatch.setenv("AIO_MODEL_DIR", "elsewhere")
    settings = load_settings()
    assert settings.model == "Qwen/Qwen2.5-0.5B-Instruct"
    assert settings.port == 9000
    assert settings.model_dir == Path("elsewhere")


def test_env_file_is_read_and_variables_win(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("AIO_PORT=9001\nAIO_HOST=::1\n", "utf-8")
    monkeypatch.setenv("AIO_PORT", "9002")
    settings = load_settings()
    assert (settings.host, settings.port) == ("::1", 9002)


@pytest.mark.parametrize("name", ["AIO_MODEL", "AIO_HOST", "AIO_PORT", "AIO_PROMPTS_DIR"])
def test_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, " ")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AIO_PORT", "http"),
        ("AIO_PORT", "0"),
        ("AIO_PORT", "65536"),
        ("AIO_PRECISION", "int3"),
        ("AIO_KV_PRECISION", "int8"),
        ("AIO_THREADS", "-1"),
        ("AIO_CONTEXT_TOKENS", "127"),
        ("AIO_MAX_TEXT_TOKENS", "1.5"),
        ("AIO_SESSION_TTL_S", "0"),
        ("AIO_MAX_SESSIONS", "none"),
        ("AIO_KV_BUDGET_MB", "-5"),
        ("AIO_MAX_RUNNING", "0"),
        ("AIO_MAX_WAITING", "-1"),
    ],
)
def test_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"^{name}: ."):
        load_settings()


def test_all_bad_and_unknown_variables_are_named_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIO_PORT", "http")
    monkeypatch.setenv("AIO_KV_BUDGET_MB", "much")
    monkeypatch.setenv("AIO_MODLE", "typo")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "AIO_KV_BUDGET_MB",
        "AIO_MODLE",
        "AIO_PORT",
    ]


def test_unknown_name_in_the_env_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("AIO_MODLE=typo\n", "utf-8")
    with pytest.raises(SettingsError, match="AIO_MODLE: no such setting"):
        load_settings()


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        load_settings().port = 1  # type: ignore[misc]
