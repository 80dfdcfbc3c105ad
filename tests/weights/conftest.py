"""Settings in a temporary folder, and the imitated hub."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub
from huggingface_hub import close_session
from tiny_checkpoint import write_checkpoint

from services.settings import Settings


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def settings(model_dir: Path) -> Settings:
    """No model asked for."""
    return Settings(model_dir=model_dir)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that has `tiny/qwen`, and that `HF_ENDPOINT` names."""
    checkpoint = write_checkpoint(tmp_path / "on-the-hub")
    server = FakeHub(files={path.name: path.read_bytes() for path in checkpoint.iterdir()})
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # Read from the environment once, when the client was first imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    # It keeps whole chunks of a file that is cut; the usual size is larger than our files.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 256)
    # Its pause between two tries of a file.
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    yield server
    close_session()
    server.close()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens where `HF_ENDPOINT` points."""
    server = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    server.close()
