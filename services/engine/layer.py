"""The weights of one decoder layer, joined into as few products as it takes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from services.engine.linear import Linear


@dataclass(frozen=True, slots=True)
class Layer:
    """Norm weights `[hidden]` in fp32; query, key and value stand in one product, gate and up in
    another: fewer, larger ones."""

    input_norm: torch.Tensor
    qkv: Linear
    output: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear


def load_layer(
    weight: Callable[[str], torch.Tensor], prefix: str, linear: Callable[..., Linear]
) -> Layer:
    """Take a layer's tensors by their checkpoint names, which begin with `prefix`; `linear` makes
    a product of a weight and a bias."""

    def joined(*names: str) -> torch.Tensor:
        return torch.cat([weight(prefix + name) for name in names])

    attention = [f"self_attn.{name}_proj" for name in "qkv"]
    return Layer(
        input_norm=weight(prefix + "input_layernorm.weight").float(),
        qkv=linear(
            joined(*(f"{name}.weight" for name in attention)),
            joined(*(f"{name}.bias" for name in attention)),
        ),
        output=linear(weight(prefix + "self_attn.o_proj.weight")),
        post_norm=weight(prefix + "post_attention_layernorm.weight").float(),
        gate_up=linear(joined("mlp.gate_proj.weight", "mlp.up_proj.weight")),
        down=linear(weight(prefix + "mlp.down_proj.weight")),
    )
