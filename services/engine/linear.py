"""The matrix product of the forward; the one place that knows a weight's precision."""

import torch
from torch.nn import functional


class Linear:
    """`y = x W^T + b` on fp32 activations, with weights in fp32 or bf16.

    In bf16 the input is rounded for the product and the result comes back as fp32: sums between
    products stay exact, and only the weights' memory traffic is halved.
    """

    __slots__ = ("bias", "weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """`weight` is `[out_features, in_features]`, `bias` `[out_features]` or None."""
        self.weight = weight
        self.bias = bias.to(weight.dtype) if bias is not None else None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` fp32 -> `[num_rows, out_features]` fp32."""
        return functional.linear(rows.to(self.weight.dtype), self.weight, self.bias).float()
