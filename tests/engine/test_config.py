from typing import Any

import pytest

from services.engine.config import ModelConfig, UnsupportedModelError

QWEN15 = {  # as Qwen1.5-0.5B's config has it
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "use_sliding_window": False,
    "max_window_layers": 21,
    "tie_word_embeddings": True,
}


def test_reads_every_field() -> None:
    assert ModelConfig.from_dict(QWEN15) == ModelConfig(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=2816,
        num_layers=24,
        num_heads=16,
        num_kv_heads=16,
        head_dim=64,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        max_positions=32768,
        is_tied=True,
    )


@pytest.mark.parametrize(
    ("rope", "theta"),
    [
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 5e5),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "default"}}, 5e5),
        ({}, 1e4),  # what transformers takes where neither form tells
    ],
)
def test_theta_in_old_and_new_form(rope: dict[str, Any], theta: float) -> None:
    raw = {key: value for key, value in QWEN15.items() if key != "rope_theta"}
    assert ModelConfig.from_dict(raw | rope).rope_theta == theta


def test_no_kv_heads_means_full_heads() -> None:
    raw = {key: value for key, value in QWEN15.items() if key != "num_key_value_heads"}
    assert ModelConfig.from_dict(raw).num_kv_heads == 16


def test_own_head_dim_wins() -> None:
    assert ModelConfig.from_dict(QWEN15 | {"head_dim": 128}).head_dim == 128


def test_full_attention_in_every_layer_is_fine() -> None:
    layer_types = ["full_attention"] * 24
    assert ModelConfig.from_dict(QWEN15 | {"layer_types": layer_types}).num_layers == 24


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"model_type": None}, "model_type is None"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling asks for 'yarn'"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_scaling asks for 'dynamic'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters asks for 'linear'"),
        (
            {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "yarn"}},
            "rope_scaling asks for 'yarn'",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
            "rope_parameters differs by layer",
        ),
        ({"use_sliding_window": True}, "use_sliding_window is on"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "'sliding_attention'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"num_key_value_heads": 3}, "no multiple of num_key_value_heads 3"),
    ],
)
def test_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        ModelConfig.from_dict(QWEN15 | changes)


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"]
)
def test_missing_key_is_named(key: str) -> None:
    raw = {name: value for name, value in QWEN15.items() if name != key}
    with pytest.raises(UnsupportedModelError, match=f"lacks '{key}'"):
        ModelConfig.from_dict(raw)
