"""Which precision a processor gets, and what int8 does to a product."""

from pathlib import Path

import pytest
import torch

from services.engine.linear import Int8Linear
from services.engine.precision import (
    BESIDE_BYTES,
    choose_precision,
    free_memory,
    processor_flags,
)


@pytest.mark.parametrize(
    ("asked", "flags", "precision", "reason"),
    [
        ("auto", {"avx512_vnni", "avx512_bf16"}, "int8", "has avx512_vnni"),
        ("auto", {"sse2", "avx512_bf16"}, "bf16", "has avx512_bf16"),
        ("auto", {"amx_bf16", "avx512f"}, "bf16", "has amx_bf16"),
        ("auto", {"avx2", "avx512f"}, "fp32", "neither"),
        ("auto", {"avx_vnni"}, "fp32", "neither"),  # not known to be enough
        ("auto", set(), "fp32", "neither"),
        ("int8", {"avx512_vnni"}, "int8", "asked for by AIO_PRECISION"),
        ("fp32", {"avx512_bf16"}, "fp32", "asked for by AIO_PRECISION"),
        ("bf16", set(), "bf16", "asked for by AIO_PRECISION"),
    ],
)
def test_precision_suits_the_processor(
    asked: str, flags: set[str], precision: str, reason: str
) -> None:
    chosen = choose_precision(asked, frozenset(flags))
    assert chosen.name == precision
    assert reason in chosen.reason
    assert chosen.has_vnni == ("avx512_vnni" in flags)


def test_flags_are_the_first_processors(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: sse\n")
    assert processor_flags(cpuinfo) == {"fpu", "avx2"}


@pytest.mark.parametrize("content", [None, "processor\t: 0\n"])
def test_no_flags_where_the_system_does_not_tell(tmp_path: Path, content: str | None) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if content is not None:
        cpuinfo.write_text(content)
    assert processor_flags(cpuinfo) == frozenset()


def weight(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator)


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("has_vnni", "bound"), [(True, 0.015), (False, 0.025)])
def test_int8_product_is_close(has_vnni: bool, bound: float) -> None:
    matrix, rows, bias = weight(96, 256), weight(5, 256, seed=1), weight(1, 96, seed=2)[0]
    found = Int8Linear(matrix, bias, has_vnni=has_vnni)(rows)
    assert relative_error(found, rows @ matrix.T + bias) < bound


def test_int8_row_is_the_same_whatever_stands_beside_it() -> None:
    product, rows = Int8Linear(weight(96, 256)), weight(8, 256, seed=1)
    rows[3] *= 1000  # one scale for all rows would drown the others
    together = product(rows)
    for index in range(len(rows)):
        assert torch.equal(product(rows[index : index + 1])[0], together[index])


def test_int8_product_of_zeros_is_the_bias() -> None:
    bias = weight(1, 96)[0]
    assert torch.equal(Int8Linear(weight(96, 256), bias)(torch.zeros(1, 256))[0], bias)


def test_seven_bit_activations_cannot_overflow_sixteen_bits() -> None:
    """Pairs of products are added in 16 bits where there is no VNNI; the worst that codes can do
    has to come out exactly."""
    matrix, rows = torch.full((16, 64), 127.0), torch.full((1, 64), 3.0)
    found = Int8Linear(matrix, has_vnni=False)(rows)
    assert torch.allclose(found, rows @ matrix.T, rtol=1e-6)
    levels, largest_code = 63, 2 * 63 + 1
    assert 2 * largest_code * 127 < 2**15 < 2 * (2 * 127 + 1) * 127
    assert len(set(Int8Linear(torch.eye(1), has_vnni=False)(halves(levels)).flatten())) == 127


def halves(levels: int) -> torch.Tensor:
    """One row for each code that `levels` on each side of zero can tell apart."""
    return torch.arange(-levels, levels + 1).float().unsqueeze(1) / levels


@pytest.mark.parametrize("num_rows", [1, 512, 513])
def test_int8_weights_are_rounded_to_the_nearest_code(num_rows: int) -> None:
    """Each channel against one-hot inputs, which 8 bits hold exactly."""
    matrix = weight(num_rows, 16)
    scales = matrix.abs().amax(dim=1, keepdim=True) / 127
    wanted = (matrix / scales).round() * scales
    found = Int8Linear(matrix)(torch.eye(16)).T
    assert torch.allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_int8_weights_between_two_codes_are_rounded_to_the_even_one() -> None:
    """The largest magnitude makes the scale 1, so that halves lie just between two codes."""
    matrix = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5]])
    found = Int8Linear(matrix)(torch.eye(8))[:, 0]
    wanted = torch.tensor([127.0, 0, 2, 2, 0, -2, -2, 126])
    assert torch.allclose(found, wanted, rtol=1e-6, atol=1e-4)


def test_int8_activations_are_rounded_to_the_nearest_code() -> None:
    rows = torch.tensor([[1.0, 0.4 / 127, 0.6 / 127, -0.4 / 127, -0.6 / 127, -1.0]])
    found = Int8Linear(torch.eye(6))(rows)[0]
    assert torch.allclose(found * 127, torch.tensor([127.0, 0, 1, 0, -1, -127]), atol=1e-3)


# --- memory ---


@pytest.mark.parametrize(
    ("flags", "room", "precision"),
    [
        ({"avx512_bf16"}, 2_000, "bf16"),
        ({"avx512_bf16"}, 1_999, "int8"),
        (set(), 4_000, "fp32"),
        (set(), 3_999, "int8"),
        ({"avx512_vnni"}, 0, "int8"),
    ],
)
def test_what_does_not_fit_gives_way_to_int8(flags: set[str], room: int, precision: str) -> None:
    free = BESIDE_BYTES + room * 2**20
    chosen = choose_precision("auto", frozenset(flags), weights=1_000 * 2**20, free=free)
    assert chosen.name == precision
    assert choose_precision("fp32", frozenset(flags), weights=2**40, free=free).name == "fp32"


def test_free_memory_is_the_smaller_of_machine_and_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    assert free_memory(meminfo, tmp_path) == 5000 * 1024
    (tmp_path / "memory.current").write_text("1000000\n")
    for limit, free in (("3000000", 2_000_000), ("90000000", 5000 * 1024), ("max", 5000 * 1024)):
        (tmp_path / "memory.max").write_text(limit + "\n")
        assert free_memory(meminfo, tmp_path) == free
    assert free_memory(tmp_path / "none", tmp_path / "none") is None


def test_kv_is_kept_in_what_was_asked_for() -> None:
    assert choose_precision("auto", frozenset()).kv_dtype is torch.float32
    assert choose_precision("int8", frozenset(), "bf16").kv_dtype is torch.bfloat16
