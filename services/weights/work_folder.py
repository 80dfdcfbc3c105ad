"""The hidden folder that a fetch works in: locked, kept when a fetch fails, renamed when whole."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.weights.model_files import WeightsError

_LOCK = "lock"


@contextmanager
def work_folder(final: Path) -> Iterator[Path]:
    """A folder beside `final` to make it in; what an earlier fetch left is still there.

    Raises:
        WeightsError: another process is fetching the same model.
    """
    work = final.parent / f".fetch-{final.name}"
    work.mkdir(parents=True, exist_ok=True)
    with (work / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WeightsError(f"Another fetch is at work in {work}: wait for it.") from None
        try:
            yield work
        finally:
            if work.is_dir() and all(path.name == _LOCK for path in work.iterdir()):
                shutil.rmtree(work)


def put_in_place(built: Path, final: Path, work: Path) -> None:
    """Rename the finished `built` to `final` whole, then remove what is left of the work."""
    if final.exists():
        # A folder can't be renamed onto a full one; inside `work` the old one goes with it.
        old = work / "old"
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
    built.rename(final)
    shutil.rmtree(work)


def need_space(work: Path, num_bytes: int) -> None:
    """Make sure that `num_bytes` in all fit; what `work` holds already is not needed again.

    Raises:
        WeightsError: the disk is too full; the message has both numbers.
    """
    held = sum(path.lstat().st_size for path in work.rglob("*"))
    needed, free = num_bytes - held, shutil.disk_usage(work).free
    if free < needed:
        raise WeightsError(
            f"{work.parent} has {in_words(free)} free, and {in_words(needed)} are needed. "
            "Make room, or let AIO_MODEL_DIR name a folder on a larger disk."
        )


def in_words(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 10_000_000 else f"{num_bytes / 1e3:.0f} kB"
