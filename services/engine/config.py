"""The shape of a Qwen2-architecture model, read from its `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnsupportedModelError(Exception):
    """The config asks for something that our forward doesn't do; the message names it."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the forward needs to know. Sizes are in elements."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_positions: int
    is_tied: bool  # the head shares the embedding's weights

    @property
    def num_weights(self) -> int:
        """Elements of all matrices; norms and biases don't count beside them."""
        heads = 2 * (self.num_heads + self.num_kv_heads)
        layer = self.hidden_size * (heads * self.head_dim + 3 * self.intermediate_size)
        tables = self.vocab_size * self.hidden_size * (1 if self.is_tied else 2)
        return self.num_layers * layer + tables

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "ModelConfig":
        """Read a `config.json` of transformers 4 or 5.

        Raises:
            UnsupportedModelError: another architecture, rope scaling, sliding window, activation,
                or a missing key.
        """
        _refuse_other_kinds(raw)
        try:
            hidden, heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
            kv_heads = int(raw.get("num_key_value_heads") or heads)
            if heads % kv_heads:
                raise UnsupportedModelError(
                    f"num_attention_heads is {heads}, no multiple of num_key_value_heads {kv_heads}"
                )
            return cls(
                vocab_size=int(raw["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(raw["intermediate_size"]),
                num_layers=int(raw["num_hidden_layers"]),
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_dim=int(raw.get("head_dim") or hidden // heads),
                rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
                rope_theta=_rope_theta(raw),
                max_positions=int(raw.get("max_position_embeddings", 32768)),
                is_tied=bool(raw.get("tie_word_embeddings", False)),
            )
        except KeyError as error:
            raise UnsupportedModelError(f"the config lacks {error.args[0]!r}") from None


def _refuse_other_kinds(raw: Mapping[str, Any]) -> None:
    """What would run, but give other numbers than the model's own code."""
    if raw.get("model_type") != "qwen2":
        raise UnsupportedModelError(
            f"model_type is {raw.get('model_type')!r}; only 'qwen2' "
            "(Qwen1.5, Qwen2, Qwen2.5) can be run"
        )
    if raw.get("use_sliding_window"):
        raise UnsupportedModelError("use_sliding_window is on; it is not supported")
    if other := set(raw.get("layer_types") or ()) - {"full_attention"}:
        raise UnsupportedModelError(f"layer_types has {min(other)!r}; only 'full_attention' is")
    if raw.get("hidden_act", "silu") != "silu":
        raise UnsupportedModelError(f"hidden_act is {raw['hidden_act']!r}; only 'silu' is")


def _rope_theta(raw: Mapping[str, Any]) -> float:
    """Theta stands at the top (transformers 4) or in `rope_parameters` (transformers 5)."""
    theta = raw.get("rope_theta")
    for key in ("rope_parameters", "rope_scaling"):
        rope = raw.get(key) or {}
        kind = rope.get("rope_type") or rope.get("type") or "default"
        if kind != "default":
            raise UnsupportedModelError(f"{key} asks for {kind!r} scaling; it is not supported")
        if any(isinstance(value, Mapping) for value in rope.values()):
            raise UnsupportedModelError(f"{key} differs by layer; it is not supported")
        theta = rope.get("rope_theta") or theta
    return float(theta or 10_000.0)
