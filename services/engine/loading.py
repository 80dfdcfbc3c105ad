"""From a folder of safetensors to a `Qwen2Model`."""

import ctypes
import json
import os
from contextlib import suppress
from pathlib import Path

from services.engine.checkpoint import Checkpoint
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


def load_model(folder: Path, precision: Precision, num_threads: int = 1) -> Qwen2Model:
    """Read the checkpoint in `folder` by `num_threads` threads, keep its weights in `precision`.

    Raises:
        UnsupportedModelError: see `ModelConfig.from_dict`.
        OSError, safetensors.SafetensorError: a file is missing or broken.
        KeyError: a tensor is missing; it is named.
    """
    config = ModelConfig.from_dict(json.loads((folder / "config.json").read_text("utf-8")))
    model = Qwen2Model(config, Checkpoint(folder), precision, num_threads)
    give_back_memory()
    return model


def give_back_memory() -> None:
    """Return what was freed to the system, where the C library would keep it for later."""
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
