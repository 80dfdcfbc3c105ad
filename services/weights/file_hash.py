"""The SHA-256 of a large file, with a progress bar."""

import hashlib
from pathlib import Path
from typing import Never

from tqdm import tqdm

CHUNK_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file, byte_bar(path.stat().st_size, f"Checking {path.name}") as bar:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()


def byte_bar(total: int, title: str) -> "tqdm[Never]":
    return tqdm(total=total, desc=title, unit="B", unit_scale=True)
