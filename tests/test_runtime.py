"""The service's life: not started, loading, ready, failed, stopped."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask.cli import FlaskGroup

from app import create_app, main, say_ready
from services.engine.engine import Engine
from services.errors import UnavailableError
from services.prompts import PromptError
from services.runtime import Runtime
from services.settings import Settings, SettingsError
from tests.exchange import problem_of, runtime_of, until
from tests.tiny import ScriptedForward


class Loading:
    """An engine's model that loads when the test says so."""

    def __init__(self, forward: ScriptedForward) -> None:
        self.forward = forward
        self.may_end = threading.Event()
        self.error: Exception | None = None

    def __call__(self) -> ScriptedForward:
        assert self.may_end.wait(30), "a test forgot to let the model load"
        if self.error is not None:
            raise self.error
        return self.forward


@pytest.fixture
def loading(forward: ScriptedForward) -> Iterator[Loading]:
    loading = Loading(forward)
    yield loading
    loading.may_end.set()


@pytest.fixture
def engine(loading: Loading) -> Engine:
    return Engine(loading, kv_budget_bytes=2**20, max_running=4)


@pytest.fixture
def runtime(settings: Settings, engine: Engine) -> Iterator[Runtime]:
    runtime = runtime_of(create_app(settings, engine))
    yield runtime
    runtime.stop()


def reason_of(runtime: Runtime) -> str:
    with pytest.raises(UnavailableError) as caught:
        runtime.ready()
    assert caught.value.retry_after_s
    return str(caught.value)


def test_application_starts_nothing(runtime: Runtime, engine: Engine) -> None:
    assert "not loaded" in reason_of(runtime)
    assert not engine.is_alive


def test_port_answers_while_the_model_loads(
    settings: Settings, engine: Engine, loading: Loading
) -> None:
    app = create_app(settings, engine)
    client, runtime = app.test_client(), runtime_of(app)
    runtime.start()
    assert client.get("/healthz").status_code == 200
    response = client.get("/readyz")
    assert problem_of(response, 503)["detail"] == "the model is loading"
    assert int(response.headers["Retry-After"]) > 0
    problem_of(client.post("/analyze", json={"text": "hi"}), 503)
    loading.may_end.set()
    runtime.wait_decided()
    assert client.get("/readyz").status_code == 200
    assert client.post("/analyze", json={"text": "hi"}).status_code == 200
    runtime.stop()
    assert problem_of(client.get("/readyz"), 503)["detail"] == "the service is stopping"
    problem_of(client.post("/analyze", json={"text": "hi"}), 503)
    assert not engine.is_alive


def test_load_that_fails_says_why(runtime: Runtime, loading: Loading, engine: Engine) -> None:
    failures: list[Exception] = []
    loading.error = ValueError("the weights are torn")
    loading.may_end.set()
    runtime.start(on_failure=failures.append)
    runtime.wait_decided()
    assert "the weights are torn" in reason_of(runtime)
    assert failures == [loading.error]
    assert not engine.is_alive


def test_missing_model_says_why(settings: Settings, tmp_path: Path) -> None:
    runtime = runtime_of(create_app(replace(settings, model=str(tmp_path / "none"))))
    failures: list[Exception] = []
    runtime.start(on_failure=failures.append)
    runtime.wait_decided()
    assert "there is no such folder" in reason_of(runtime)
    assert len(failures) == 1
    runtime.stop()


def test_ready_is_told_once(runtime: Runtime, loading: Loading) -> None:
    told: list[Any] = []
    loading.may_end.set()
    runtime.start(on_ready=told.append)
    runtime.wait_decided()
    assert told == [runtime.ready()]


def test_stop_while_loading_stays_stopped(
    runtime: Runtime, loading: Loading, engine: Engine
) -> None:
    told: list[Any] = []
    runtime.start(on_ready=told.append, on_failure=told.append)
    until(lambda: engine.is_alive)
    runtime.stop()
    loading.may_end.set()
    runtime.wait_decided()
    assert reason_of(runtime) == "the service is stopping"
    assert told == []
    assert not engine.is_alive


def test_stopping_twice_is_harmless(runtime: Runtime, loading: Loading) -> None:
    loading.may_end.set()
    runtime.start()
    runtime.wait_decided()
    runtime.stop()
    runtime.stop()
    assert reason_of(runtime) == "the service is stopping"


def test_draining_takes_no_new_work_but_stops_nothing(
    runtime: Runtime, loading: Loading, engine: Engine
) -> None:
    loading.may_end.set()
    runtime.start()
    runtime.wait_decided()
    runtime.drain()
    assert reason_of(runtime) == "the service is stopping"
    assert engine.is_alive
    runtime.stop()
    assert not engine.is_alive


def test_death_of_the_engine_is_told_once(
    runtime: Runtime, loading: Loading, forward: ScriptedForward
) -> None:
    deaths: list[str] = []
    loading.may_end.set()
    runtime.start(on_death=lambda: deaths.append(reason_of(runtime)))
    runtime.wait_decided()
    forward.error = RuntimeError("the loop must die")
    ready = runtime.ready()
    ready.engine.submit(ready.scorers["sentiment"].task([1]))
    until(lambda: bool(deaths))
    assert deaths == ["the engine has stopped"]


def test_session_outlives_neither_turns_nor_bytes_without_a_model(runtime: Runtime) -> None:
    session = runtime.sessions.create()
    assert runtime.session_size(session.turns, session.key) == (0, 0)
    assert runtime.sessions.forget(session.session_id)


def test_bad_prompts_end_the_start(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="no prompt file"):
        create_app(replace(settings, prompts_dir=tmp_path))


def test_bad_settings_end_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIO_PORT", "http")
    with pytest.raises(SettingsError, match="AIO_PORT"):
        create_app()


def test_bad_settings_are_one_message_to_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIO_PORT", "http")
    result = CliRunner().invoke(FlaskGroup(create_app=create_app), ["fetch-model"])
    assert result.exit_code == 1
    assert result.output == "Error: AIO_PORT: Not a valid integer.\n"


def test_bad_settings_are_one_message_to_the_development_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIO_PORT", "http")
    with pytest.raises(SystemExit, match="error: AIO_PORT"):
        main()


def test_development_server_says_what_is_ready(
    runtime: Runtime, loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    loading.may_end.set()
    runtime.start()
    runtime.wait_decided()
    ready = runtime.ready()
    say_ready(ready)
    assert f"ready: {ready.files.name}" in caplog.text
    assert "stands in" not in caplog.text
    say_ready(replace(ready, files=replace(ready.files, is_stand_in=True)))
    assert "stands in for the real model" in caplog.text
