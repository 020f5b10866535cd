"""Reading and writing of Hugging Face model configs."""

import dataclasses

import pytest

from codea1_jax.models import config as model_config

RAW = {
  "model_type": "qwen2",
  "vocab_size": 64,
  "hidden_size": 48,
  "intermediate_size": 96,
  "num_hidden_layers": 2,
  "num_attention_heads": 6,
  "num_key_value_heads": 2,
  "rope_theta": 1000000.0,
  "rms_norm_eps": 1e-5,
  "tie_word_embeddings": True,
}


def test_fields_are_read():
  config = model_config.config_from_hf(RAW)
  assert config == model_config.QwenConfig(
    vocab_size=64,
    hidden_size=48,
    intermediate_size=96,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    rope_theta=1e6,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
  )


def test_rope_base_of_newer_files_and_its_default():
  newer = {k: v for k, v in RAW.items() if k != "rope_theta"}
  assert model_config.config_from_hf(newer).rope_theta == 10000.0
  newer["rope_parameters"] = {"rope_type": "default", "rope_theta": 5e5}
  assert model_config.config_from_hf(newer).rope_theta == 5e5


@pytest.mark.parametrize(
  ("family", "bias", "norm", "head_dim"),
  [
    ("qwen2", True, False, 8),
    ("qwen3", False, True, 128),
    ("llama", False, False, 8),
  ],
)
def test_families_differ_in_bias_norm_and_default_head(
  family, bias, norm, head_dim
):
  config = model_config.config_from_hf(RAW | {"model_type": family})
  assert (config.qkv_bias, config.qk_norm) == (bias, norm)
  assert config.head_dim == head_dim
  assert model_config.config_from_hf(model_config.config_to_hf(config)) == (
    config
  )


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("model_type", "mixtral"),
    ("hidden_act", "gelu"),
    ("attention_dropout", 0.1),
    ("attention_bias", True),
    ("mlp_bias", True),
    ("quantization_config", {"bits": 4}),
    ("rope_scaling", {"type": "yarn", "factor": 4.0}),
    ("rope_parameters", {"rope_type": "llama3", "rope_theta": 1e4}),
    ("use_sliding_window", True),
    ("layer_types", ["full_attention", "sliding_attention"]),
  ],
)
def test_what_is_unsupported_is_named(field, value):
  raw = RAW | {field: value, "max_window_layers": 1}
  with pytest.raises(ValueError, match=field):
    model_config.config_from_hf(raw)


def test_a_window_that_no_layer_uses_is_admitted():
  raw = RAW | {"use_sliding_window": True, "max_window_layers": 2}
  model_config.config_from_hf(raw)
  model_config.config_from_hf(RAW | {"sliding_window": 16})


def test_missing_fields_are_all_named():
  raw = {k: v for k, v in RAW.items() if k not in ("vocab_size", "hidden_size")}
  with pytest.raises(ValueError, match="vocab_size, hidden_size"):
    model_config.config_from_hf(raw)


def test_impossible_shapes_are_refused():
  config = model_config.config_from_hf(RAW)
  with pytest.raises(ValueError, match="num_kv_heads 4"):
    dataclasses.replace(config, num_kv_heads=4)
  with pytest.raises(ValueError, match="even"):
    dataclasses.replace(config, head_dim=7)
  both = dataclasses.replace(config, qk_norm=True)
  with pytest.raises(ValueError, match="both qkv_bias and qk_norm"):
    model_config.config_to_hf(both)
