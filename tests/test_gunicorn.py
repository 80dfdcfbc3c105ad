"""The real gunicorn over a tiny random checkpoint: ports, sockets, exit statuses."""

import http.client
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import requests
import torch
from transformers import AutoTokenizer

from services.encoding import END_TOKENS
from tests.exchange import until
from tests.served import ROOT, Served, served
from tests.tiny import write_checkpoint

TEXT = "the weather is nice"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    # Deep enough that a reply takes seconds, and greedy never at an end token, whose logit is 0:
    # tests leave in the middle of it.
    model = write_checkpoint(folder, num_hidden_layers=16)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(list(END_TOKENS))] = 0
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def service(checkpoint: Path) -> Iterator[Served]:
    with served(AIO_MODEL=str(checkpoint), AIO_PRECISION="fp32") as service:
        service.wait_ready()
        yield service


def test_port_is_open_while_the_model_loads(service: Served) -> None:
    answered = [status for status in service.statuses if status]
    assert answered[0] == 503
    assert answered[-1] == 200
    assert set(answered) == {503, 200}


def test_says_where_to_look_once_ready(service: Served) -> None:
    until(lambda: f"on {service.url}" in service.log)


def test_serves_the_page(service: Served) -> None:
    answer = requests.get(service.url, timeout=10)
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "<form" in answer.text


def test_streams_frame_by_frame(service: Served) -> None:
    body = {"text": TEXT, "stream": True, "max_new_tokens": 8}
    with requests.post(f"{service.url}/analyze", json=body, stream=True, timeout=30) as answer:
        names = [line[7:] for line in answer.iter_lines() if line.startswith(b"event: ")]
    assert names[0] == b"sentiment"
    assert names[-1] == b"done"
    assert set(names[1:-1]) <= {b"delta"}


def test_large_body_is_refused_and_the_service_goes_on(service: Served) -> None:
    answer = requests.post(
        f"{service.url}/analyze",
        data=b"x" * 100_000,
        timeout=30,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 413
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert requests.get(f"{service.url}/healthz", timeout=10).status_code == 200


@pytest.mark.parametrize(
    "chunks",
    [b"zz\r\n{}\r\n", b"-1\r\n", b"2\r\n{}{}\r\n0\r\n\r\n", b"2\r\n{}\r\n0\r\nbad trailer\r\n\r\n"],
)
def test_broken_chunks_are_the_clients_fault(service: Served, chunks: bytes) -> None:
    head = (
        b"POST /analyze HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    with ExitStack() as stack:  # held open: lingering for each of them takes gunicorn 2 s
        for _client in range(12):
            connection = socket.create_connection(("127.0.0.1", service.port), timeout=30)
            stack.enter_context(connection)
            connection.sendall(head + chunks)
            answer = connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 400")
            assert b"application/problem+json" in answer
        assert requests.get(f"{service.url}/healthz", timeout=10).status_code == 200


@pytest.mark.parametrize(("path", "status"), [("/nope", 404), ("/healthz", 405)])
def test_connection_goes_on_after_an_unwanted_body(service: Served, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    with closing(connection):
        for _again in range(3):
            connection.request("POST", path, b"x" * 1000, {"Content-Type": "text/plain"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200


def _open_analyze(service: Served, **fields: object) -> socket.socket:
    body = json.dumps({"text": TEXT, "max_new_tokens": 512, "temperature": 0, **fields}).encode()
    connection = socket.create_connection(("127.0.0.1", service.port), timeout=30)
    head = (
        "POST /analyze HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def test_reply_that_the_leavers_ask_for_takes_its_whole_budget(service: Served) -> None:
    """They could otherwise leave behind its end."""
    body = {"text": TEXT, "max_new_tokens": 512, "temperature": 0}
    answer = requests.post(f"{service.url}/analyze", json=body, timeout=60).json()
    assert answer["finish_reason"] == "length"


def _turns(service: Served, session_id: str) -> list[object]:
    answer = requests.get(f"{service.url}/sessions/{session_id}", timeout=10)
    turns: list[object] = answer.json()["turns"]
    return turns


@pytest.mark.parametrize("is_streamed", [True, False])
def test_turn_of_a_client_that_leaves_is_rolled_back(service: Served, is_streamed: bool) -> None:
    name = f"leaver-{is_streamed}"
    with _open_analyze(service, session_id=name, stream=is_streamed) as connection:
        if is_streamed:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        else:
            until(lambda: requests.get(f"{service.url}/sessions/{name}", timeout=10).ok)
    body = {"text": TEXT, "session_id": name, "max_new_tokens": 2}
    assert requests.post(f"{service.url}/analyze", json=body, timeout=30).status_code == 200
    assert len(_turns(service, name)) == 1


def test_term_lets_running_replies_end_and_refuses_new_ones(checkpoint: Path) -> None:
    with served(AIO_MODEL=str(checkpoint), AIO_PRECISION="fp32") as service:
        service.wait_ready()
        kept = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        kept.request("GET", "/healthz")
        kept.getresponse().read()
        with closing(kept), _open_analyze(service, stream=True) as connection:
            received = connection.recv(4096)
            service.process.terminate()
            kept.request("GET", "/readyz")
            answer = kept.getresponse()
            answer.read()
            assert answer.status in (200, 503)  # as the signal comes before or after
            while piece := connection.recv(65536):
                received += piece
        assert received.count(b"event: done") + received.count(b"event: error") == 1
        assert service.wait_exit() == 0


def test_broken_weights_end_the_start_with_a_message(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(checkpoint, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with served(AIO_MODEL=str(folder)) as service:
        assert service.wait_exit() == 4
    assert "model.safetensors" in service.log
    assert "Traceback" not in service.log
    assert "Listening" not in service.log


def test_load_that_fails_in_the_worker_stops_the_master(checkpoint: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    shutil.copytree(ROOT / "prompts", prompts)
    sentiment = prompts / "sentiment.yaml"
    text = sentiment.read_text("utf-8")
    sentiment.write_text(text.replace("Positive", "Unbelievably positive"), "utf-8")
    with served(AIO_MODEL=str(checkpoint), AIO_PROMPTS_DIR=str(prompts)) as service:
        assert service.wait_exit() == 4
    assert "Unbelievably positive" in service.log
    assert "Traceback" not in service.log


def test_bad_settings_end_the_start_with_every_name() -> None:
    with served(AIO_PRECISION="int3", AIO_THREADS="many", AIO_TYPO="1") as service:
        assert service.wait_exit() == 4
    for name in ("AIO_PRECISION", "AIO_THREADS", "AIO_TYPO"):
        assert name in service.log
    assert "Traceback" not in service.log


def test_building_the_application_imports_no_torch() -> None:
    code = "import sys, app; app.create_app(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
