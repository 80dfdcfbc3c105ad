"""The matrix product and the embedding; the one place that knows a weight's precision."""

from typing import Protocol

import torch
from torch.nn import functional

_CHUNK_ROWS = 512  # rounded at a time: they stay in the processor's cache
_TINY = 1e-12  # keeps an all-zero row from being divided by zero


class Table(Protocol):
    """A tensor `[num_rows, num_columns]`, or one that is read a slice of rows at a time."""

    @property
    def shape(self) -> torch.Size: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice, /) -> torch.Tensor: ...


class Linear(Protocol):
    """`y = x W^T + b` on fp32 activations."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` fp32 -> `[num_rows, out_features]` fp32."""
        ...


class FloatLinear:
    """A product with weights in fp32 or bf16.

    In bf16 the input is rounded for the product and the result comes back as fp32: sums between
    products stay exact, and only the weights' memory traffic is halved.
    """

    __slots__ = ("bias", "weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """`weight` is `[out_features, in_features]`, `bias` `[out_features]` or None."""
        self.weight = weight
        self.bias = bias.to(weight.dtype) if bias is not None else None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return functional.linear(rows.to(self.weight.dtype), self.weight, self.bias).float()


class Int8Linear:
    """A product with int8 weights, scaled per output channel, and int8 activations per row.

    Each row is rounded by its own largest magnitude, and oneDNN adds up whole numbers, so that a
    row's result is the same to the bit whatever rows stand beside it.

    Without VNNI, pairs of products are added in 16 bits, which 8-bit activations overflow
    (saturate); 7-bit ones can't: 2 x 127 x 127 < 2^15.
    """

    __slots__ = ("_bias", "_half", "_levels", "_packed", "_scales", "_zero_points")

    def __init__(
        self, weight: Table, bias: torch.Tensor | None = None, *, has_vnni: bool = True
    ) -> None:
        """`weight` is `[out_features, in_features]`, `bias` `[out_features]` or None."""
        codes, self._scales = _quantize(weight)
        self._packed = torch.ops.onednn.qlinear_prepack(codes, None)
        self._zero_points = torch.zeros(len(codes), dtype=torch.long)
        self._bias = bias.float() if bias is not None else None
        self._levels = 127 if has_vnni else 63  # on each side of the zero point, levels + 1
        self._half = torch.tensor(self._levels + 1.5)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        scale = rows.abs().amax(dim=-1, keepdim=True).clamp_min_(_TINY)
        # Half a step above the zero point, for the conversion cuts off and this has to round.
        codes = torch.addcdiv(self._half, rows, scale, value=self._levels).to(torch.uint8)
        product: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            codes,
            1 / self._levels,
            self._levels + 1,
            self._packed,
            self._scales,
            self._zero_points,
            None,  # the bias comes after the row's scale
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        product *= scale
        return product if self._bias is None else product.add_(self._bias)


class Embedding:
    """Token id -> `[hidden]` in fp32, from a table in bf16 or fp32."""

    __slots__ = ("weight",)

    def __init__(self, weight: torch.Tensor) -> None:
        """`weight` is `[vocab_size, hidden]`."""
        self.weight = weight

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(token_ids, self.weight).float()


def _quantize(weight: Table) -> tuple[torch.Tensor, torch.Tensor]:
    """Round each row to -127 ... 127 by its own scale: codes `[num_rows, num_columns]` int8, scales
    `[num_rows]` fp32."""
    codes = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(len(weight))
    for start in range(0, len(weight), _CHUNK_ROWS):
        chunk = slice(start, start + _CHUNK_ROWS)
        rows = weight[chunk].float()
        scales[chunk] = rows.abs().amax(dim=1).clamp_min_(_TINY) / 127
        codes[chunk] = (rows / scales[chunk].unsqueeze(1)).round_().to(torch.int8)
    return codes, scales
