import os
from pathlib import Path

import pytest
from fake_hub import FakeHub
from flask import Flask
from flask.testing import FlaskCliRunner

from services.cli import register_cli
from services.settings import DEFAULT_MODEL


@pytest.fixture
def runner(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlaskCliRunner:
    monkeypatch.chdir(tmp_path)  # away from anybody's .env
    for name in [name for name in os.environ if name.startswith("AIO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AIO_MODEL_DIR", str(model_dir))
    app = Flask(__name__)
    register_cli(app)
    return app.test_cli_runner()


def test_fetches_and_says_so(runner: FlaskCliRunner, hub: FakeHub, model_dir: Path) -> None:
    hub.model_id = DEFAULT_MODEL
    result = runner.invoke(args=["fetch-model"])
    assert result.exit_code == 0
    assert f"{DEFAULT_MODEL} is in {model_dir}" in result.output


def test_if_missing_asks_nobody_where_a_model_is(runner: FlaskCliRunner, hub: FakeHub) -> None:
    hub.model_id = DEFAULT_MODEL
    assert runner.invoke(args=["fetch-model", "--if-missing"]).exit_code == 0
    assert hub.seen != []
    hub.seen.clear()
    result = runner.invoke(args=["fetch-model", "--if-missing"])
    assert (result.exit_code, result.output, hub.seen) == (0, "", [])


def test_failure_is_one_message(
    runner: FlaskCliRunner, no_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIO_MODEL", "tiny/qwen")
    result = runner.invoke(args=["fetch-model"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: tiny/qwen can't be fetched. The connection failed")
    assert result.output.count("\n") == 1


def test_bad_setting_is_named(runner: FlaskCliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIO_PORT", "none")
    result = runner.invoke(args=["fetch-model"])
    assert result.exit_code == 1
    assert "AIO_PORT" in result.output
