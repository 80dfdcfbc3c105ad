"""A model from the hub: what it has, and its files, with the hub's own client.

Files are fetched over plain HTTP one after the other. The client could use its own transfer
protocol, but that one can't go on with a half-fetched file and talks to hosts beside the endpoint,
which those who set `HF_ENDPOINT` to a mirror don't reach.
"""

import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from services.weights.checks import CONFIG, INDEX, SINGLE, TOKENIZER, read_config
from services.weights.file_hash import sha256_of
from services.weights.hub_errors import hub_errors_in_words
from services.weights.model_files import FETCH, UnreachableError, WeightsError

ASK_S = 5.0  # for the first answer, all in all
_WANTED = (
    CONFIG,
    "generation_config.json",
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    INDEX,
    "model*.safetensors",
)
_Answer = TypeVar("_Answer")
_REVISION = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubFile:
    name: str
    num_bytes: int
    sha256: str | None  # the hub knows it of large files only


@dataclass(frozen=True, slots=True)
class HubModel:
    """One revision of a model on the hub, and those of its files that we want."""

    model_id: str
    endpoint: str
    revision: str
    files: tuple[HubFile, ...]

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)


def ask_hub(model_id: str) -> HubModel:
    """What the hub has of a model.

    Raises:
        UnreachableError: no answer that a hub would give, within `ASK_S` seconds.
        WeightsError: the hub has no such model, or not for us, or not in a form we can use.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    with hub_errors_in_words(model_id, api.endpoint):
        info = _within(ASK_S, lambda: api.model_info(model_id, files_metadata=True, timeout=ASK_S))
    files = tuple(_wanted_files(info.siblings or []))
    if not _REVISION.fullmatch(info.sha or "") or any(file.num_bytes < 0 for file in files):
        raise UnreachableError(f"{api.endpoint} does not tell revision and sizes as a hub does.")
    _check_listing(model_id, {file.name for file in files}, info.siblings or [])
    return HubModel(model_id, api.endpoint, str(info.sha), files)


def download(model: HubModel, folder: Path) -> None:
    """Fetch the files into `folder`; finished ones stay, half ones are gone on with.

    Raises:
        UnreachableError: the connection failed; what was fetched is kept.
        WeightsError: the hub refused, a file has a wrong hash (it is removed), or the config is
            of a model that can't be run (found out before the large files).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(model.files, key=lambda file: file.name != CONFIG):
        _download_file(model, file, folder)
        if file.name == CONFIG:
            _refuse_early(folder)


def _refuse_early(folder: Path) -> None:
    try:
        read_config(folder)
    except WeightsError:
        shutil.rmtree(folder)
        raise


def _within(seconds: float, ask: Callable[[], _Answer]) -> _Answer:
    """The client limits each step, and each of a host's addresses; we limit the whole."""
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True, name="ask-hub").start()
    return answer.result(timeout=seconds)


def _wanted_files(siblings: list[Any]) -> list[HubFile]:
    return [
        HubFile(
            name=sibling.rfilename,
            num_bytes=-1 if sibling.size is None else sibling.size,
            sha256=sibling.lfs.sha256 if sibling.lfs else None,
        )
        for sibling in siblings
        if "/" not in sibling.rfilename
        and any(fnmatch(sibling.rfilename, pattern) for pattern in _WANTED)
    ]


def _check_listing(model_id: str, names: set[str], siblings: list[Any]) -> None:
    for name in (CONFIG, TOKENIZER):
        if name not in names:
            raise WeightsError(f"{model_id} can't be run: it has no {name} on the hub.")
    if not names & {SINGLE, INDEX}:
        pickles = [s.rfilename for s in siblings if s.rfilename.endswith((".bin", ".pt"))]
        only = f", only {', '.join(pickles)}, which could run code when read" if pickles else ""
        raise WeightsError(f"{model_id} can't be run: it has no {SINGLE} on the hub{only}.")


def _download_file(model: HubModel, file: HubFile, folder: Path) -> None:
    done, part = folder / file.name, folder / f"{file.name}.part"
    if done.is_file():
        return  # it was renamed only after it had been checked
    if part.is_file() and part.stat().st_size > file.num_bytes:
        part.unlink()
    with hub_errors_in_words(model.model_id, model.endpoint, file.name):
        _go_on(model, file, part)
    if file.sha256 and sha256_of(part) != file.sha256:
        part.unlink()
        raise WeightsError(
            f"{file.name} of {model.model_id} has a wrong hash; it was removed. "
            f"`{FETCH}` fetches it again."
        )
    part.rename(done)


def _go_on(model: HubModel, file: HubFile, part: Path) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(model.model_id, file.name, revision=model.revision, endpoint=model.endpoint)
    with part.open("ab") as out:
        http_get(
            url,
            out,
            resume_size=out.tell(),
            headers=build_hf_headers() | {"Accept-Encoding": "identity"},
            expected_size=file.num_bytes,
            displayed_filename=file.name,
        )
