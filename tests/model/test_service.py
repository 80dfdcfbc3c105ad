"""The main job, end to end: gunicorn, real weights, a label first and then the reply."""

import json
from collections.abc import Iterator

import pytest
import requests

from services.settings import Settings
from tests.served import Served, served


@pytest.fixture(scope="module")
def service(model_settings: Settings) -> Iterator[Served]:
    variables = {"AIO_MODEL_DIR": str(model_settings.model_dir), "AIO_MODEL": model_settings.model}
    with served(**variables) as service:
        service.wait_ready()
        yield service


def _stream(service: Served, **fields: object) -> list[tuple[str, dict[str, object]]]:
    events = []
    with requests.post(
        f"{service.url}/analyze", json={"stream": True, **fields}, stream=True, timeout=300
    ) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        for line in lines:
            if line.startswith(b"event: "):
                events.append((line[7:].decode(), json.loads(next(lines)[6:])))
    return events


def test_label_comes_first_then_a_chinese_reply(service: Served) -> None:
    events = _stream(
        service, text="今天的服务太差了，等了一个小时。", session_id="a1", temperature=0
    )
    assert events[0][0] == "sentiment"
    assert events[0][1]["sentiment"] == "Negative"
    assert [name for name, _ in events[1:]] == ["delta"] * (len(events) - 2) + ["done"]
    reply = "".join(str(data["text"]) for name, data in events if name == "delta")
    assert any("\u4e00" <= character <= "\u9fff" for character in reply)


def test_second_turn_knows_a_fact_of_the_first(service: Served) -> None:
    _stream(service, text="我的猫叫豆豆，它很喜欢睡觉。", session_id="cat", temperature=0)
    events = _stream(service, text="我的猫叫什么名字？", session_id="cat", temperature=0)
    reply = "".join(str(data["text"]) for name, data in events if name == "delta")
    assert "豆豆" in reply
    usage = events[-1][1]["usage"]
    assert isinstance(usage, dict)
    assert usage["cached_tokens"] > 0
