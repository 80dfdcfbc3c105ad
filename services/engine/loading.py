"""From a folder of safetensors to a `Qwen2Model`."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open

from services.engine.config import ModelConfig
from services.engine.model import Qwen2Model
from services.engine.precision import Precision


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


def load_model(folder: Path, precision: Precision) -> Qwen2Model:
    """Read the checkpoint in `folder` and keep its weights in `precision`.

    Raises:
        UnsupportedModelError: see `ModelConfig.from_dict`.
        OSError, safetensors.SafetensorError: a file is missing or broken.
        KeyError: a tensor is missing; it is named.
    """
    config = ModelConfig.from_dict(json.loads((folder / "config.json").read_text("utf-8")))
    return Qwen2Model(config, _tensor_reader(folder), precision)


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
    homes = {}
    for path in sorted(paths):
        with safe_open(path, framework="pt") as file:
            homes.update(dict.fromkeys(file.keys(), path))

    def read(name: str) -> torch.Tensor:
        # Opened anew for each: the pages of a file that stays mapped count as this process's
        # memory. Cloned: mapped pages are not aligned, and change with the file.
        with safe_open(homes[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name).clone()
        return tensor

    return read
