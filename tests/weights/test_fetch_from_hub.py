import fcntl
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from fake_hub import FakeHub
from tiny_checkpoint import CONFIG, write_checkpoint, write_json, write_shards

from services.settings import Settings
from services.weights import ModelFiles, WeightsError, fetch_model, find_model
from services.weights.find import hub_folder

WEIGHTS = "model.safetensors"


@pytest.fixture
def asked(settings: Settings, hub: FakeHub) -> Settings:
    """The model on the hub is asked for."""
    return replace(settings, model=hub.model_id)


@pytest.fixture
def final(model_dir: Path, hub: FakeHub) -> Path:
    return hub_folder(model_dir, hub.model_id)


def fetch(settings: Settings, said: list[str] | None = None) -> ModelFiles:
    return fetch_model(settings, say=(said if said is not None else []).append)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetched_whole_and_found(asked: Settings, hub: FakeHub, final: Path) -> None:
    files = fetch(asked)
    assert files == ModelFiles(final, hub.model_id, is_stand_in=False) == find_model(asked)
    assert {n: (final / n).read_bytes() for n in hub.files} == hub.files
    assert names(final) == sorted([*hub.files, "aio.json"])
    assert names(final.parent) == [final.name]  # no work folder is left


def test_shards_are_fetched(asked: Settings, hub: FakeHub, final: Path, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards")
    hub.files = {path.name: path.read_bytes() for path in shards.iterdir()}
    fetch(asked)
    assert names(final) == sorted([*hub.files, "aio.json"])


def test_only_what_is_needed_is_fetched(asked: Settings, hub: FakeHub, final: Path) -> None:
    wanted = set(hub.files) | {"merges.txt"}
    hub.files |= dict.fromkeys(
        ["merges.txt", "README.md", "pytorch_model.bin", "onnx/model.safetensors", "run.py"], b"x"
    )
    fetch(asked)
    assert set(names(final)) == wanted | {"aio.json"}


def test_second_fetch_asks_nobody(asked: Settings, hub: FakeHub) -> None:
    fetch(asked)
    hub.seen.clear()
    said: list[str] = []
    fetch(asked, said)
    assert hub.seen == []
    assert "already" in said[-1]


def test_damaged_files_are_fetched_anew(asked: Settings, hub: FakeHub, final: Path) -> None:
    fetch(asked)
    (final / WEIGHTS).write_bytes(hub.files[WEIGHTS][:-1])
    said: list[str] = []
    fetch(asked, said)
    assert "is damaged" in said[0]
    assert (final / WEIGHTS).read_bytes() == hub.files[WEIGHTS]


def test_token_is_sent(asked: Settings, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch(asked)
    assert {seen.token for seen in hub.seen} == {"Bearer hf_secret"}


class TestRefused:
    def test_unknown_model(self, asked: Settings, model_dir: Path) -> None:
        with pytest.raises(WeightsError, match="has no model tiny/qwem"):
            fetch(replace(asked, model="tiny/qwem"))
        assert not model_dir.exists()

    def test_unknown_or_private_model(self, asked: Settings, hub: FakeHub) -> None:
        hub.status = 401
        with pytest.raises(WeightsError, match="does not exist, or it is private and HF_TOKEN"):
            fetch(asked)

    def test_gated_model(self, asked: Settings, hub: FakeHub, model_dir: Path) -> None:
        hub.gated = True
        with pytest.raises(WeightsError, match=r"tiny/qwen is gated: accept its terms"):
            fetch(asked)
        assert not hub_folder(model_dir, hub.model_id).exists()

    def test_other_architecture_before_its_weights(
        self, asked: Settings, hub: FakeHub, model_dir: Path, tmp_path: Path
    ) -> None:
        write_json(tmp_path / "llama.json", CONFIG | {"model_type": "llama"})
        hub.files["config.json"] = (tmp_path / "llama.json").read_bytes()
        with pytest.raises(WeightsError, match="model_type is 'llama'"):
            fetch(asked)
        assert hub.asked_for(WEIGHTS) == []
        assert names(model_dir) == []

    def test_pickles_alone(self, asked: Settings, hub: FakeHub) -> None:
        hub.files["pytorch_model.bin"] = hub.files.pop(WEIGHTS)
        with pytest.raises(WeightsError, match=r"only pytorch_model\.bin, which could run code"):
            fetch(asked)

    @pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
    def test_missing_file(self, asked: Settings, hub: FakeHub, name: str) -> None:
        del hub.files[name]
        with pytest.raises(WeightsError, match=f"no {name} on the hub"):
            fetch(asked)

    def test_model_that_fails_the_check_is_removed(
        self, asked: Settings, hub: FakeHub, model_dir: Path
    ) -> None:
        del hub.files["tokenizer_config.json"]
        with pytest.raises(WeightsError, match=r"fetched and removed again\..*no chat template"):
            fetch(asked)
        assert names(model_dir) == []

    def test_full_disk(
        self, asked: Settings, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, model_dir: Path
    ) -> None:
        usage = namedtuple("usage", "total used free")(10**12, 10**12 - 3000, 3000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(WeightsError, match=r"3 kB free, and \d+ kB are needed\. Make room"):
            fetch(asked)
        assert hub.asked_for("config.json") == []
        assert names(model_dir) == []


class TestUnreachable:
    def test_nobody_listens(self, settings: Settings, no_hub: None) -> None:
        with pytest.raises(WeightsError, match=r"tiny/qwen can't be fetched\. The connection fail"):
            fetch(replace(settings, model="tiny/qwen"))

    def test_no_answer_in_time(
        self, asked: Settings, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.silent = True
        monkeypatch.setattr("services.weights.hub.ASK_S", 0.2)
        with pytest.raises(WeightsError, match=r"No answer in time .*HF_ENDPOINT to a mirror"):
            fetch(asked)

    @pytest.mark.parametrize("status", [403, 500, 503])
    def test_status_that_is_no_answer(self, asked: Settings, hub: FakeHub, status: int) -> None:
        hub.status = status
        with pytest.raises(WeightsError, match=f"Status {status} while asking"):
            fetch(asked)

    def test_a_page_instead_of_a_hub(self, asked: Settings, hub: FakeHub) -> None:
        hub.page = b"<h1>Please log in</h1>"
        with pytest.raises(WeightsError, match="What answered is no hub"):
            fetch(asked)

    def test_answer_without_revision(self, asked: Settings, hub: FakeHub) -> None:
        hub.revision = "../.."
        with pytest.raises(WeightsError, match="does not tell revision"):
            fetch(asked)

    @pytest.mark.parametrize("endpoint", ["nowhere", "http://[half"])
    def test_endpoint_that_is_no_address(
        self, asked: Settings, monkeypatch: pytest.MonkeyPatch, endpoint: str
    ) -> None:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        with pytest.raises(WeightsError, match="can't be fetched"):
            fetch(asked)

    def test_offline_switch_is_named(
        self, asked: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(WeightsError, match="HF_HUB_OFFLINE is set"):
            fetch(asked)


class TestInterrupted:
    def test_cut_file_is_gone_on_with(self, asked: Settings, hub: FakeHub, final: Path) -> None:
        hub.cut_at[WEIGHTS] = 1000
        with pytest.raises(WeightsError, match=rf"while fetching {WEIGHTS} .*goes on from there"):
            fetch(asked)
        assert not final.exists()
        hub.cut_at.clear()
        hub.seen.clear()
        fetch(asked)
        # 768: the whole chunks of the first thousand bytes.
        assert [seen.range for seen in hub.asked_for(WEIGHTS)] == ["bytes=768-"]
        assert hub.asked_for("config.json") == []
        assert (final / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
        assert names(final.parent) == [final.name]

    def test_new_revision_does_not_continue_the_old(
        self, asked: Settings, hub: FakeHub, final: Path, tmp_path: Path
    ) -> None:
        hub.cut_at[WEIGHTS] = 1000
        with pytest.raises(WeightsError):
            fetch(asked)
        hub.cut_at.clear()
        hub.revision = "c" * 40
        changed = write_checkpoint(tmp_path / "changed", intermediate_size=8)
        hub.files = {path.name: path.read_bytes() for path in changed.iterdir()}
        fetch(asked)
        assert {n: (final / n).read_bytes() for n in hub.files} == hub.files

    def test_wrong_hash_names_and_removes_the_file(
        self, asked: Settings, hub: FakeHub, model_dir: Path
    ) -> None:
        hub.wrong_hash.add(WEIGHTS)
        with pytest.raises(WeightsError, match=rf"{WEIGHTS} of tiny/qwen has a wrong hash"):
            fetch(asked)
        assert list(model_dir.rglob(f"{WEIGHTS}*")) == []
        hub.wrong_hash.clear()
        assert fetch(asked).name == hub.model_id

    def test_two_at_once_do_not_mix(self, asked: Settings, final: Path) -> None:
        work = final.parent / f".fetch-{final.name}"
        work.mkdir(parents=True)
        with (work / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(WeightsError, match="Another fetch is at work"):
                fetch(asked)
        assert fetch(asked).folder == final


def test_full_disk_while_writing_is_told(
    asked: Settings, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", fail)
    with pytest.raises(WeightsError, match=r"can't be written: .*No space left"):
        fetch(asked)


def test_folder_of_the_user_is_checked_and_left_alone(
    settings: Settings, tmp_path: Path, hub: FakeHub
) -> None:
    mine = write_checkpoint(tmp_path / "mine")
    before = names(mine)
    assert fetch(replace(settings, model=str(mine))).folder == mine
    (mine / WEIGHTS).unlink()
    with pytest.raises(WeightsError, match=f"no {WEIGHTS}"):
        fetch(replace(settings, model=str(mine)))
    assert (names(mine), hub.seen) == ([n for n in before if n != WEIGHTS], [])
