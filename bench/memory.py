"""How much memory a process has now, and had at most."""

from pathlib import Path

from bench.contender import Figures

_FIELDS = {"VmRSS": "resident_mb", "VmHWM": "peak_mb"}


def memory_figures(pid: int | None = None, proc: Path = Path("/proc")) -> Figures:
    """`resident_mb` and `peak_mb` (MiB) of a process, this one if none is named; empty where the
    system doesn't tell."""
    try:
        lines = (proc / str(pid or "self") / "status").read_text("ascii", "replace").splitlines()
    except OSError:
        return {}
    figures = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name in _FIELDS:
            figures[_FIELDS[name]] = int(value.split()[0]) / 1024  # the kernel counts KiB
    return figures


def child_of(pid: int, proc: Path = Path("/proc")) -> int | None:
    """The first child process of a process; None if it has none, or the system doesn't tell."""
    try:
        children = (proc / str(pid) / "task" / str(pid) / "children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None
