"""Where the model that `AIO_MODEL` names is found on disk, without network and without torch."""

import re
from pathlib import Path

from services.settings import DEFAULT_MODEL, Settings
from services.weights.model_files import FETCH, ModelFiles, WeightsError, read_manifest

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)


def find_model(settings: Settings) -> ModelFiles:
    """The files of the model to run: the one asked for, else the default, else its stand-in.

    Raises:
        WeightsError: it is not there; the message names the command that fetches it.
    """
    model_dir, model = settings.model_dir, settings.model.strip()
    if not model:
        found = find_hub_model(model_dir, DEFAULT_MODEL) or find_stand_in(model_dir)
        missing = f"No model is in {model_dir}."
    elif (path := named_path(model)) is None:
        found = find_hub_model(model_dir, model)
        missing = f"{model} is not in {model_dir}."
    elif path.suffix.lower() == ".gguf":
        found = find_converted(model_dir, path)
        missing = f"{path} has not been converted, or has changed since."
    else:
        return ModelFiles(path, path.name, is_stand_in=False)
    if found is None:
        raise WeightsError(f"{missing} Fetch it with `{FETCH}` or `make run`.")
    return found


def named_path(model: str) -> Path | None:
    """The folder or `.gguf` file that `AIO_MODEL` names; None where it names a hub id.

    Raises:
        WeightsError: it looks like a path but nothing usable is there, or is no hub id either.
    """
    path = Path(model).expanduser()
    is_gguf = path.suffix.lower() == ".gguf"
    if model.startswith((".", "/", "~")) or is_gguf or path.exists():
        if not (path.is_file() if is_gguf else path.is_dir()):
            raise WeightsError(f"AIO_MODEL={model}: there is no such folder or .gguf file.")
        return path.resolve()
    if not _HUB_ID.fullmatch(model):
        raise WeightsError(
            f"AIO_MODEL={model}: neither a folder, nor a .gguf file, nor a hub id like "
            f"{DEFAULT_MODEL}."
        )
    return None


def hub_folder(model_dir: Path, model_id: str) -> Path:
    return model_dir / model_id.replace("/", "--")


def stand_in_folder(model_dir: Path) -> Path:
    return model_dir / "stand-in"


def converted_folder(model_dir: Path, gguf: Path) -> Path:
    return model_dir / f"gguf--{gguf.stem}"


def gguf_origin(gguf: Path) -> str:
    """What tells one version of a file from another, cheap enough for every start."""
    stat = gguf.stat()
    return f"{stat.st_size} bytes of {stat.st_mtime_ns}"


def find_hub_model(model_dir: Path, model_id: str) -> ModelFiles | None:
    folder = hub_folder(model_dir, model_id)
    manifest = read_manifest(folder)
    if manifest is None or (manifest.source, manifest.model) != ("hub", model_id):
        return None
    return ModelFiles(folder, model_id, is_stand_in=False)


def find_stand_in(model_dir: Path) -> ModelFiles | None:
    folder = stand_in_folder(model_dir)
    manifest = read_manifest(folder)
    if manifest is None or manifest.source != "stand-in":
        return None
    return ModelFiles(folder, manifest.model, is_stand_in=True)


def find_converted(model_dir: Path, gguf: Path) -> ModelFiles | None:
    folder = converted_folder(model_dir, gguf)
    manifest = read_manifest(folder)
    if manifest is None or manifest.source != "gguf" or manifest.origin != gguf_origin(gguf):
        return None
    return ModelFiles(folder, gguf.stem, is_stand_in=False)
