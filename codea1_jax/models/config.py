"""Shape of a decoder, and its form as a Hugging Face `config.json`."""

import dataclasses
from typing import Any

from absl import logging

from codea1_jax.models.rope import (
  RopeScaling,
  rope_from_hf,
  rope_scaling_to_hf,
)

# What a backward pass keeps of a layer instead of computing it again:
# everything, nothing, all matmuls, matmuls without a batch axis.
REMAT = ("none", "full", "dots", "dots_no_batch")


@dataclasses.dataclass(frozen=True)
class QwenConfig:
  """Shape of a decoder and how to compute it; hashable, hence static."""

  vocab_size: int
  hidden_size: int
  intermediate_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  rms_norm_eps: float = 1e-6
  rope_theta: float = 1e6
  rope_scaling: RopeScaling | None = None
  tie_word_embeddings: bool = True
  qkv_bias: bool = True
  qk_norm: bool = False
  max_position_embeddings: int = 32768
  param_dtype: str = "float32"
  dtype: str = "float32"  # of activations and of matmul inputs
  scan_layers: bool = False  # one compiled layer; slower on a CPU
  remat: str = "none"  # one of REMAT

  def __post_init__(self):
    if self.remat not in REMAT:
      raise ValueError(
        f"remat = {self.remat!r}, expected one of {', '.join(REMAT)}"
      )
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"num_heads {self.num_heads} is not a multiple of num_kv_heads"
        f" {self.num_kv_heads}"
      )
    if self.head_dim % 2:
      raise ValueError(f"head_dim must be even for rope, got {self.head_dim}")

  @property
  def context_length(self) -> int:
    """Positions that prompt and answer share; rope scaling may add to those
    that the file names, as Qwen's YaRN snippet has it."""
    scaling = self.rope_scaling
    if scaling is None or scaling.original_max_position_embeddings is None:
      return self.max_position_embeddings
    stretched = scaling.factor * scaling.original_max_position_embeddings
    return max(self.max_position_embeddings, int(stretched))


# What a Hugging Face config may say about features this file does not have.
_ADMITTED = {
  "use_mrope": (None, False),
  "hidden_act": ("silu",),
  "attention_dropout": (None, 0, 0.0),
  "attention_bias": (None, False),
  "mlp_bias": (None, False),
  "pretraining_tp": (None, 1),
  "partial_rotary_factor": (None, 1, 1.0),
  "quantization_config": (None,),
}
_HF_NAMES = {
  "vocab_size": "vocab_size",
  "hidden_size": "hidden_size",
  "intermediate_size": "intermediate_size",
  "num_layers": "num_hidden_layers",
  "num_heads": "num_attention_heads",
}
_USED = {
  *_HF_NAMES.values(),
  "model_type",
  "num_key_value_heads",
  "head_dim",
  "rms_norm_eps",
  "rope_theta",
  "rope_scaling",
  "rope_parameters",
  "original_max_position_embeddings",
  "max_position_embeddings",
  "tie_word_embeddings",
  "use_sliding_window",
  "max_window_layers",
  "layer_types",
}
# Of no meaning for what the decoder computes, or read by others.
_HARMLESS = {
  "_attn_implementation_autoset",
  "_name_or_path",
  "architectures",
  "bos_token_id",
  "chunk_size_feed_forward",
  "dtype",
  "eos_token_id",
  "initializer_range",
  "is_encoder_decoder",
  "output_attentions",
  "output_hidden_states",
  "pad_token_id",
  "return_dict",
  "sliding_window",  # its length; use_sliding_window says whether
  "torch_dtype",
  "transformers_version",
  "use_cache",
}


def _check_admitted(raw: dict[str, Any]) -> None:
  """Names the first field that asks for what is not implemented."""
  for field, admitted in _ADMITTED.items():
    if raw.get(field, admitted[0]) not in admitted:
      raise ValueError(
        f"unsupported model config: {field} = {raw[field]!r}, this decoder"
        f" has only {admitted[-1]!r}"
      )
  layers = raw["num_hidden_layers"]
  window_from = raw.get("max_window_layers")
  window_from = 28 if window_from is None else window_from
  if raw.get("use_sliding_window") and window_from < layers:
    raise ValueError(
      "unsupported model config: use_sliding_window is true with"
      f" max_window_layers {window_from} below {layers} layers"
    )
  kinds = set(raw.get("layer_types") or ()) - {"full_attention"}
  if kinds:
    raise ValueError(
      f"unsupported model config: layer_types has {sorted(kinds)}, this"
      " decoder has only full_attention"
    )


def _warn_of_unknown(raw: dict[str, Any]) -> None:
  """A field that nobody knows may change the model: say that it does not."""
  unknown = {
    name: value
    for name, value in raw.items()
    if name not in _USED | _HARMLESS | _ADMITTED.keys()
    and value is not None
    and value is not False
  }
  if unknown:
    logging.warning("model config: unknown fields, ignored: %s", unknown)


def _check_sizes(raw: dict[str, Any]) -> None:
  """Every size is there and a positive integer."""
  missing = [name for name in _HF_NAMES.values() if raw.get(name) is None]
  if missing:
    raise ValueError(f"model config lacks {', '.join(missing)}")
  optional = ("num_key_value_heads", "head_dim", "max_position_embeddings")
  for name in (*_HF_NAMES.values(), *optional):
    value = raw.get(name)
    if value is not None and (type(value) is not int or value < 1):
      raise ValueError(
        f"model config: {name} = {value!r}, expected a positive integer"
      )


def config_from_hf(raw: dict[str, Any]) -> QwenConfig:
  """Reads the fields of a Hugging Face `config.json`.

  Args:
    raw: the parsed file; model_type qwen2, qwen3 or llama. Fields that nobody
      knows are ignored with a warning.

  Returns:
    The config, in float32.

  Raises:
    ValueError: a field is missing or asks for what is not implemented; the
      message names it.
  """
  family = raw.get("model_type")
  if family not in ("qwen2", "qwen3", "llama"):
    raise ValueError(
      f"unsupported model config: model_type = {family!r}, expected one of"
      " qwen2, qwen3, llama"
    )
  _check_sizes(raw)
  _check_admitted(raw)
  _warn_of_unknown(raw)
  length = raw.get("max_position_embeddings")
  length = length or (2048 if family == "llama" else 32768)
  theta, scaling = rope_from_hf(raw, length)
  heads = raw["num_attention_heads"]
  fallback_dim = 128 if family == "qwen3" else raw["hidden_size"] // heads
  return QwenConfig(
    **{ours: raw[theirs] for ours, theirs in _HF_NAMES.items()},
    num_kv_heads=raw.get("num_key_value_heads") or heads,
    head_dim=raw.get("head_dim") or fallback_dim,
    rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
    rope_theta=theta,
    rope_scaling=scaling,
    tie_word_embeddings=raw.get("tie_word_embeddings", False),
    qkv_bias=family == "qwen2",
    qk_norm=family == "qwen3",
    max_position_embeddings=length,
  )


def config_to_hf(config: QwenConfig) -> dict[str, Any]:
  """The `config.json` that `config_from_hf` reads back and others load."""
  families = {
    (True, False): ("qwen2", "Qwen2ForCausalLM"),
    (False, True): ("qwen3", "Qwen3ForCausalLM"),
    (False, False): ("llama", "LlamaForCausalLM"),
  }
  try:
    family, architecture = families[config.qkv_bias, config.qk_norm]
  except KeyError:
    raise ValueError("no model family has both qkv_bias and qk_norm") from None
  scaling = config.rope_scaling
  rope = {"rope_scaling": rope_scaling_to_hf(scaling)} if scaling else {}
  return {
    "architectures": [architecture],
    "model_type": family,
    **{theirs: getattr(config, ours) for ours, theirs in _HF_NAMES.items()},
    "num_key_value_heads": config.num_kv_heads,
    "head_dim": config.head_dim,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "max_position_embeddings": config.max_position_embeddings,
    "rms_norm_eps": config.rms_norm_eps,
    "rope_theta": config.rope_theta,
    **rope,
    "tie_word_embeddings": config.tie_word_embeddings,
    "use_cache": True,
  }
