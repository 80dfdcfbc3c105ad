"""What precision weights are kept in, and which one suits the processor."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from services.engine.linear import FloatLinear, Int8Linear, Linear, Table

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_BYTES = {"int8": 1, "bf16": 2, "fp32": 4}
# What a process needs beside the weights, its K/V at first included.
BESIDE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Precision:
    """Makes a model's products: "int8", "bf16" or "fp32", and why this one."""

    name: str
    reason: str = ""
    has_vnni: bool = True  # else int8 activations have 7 bits, which can't saturate
    kv: str = "fp32"  # or "bf16": what K/V is kept in

    @property
    def kv_dtype(self) -> torch.dtype:
        return _DTYPES[self.kv]

    def stored(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight as embedding and tied head may share it; int8 has another form."""
        return weight.to(_DTYPES[self.name]) if self.name in _DTYPES else weight

    def linear(self, weight: Table, bias: torch.Tensor | None = None) -> Linear:
        """A product with `weight` `[out_features, in_features]`."""
        if self.name == "int8":
            return Int8Linear(weight, bias, has_vnni=self.has_vnni)
        return FloatLinear(self.stored(weight[:]), bias)


def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's feature flags; empty where the system doesn't tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())


def free_memory(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Bytes that this process may still take, a container's limit included; None where the
    system doesn't tell."""
    free = None
    with suppress(OSError, ValueError):
        lines = meminfo.read_text().splitlines()
        free = next(1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    with suppress(OSError, ValueError):  # "max" where there is no limit
        limit = int((cgroup / "memory.max").read_text())
        left = limit - int((cgroup / "memory.current").read_text())
        free = left if free is None else min(free, left)
    return free


def choose_precision(
    asked: str,
    flags: frozenset[str],
    kv: str = "fp32",
    *,
    weights: int = 0,
    free: int | None = None,
) -> Precision:
    """`auto`: int8 where the processor has VNNI, else bf16 where it multiplies that, else fp32;
    int8 also where the others have no room.

    `weights` is the model's number of them, `free` the bytes of memory that may be taken.
    """
    name, reason = (asked, "asked for by AIO_PRECISION") if asked != "auto" else _automatic(flags)
    need = weights * _BYTES[name] + BESIDE_BYTES
    if asked == "auto" and name != "int8" and free is not None and free < need:
        reason = f"{name} needs {need >> 20} MiB, {free >> 20} MiB are free"
        name = "int8"
    return Precision(name, reason, "avx512_vnni" in flags, kv)


def _automatic(flags: frozenset[str]) -> tuple[str, str]:
    if "avx512_vnni" in flags:
        return "int8", "the processor has avx512_vnni"
    native = sorted(flags & {"avx512_bf16", "amx_bf16"})
    if native:
        return "bf16", f"the processor has {native[0]}, but no avx512_vnni"
    return "fp32", "the processor has neither avx512_vnni nor bf16 products"
