"""What the figures were measured on. No host name and no path: reports are published."""

import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.contender import UnavailableError
from bench.processes import start
from services.engine.loading import usable_cores
from services.engine.precision import processor_flags
from services.settings import Settings

# What decides which products of this torch, and of the peers, are fast.
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16")
PACKAGES = (
    "torch",
    "transformers",
    "llama-cpp-python",
    "openvino-genai",
    "onnxruntime-genai",
)


def describe(settings: Settings, work_dir: Path) -> dict[str, str]:
    """Processor, memory, versions and today; the read bandwidth is measured on the spot, in a
    process of its own (a few seconds)."""
    cores = usable_cores()
    threads = settings.threads or cores
    flags = processor_flags()
    return {
        "date": str(date.today()),
        "processor": processor(),
        "flags that matter": ", ".join(flag for flag in FLAGS if flag in flags) or "none",
        "cores": str(cores),
        "threads of each contender": str(threads),
        "memory": memory(),
        **_bandwidth(settings, work_dir, sorted({1, cores})),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(versions(PACKAGES)),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Its name, where the system tells."""
    return _value_of("model name", cpuinfo) or platform.machine()


def memory(meminfo: Path = Path("/proc/meminfo")) -> str:
    """Of the whole machine, in GiB, where the system tells."""
    value = _value_of("MemTotal", meminfo)
    return f"{int(value.split()[0]) / 2**20:.0f} GiB" if value else "unknown"


def versions(packages: Sequence[str]) -> list[str]:
    """`name version` of those that are installed."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found


def _bandwidth(settings: Settings, work_dir: Path, threads: Sequence[int]) -> dict[str, str]:
    try:
        with start("bandwidth", settings, work_dir) as child:
            return {
                f"memory read, {number} thread{'s' if number > 1 else ''}": (
                    f"{child.run('read', threads=number)['gb_a_second']:.1f} GB/s"
                )
                for number in threads
            }
    except UnavailableError as error:
        return {"memory read": f"unknown: {error}"}


def _value_of(name: str, path: Path) -> str:
    """From lines `name : value`; empty where the file or the line isn't there."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")
