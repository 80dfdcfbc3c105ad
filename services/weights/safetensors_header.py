"""The header of a safetensors file, read in plain Python.

Format: 8 bytes little-endian header length, that many bytes of JSON, then the data. The JSON maps
a tensor's name to `dtype`, `shape` and `data_offsets` (begin and end within the data).
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.weights.model_files import WeightsError

_MAX_HEADER_BYTES = 100_000_000  # as the format's own reader: a damaged length must not fill memory
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class TensorHeader:
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def fits_its_bytes(self) -> bool:
        """Whether the offsets hold just this shape, for the dtypes that we can run."""
        return self.end - self.begin == math.prod(self.shape) * _ITEM_BYTES[self.dtype]

    @property
    def is_runnable(self) -> bool:
        return self.dtype in _ITEM_BYTES


def read_header(path: Path) -> dict[str, TensorHeader]:
    """The tensors of one file by name.

    Raises:
        WeightsError: the header can't be read, or the file's length is not what it says.
    """
    num_bytes, header_len, text = _read_raw(path)
    try:
        raw = json.loads(text)
        tensors = {name: _tensor(entry) for name, entry in raw.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WeightsError(f"{path} is damaged: its header can't be read.") from None
    expected = 8 + header_len + max((tensor.end for tensor in tensors.values()), default=0)
    if num_bytes != expected:
        raise WeightsError(f"{path} is damaged: {num_bytes} bytes long instead of {expected}.")
    return tensors


def _read_raw(path: Path) -> tuple[int, int, bytes]:
    """The file's length, its header's length and its header."""
    try:
        num_bytes = path.stat().st_size
        with path.open("rb") as file:
            header_len = int.from_bytes(file.read(8), "little")
            if 2 <= header_len <= min(num_bytes - 8, _MAX_HEADER_BYTES):
                return num_bytes, header_len, file.read(header_len)
    except OSError as error:
        raise WeightsError(f"{path} can't be read: {error}.") from None
    raise WeightsError(f"{path} is damaged: it does not begin with a safetensors header.")


def _tensor(entry: dict[str, Any]) -> TensorHeader:
    begin, end = entry["data_offsets"]
    return TensorHeader(
        dtype=str(entry["dtype"]),
        shape=tuple(int(size) for size in entry["shape"]),
        begin=int(begin),
        end=int(end),
    )
