"""Which precision a processor gets, and what int8 does to a product."""

from pathlib import Path

import pytest
import torch

from services.engine.linear import Int8Embedding, Int8Linear, quantize_rows
from services.engine.precision import choose_precision, processor_flags


@pytest.mark.parametrize(
    ("asked", "flags", "precision", "reason"),
    [
        ("auto", {"avx512_vnni", "avx512_bf16"}, "int8", "has avx512_vnni"),
        ("auto", {"sse2", "avx512_bf16"}, "bf16", "has avx512_bf16"),
        ("auto", {"amx_bf16", "avx512f"}, "bf16", "has amx_bf16"),
        ("auto", {"avx2", "avx512f"}, "fp32", "neither"),
        ("auto", {"avx_vnni"}, "fp32", "neither"),  # fbgemm has no kernel for the short form
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
    """Pairs of products are added in 16 bits where there is no VNNI: activations are codes from 0
    to twice the zero point, weights at most 127."""
    product = Int8Linear(weight(4, 8), has_vnni=False)
    assert 2 * (2 * product.zero_point) * 127 < 2**15
    assert 2 * (2 * Int8Linear(weight(4, 8)).zero_point) * 127 >= 2**15


@pytest.mark.parametrize("num_rows", [1, 512, 513])
def test_codes_and_scales_give_the_rows_back(num_rows: int) -> None:
    matrix = weight(num_rows, 4)
    codes, scales = quantize_rows(matrix)
    assert codes.dtype is torch.int8
    assert int(codes.abs().max()) == 127
    assert float((codes * scales.unsqueeze(1) - matrix).abs().max()) <= float(scales.max()) / 2


def test_int8_embedding_is_close() -> None:
    matrix, ids = weight(50, 64), torch.tensor([3, 49, 3])
    assert relative_error(Int8Embedding(matrix)(ids), matrix[ids]) < 0.01
