"""What the system tells of the machine, and what is said where it doesn't."""

from pathlib import Path

from bench.machine import memory, processor, versions


def test_processor_and_memory_are_read(tmp_path: Path) -> None:
    cpuinfo, meminfo = tmp_path / "cpuinfo", tmp_path / "meminfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Abacus 3000\n\nmodel name\t: Abacus 3000\n")
    meminfo.write_text("MemFree:  1 kB\nMemTotal:  25165824 kB\n")
    assert processor(cpuinfo) == "Abacus 3000"
    assert memory(meminfo) == "24 GiB"


def test_a_silent_system_is_no_error(tmp_path: Path) -> None:
    assert processor(tmp_path / "none") != ""
    assert memory(tmp_path / "none") == "unknown"


def test_only_installed_packages_are_named() -> None:
    assert [line.split()[0] for line in versions(["pytest", "no-such-package"])] == ["pytest"]
