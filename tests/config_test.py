"""Reading and writing of Hugging Face model configs."""

import dataclasses

import pytest
from absl import logging

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
    ("use_mrope", True),
    ("num_hidden_layers", "2"),
    ("head_dim", 8.0),
    ("rope_scaling", {"type": "dynamic", "factor": 4.0}),
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


def test_remat_is_one_of_the_known_names():
  config = model_config.config_from_hf(RAW)
  for name in ("none", "full", "dots", "dots_no_batch"):
    assert dataclasses.replace(config, remat=name).remat == name
  for wrong in (True, "dot"):
    with pytest.raises(ValueError, match="none, full, dots, dots_no_batch"):
      dataclasses.replace(config, remat=wrong)


@pytest.fixture
def warnings(monkeypatch):
  """What is logged as a warning while a test runs."""
  found = []
  monkeypatch.setattr(logging, "warning", lambda *a: found.append(a[0] % a[1:]))
  return found


def test_fields_that_nobody_knows_are_ignored_aloud(warnings):
  raw = RAW | {"logit_scale": 0, "new_gate": None, "odd_norm": False}
  assert model_config.config_from_hf(raw) == model_config.config_from_hf(RAW)
  assert len(warnings) == 1
  assert "'logit_scale': 0" in warnings[0]
  assert "new_gate" not in warnings[0] and "odd_norm" not in warnings[0]


def _qwen25(width, inner, layers, heads, kv_heads, tied, **extra):
  """A config.json of Qwen2.5-Coder."""
  return {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": width,
    "initializer_range": 0.02,
    "intermediate_size": inner,
    "max_position_embeddings": 32768,
    "max_window_layers": layers,
    "model_type": "qwen2",
    "num_attention_heads": heads,
    "num_hidden_layers": layers,
    "num_key_value_heads": kv_heads,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": tied,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.44.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
  } | extra


def _qwen3(width, inner, layers, heads, tied, **extra):
  """A config.json of Qwen3."""
  common = _qwen25(width, inner, layers, heads, 8, tied)
  return (
    common
    | {
      "architectures": ["Qwen3ForCausalLM"],
      "attention_bias": False,
      "head_dim": 128,
      "max_position_embeddings": 40960,
      "model_type": "qwen3",
      "rope_scaling": None,
      "sliding_window": None,
      "transformers_version": "4.51.0",
    }
    | extra
  )


def _llama(width, inner, layers, heads, head_dim, tied, scaling, **extra):
  """A config.json of Llama 3.x."""
  return {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": head_dim,
    "hidden_act": "silu",
    "hidden_size": width,
    "initializer_range": 0.02,
    "intermediate_size": inner,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": heads,
    "num_hidden_layers": layers,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": scaling,
    "rope_theta": 500000.0,
    "tie_word_embeddings": tied,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
  } | extra


def _llama3_scaling(factor):
  return {
    "factor": factor,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
  }


YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
REAL = {
  "Qwen2.5-Coder-0.5B": _qwen25(896, 4864, 24, 14, 2, True),
  "Qwen2.5-Coder-1.5B": _qwen25(1536, 8960, 28, 12, 2, True),
  "Qwen2.5-Coder-3B": _qwen25(2048, 11008, 36, 16, 2, True, use_mrope=False),
  "Qwen2.5-Coder-7B": _qwen25(3584, 18944, 28, 28, 4, False, vocab_size=152064),
  "Qwen2.5-Coder-7B, long": _qwen25(
    3584, 18944, 28, 28, 4, False, rope_scaling=YARN | {"type": "yarn"}
  ),
  "Qwen2.5, newer file": _qwen25(
    896,
    4864,
    24,
    14,
    2,
    True,
    rope_theta=None,
    rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"},
    dtype="bfloat16",
    layer_types=["full_attention"] * 24,
    pad_token_id=None,
  ),
  "Qwen3-0.6B": _qwen3(1024, 3072, 28, 16, True),
  "Qwen3-1.7B": _qwen3(2048, 6144, 28, 16, True),
  "Qwen3-4B": _qwen3(2560, 9728, 36, 32, True),
  "Qwen3-8B": _qwen3(4096, 12288, 36, 32, False),
  "Llama-3-8B": _llama(4096, 14336, 32, 32, None, False, None),
  "Llama-3.1-8B": _llama(
    4096, 14336, 32, 32, None, False, _llama3_scaling(8.0)
  ),
  "Llama-3.2-1B": _llama(2048, 8192, 16, 32, 64, True, _llama3_scaling(32.0)),
}


@pytest.mark.parametrize("raw", REAL.values(), ids=REAL.keys())
def test_real_configs_are_read_in_silence_and_round_trip(raw, warnings):
  config = model_config.config_from_hf(raw)
  assert not warnings
  assert config.num_layers == raw["num_hidden_layers"]
  assert config.tie_word_embeddings == raw["tie_word_embeddings"]
  assert config.rope_theta == (5e5 if raw["model_type"] == "llama" else 1e6)
  width = raw["hidden_size"] // raw["num_attention_heads"]
  assert config.head_dim == (raw.get("head_dim") or width)
  assert bool(config.rope_scaling) == bool(raw.get("rope_scaling"))
  written = model_config.config_to_hf(config)
  assert model_config.config_from_hf(written) == config


def test_rope_scaling_stretches_the_context():
  """Qwen's YaRN snippet leaves max_position_embeddings as it was."""
  yarn = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
  }
  raw = RAW | {"max_position_embeddings": 32768}
  assert model_config.config_from_hf(raw).context_length == 32768
  config = model_config.config_from_hf(raw | {"rope_scaling": yarn})
  assert config.max_position_embeddings == 32768
  assert config.context_length == 131072
