"""What a model on disk is, and the small manifest that says where it came from."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

MANIFEST = "aio.json"
FETCH = "flask --app app fetch-model"


class WeightsError(Exception):
    """The model's files can't be had or used; the message says why and what to do."""


class UnreachableError(WeightsError):
    """The hub gave no usable answer: no network, a time-out, a cut, a broken mirror."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder with `config.json`, tokenizer, chat template and safetensors."""

    folder: Path
    name: str  # hub id, folder name, or the .gguf file's stem
    is_stand_in: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where a folder that we made came from. It is written last, so it also means "whole"."""

    model: str
    source: Literal["hub", "stand-in", "gguf"]
    origin: str  # hub: revision; stand-in: SHA-256 of the file; gguf: size and time of the file


def write_manifest(folder: Path, manifest: Manifest) -> None:
    text = json.dumps(asdict(manifest), indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """The folder's manifest; None where there is none that we could have written."""
    try:
        return Manifest(**json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def stand_in_warning(files: ModelFiles) -> str:
    """What an operator has to know while a stand-in answers."""
    return (
        f"{files.name} stands in for the real model. For the real one: make fetch-model, or "
        f"{FETCH} (with HF_ENDPOINT=... where a mirror is reached)"
    )
