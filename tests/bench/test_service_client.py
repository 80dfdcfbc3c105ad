"""The client over HTTP, against the application over a scripted forward."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from flask import Flask
from werkzeug.serving import make_server

from bench.contender import UnavailableError
from bench.load import Question
from bench.over_http import HttpRuns
from bench.service import HOST, Service
from services.runtime import Runtime

QUESTION = Question("a good day", has_label=True, has_reply=True, new_tokens=64, seed=1)


@pytest.fixture
def service(app: Flask) -> Iterator[Service]:
    server = make_server(HOST, 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Service(server.port, start_s=0.0, worker_pid=None)
    server.shutdown()
    thread.join()
    server.server_close()


def test_label_comes_before_the_first_token_and_tokens_are_counted(service: Service) -> None:
    answer = service.ask(QUESTION)
    assert answer.label_at is not None
    assert answer.first_at is not None
    assert answer.begun < answer.label_at < answer.first_at < answer.ended
    assert answer.num_tokens > 1


def test_a_label_alone_has_no_tokens(service: Service) -> None:
    answer = service.ask(replace(QUESTION, has_reply=False))
    assert answer.label_at is not None
    assert answer.first_at is None
    assert answer.num_tokens == 0


def test_a_reply_alone_has_no_label(service: Service) -> None:
    answer = service.ask(replace(QUESTION, has_label=False))
    assert answer.label_at is None
    assert answer.first_at is not None


def test_number_of_new_tokens_is_asked_for(service: Service) -> None:
    assert service.ask(replace(QUESTION, new_tokens=2)).num_tokens == 2


def test_a_refusal_is_no_answer(service: Service, app: Flask) -> None:
    runtime: Runtime = app.extensions["aio"]
    runtime.drain()
    with pytest.raises(UnavailableError, match="503"):
        service.ask(QUESTION)


def test_unknown_jobs_are_refused(service: Service) -> None:
    with pytest.raises(UnavailableError, match="prefill"):
        HttpRuns(service).run("prefill", prompt_tokens=8)


def test_load_and_probe_run_over_http(service: Service) -> None:
    runs = HttpRuns(service)
    assert runs.run("load", clients=2, seconds=0.2, new_tokens=4)["tokens_a_second"] > 0
    assert runs.run("label_probe", replies=1, seconds=0.1)["p50"] > 0
    assert runs.run("memory") == {}
