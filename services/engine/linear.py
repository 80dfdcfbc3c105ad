"""The matrix product and the embedding; the one place that knows a weight's precision."""

import warnings
from typing import Protocol

import torch
from torch.nn import functional

_CHUNK_ROWS = 512  # rounded at a time: they stay in the processor's cache
_TINY = 1e-12  # keeps an all-zero row from being divided by zero


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

    fbgemm takes the input's scale from us. Each row is divided by its own largest magnitude
    first and multiplied back after, so that its result is the same to the bit whatever rows
    stand beside it.

    Without VNNI, fbgemm adds pairs of products in 16 bits, which 8-bit activations overflow
    (saturate); 7-bit ones can't: 2 x 126 x 127 < 2^15.
    """

    __slots__ = ("_bias", "_packed", "zero_point")

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, has_vnni: bool = True
    ) -> None:
        """`weight` is `[out_features, in_features]`, `bias` `[out_features]` or None."""
        codes, scales = quantize_rows(weight)
        self.zero_point = 127 if has_vnni else 63
        self._bias = bias.float() if bias is not None else None
        with warnings.catch_warnings():  # of torch, that its quantized tensors may go some day
            warnings.simplefilter("ignore")
            channels = torch._make_per_channel_quantized_tensor(
                codes, scales.double(), torch.zeros(len(scales), dtype=torch.long), 0
            )
            self._packed = torch.ops.quantized.linear_prepack(channels, None)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        scale = rows.abs().amax(dim=-1, keepdim=True).clamp_min_(_TINY)
        product: torch.Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows / scale, 1 / self.zero_point, self.zero_point, self._packed
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


class Int8Embedding:
    """Token id -> `[hidden]` in fp32, from an int8 table with a scale for each token."""

    __slots__ = ("_codes", "_scales")

    def __init__(self, weight: torch.Tensor) -> None:
        """`weight` is `[vocab_size, hidden]`."""
        self._codes, scales = quantize_rows(weight)
        self._scales = scales.unsqueeze(1)

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self._codes[token_ids] * self._scales[token_ids]


def quantize_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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
