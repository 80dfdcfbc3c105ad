"""A folder of safetensors, read tensor by tensor, or row by row while the model runs."""

import json
import os
import weakref
from pathlib import Path

import torch
from safetensors import safe_open

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


class RowsError(Exception):
    """The file of a table was changed while the model ran; the message names it."""


class Checkpoint:
    """The tensors of the one file, else of the shards that the index names: other files beside
    them are none of the checkpoint, and nobody has checked them."""

    def __init__(self, folder: Path) -> None:
        """Look up which file holds which tensor.

        Raises:
            OSError, safetensors.SafetensorError: a file is missing or broken.
        """
        single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
        paths = {single}
        if not single.is_file():
            shards: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
            paths = {folder / name for name in shards.values()}
        self._homes: dict[str, Path] = {}
        for path in sorted(paths):
            with safe_open(path, framework="pt") as file:
                self._homes.update(dict.fromkeys(file.keys(), path))

    def read(self, name: str) -> torch.Tensor:
        """A tensor in the precision that it is stored in.

        Raises:
            KeyError: there is none of that name.
        """
        # Opened anew for each: the pages of a file that stays mapped count as this process's
        # memory. Cloned: mapped pages are not aligned, and change with the file.
        with safe_open(self._homes[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name).clone()
        return tensor

    def rows(self, name: str) -> "FileRows":
        """A table `[num_rows, num_columns]` that stays in its file.

        Raises:
            KeyError: there is none of that name.
        """
        return FileRows(self._homes[name], name)


class FileRows:
    """A table `[num_rows, num_columns]` whose rows are read from the file each time.

    An embedding needs a few rows a step, at a microsecond each from the system's page cache,
    and so its table, a quarter of the model in int8, needs no memory of this process.
    """

    __slots__ = ("__weakref__", "_dtype", "_fd", "_name", "_start", "_version", "shape")

    def __init__(self, path: Path, name: str) -> None:
        self._name = f"{name} of {path}"
        self._fd = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._fd)
        self._version = self._current_version()
        header_len = int.from_bytes(os.pread(self._fd, 8, 0), "little")
        entry = json.loads(os.pread(self._fd, header_len, 8))[name]
        self._dtype = _DTYPES[entry["dtype"]]
        self.shape = torch.Size(entry["shape"])
        self._start: int = 8 + header_len + entry["data_offsets"][0]

    def __len__(self) -> int:
        return self.shape[0]

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Row numbers `[num_rows]` -> `[num_rows, num_columns]` in fp32.

        Raises:
            RowsError: the file was overwritten or cut off meanwhile. (Another file in its place
                does no harm: this one stays open.)
        """
        if self._current_version() != self._version:
            raise RowsError(f"{self._name} was changed while the model ran")
        return torch.cat([self[row : row + 1] for row in rows.tolist()]).float()

    def __getitem__(self, rows: slice) -> torch.Tensor:
        """Rows `start:stop` in the precision that they are stored in."""
        start, stop, _ = rows.indices(len(self))
        row_bytes = self.shape[1] * self._dtype.itemsize
        data = bytearray((stop - start) * row_bytes)
        if os.preadv(self._fd, [data], self._start + start * row_bytes) != len(data):
            raise RowsError(f"{self._name} was cut off")
        return torch.frombuffer(data, dtype=self._dtype).view(-1, self.shape[1])

    def _current_version(self) -> tuple[int, int]:
        stat = os.fstat(self._fd)
        return stat.st_size, stat.st_mtime_ns
