"""From a folder of safetensors to a `Qwen2Model` in the precision that suits the processor."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open

from services.engine.config import ModelConfig
from services.engine.model import Qwen2Model

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def usable_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may run on, a container's quota included."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = cpu_max.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's feature flags; empty where the system doesn't tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())


def choose_precision(asked: str, flags: frozenset[str]) -> tuple[str, str]:
    """`auto` -> bf16 where the processor multiplies it, else fp32. Returns it and the reason."""
    if asked != "auto":
        return asked, "asked for by AIO_PRECISION"
    native = sorted(flags & {"avx512_bf16", "amx_bf16"})
    if native:
        return "bf16", f"the processor has {native[0]}"
    return "fp32", "the processor has no bf16 products"


def load_model(folder: Path, precision: str) -> Qwen2Model:
    """Read the checkpoint in `folder` and keep its weights in `precision` (bf16 or fp32).

    Raises:
        UnsupportedModelError: see `ModelConfig.from_dict`.
        OSError, safetensors.SafetensorError: a file is missing or broken.
        KeyError: a tensor is missing; it is named.
    """
    config = ModelConfig.from_dict(json.loads((folder / "config.json").read_text("utf-8")))
    return Qwen2Model(config, _tensor_reader(folder), _DTYPES[precision])


def _tensor_reader(folder: Path) -> Callable[[str], torch.Tensor]:
    """A function that reads a tensor by name from whichever file holds it.

    It looks at the one file, else at the shards that the index names: other files beside them
    are none of the checkpoint, and nobody has checked them.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    paths = {single}
    if not single.is_file():
        shards: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
        paths = {folder / name for name in shards.values()}
    files = {}
    for path in sorted(paths):
        file = safe_open(path, framework="pt")
        files.update(dict.fromkeys(file.keys(), file))
    # Cloned out of the file's mapped pages, which are not aligned, and which someone who writes
    # the file anew would pull from under the model.
    return lambda name: files[name].get_tensor(name).clone()
