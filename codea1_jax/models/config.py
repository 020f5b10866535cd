"""Shape of a decoder, and its form as a Hugging Face `config.json`."""

import dataclasses
from typing import Any


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
  tie_word_embeddings: bool = True
  qkv_bias: bool = True
  qk_norm: bool = False
  max_position_embeddings: int = 32768
  param_dtype: str = "float32"
  dtype: str = "float32"  # of activations and of matmul inputs
  scan_layers: bool = False  # one compiled layer; slower on a CPU
  remat: bool = False

  def __post_init__(self):
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"num_heads {self.num_heads} is not a multiple of num_kv_heads"
        f" {self.num_kv_heads}"
      )
    if self.head_dim % 2:
      raise ValueError(f"head_dim must be even for rope, got {self.head_dim}")


# What a Hugging Face config may say about features this file does not have.
_ADMITTED = {
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


def _rope_theta(raw: dict[str, Any]) -> float:
  """The rope base, from the field of either generation of config files."""
  theta = raw.get("rope_theta")
  for field in ("rope_scaling", "rope_parameters"):
    scaling = raw.get(field) or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
      raise ValueError(
        f"unsupported model config: {field} asks for {kind!r}, this decoder"
        " has only 'default'"
      )
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
      raise ValueError(
        f"unsupported model config: {field} has partial_rotary_factor"
        f" {scaling['partial_rotary_factor']}"
      )
    theta = scaling.get("rope_theta", theta)
  return 10000.0 if theta is None else float(theta)


def config_from_hf(raw: dict[str, Any]) -> QwenConfig:
  """Reads the fields of a Hugging Face `config.json`.

  Args:
    raw: the parsed file; model_type qwen2, qwen3 or llama.

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
  missing = [name for name in _HF_NAMES.values() if raw.get(name) is None]
  if missing:
    raise ValueError(f"model config lacks {', '.join(missing)}")
  _check_admitted(raw)
  heads = raw["num_attention_heads"]
  fallback_dim = 128 if family == "qwen3" else raw["hidden_size"] // heads
  return QwenConfig(
    **{ours: raw[theirs] for ours, theirs in _HF_NAMES.items()},
    num_kv_heads=raw.get("num_key_value_heads") or heads,
    head_dim=raw.get("head_dim") or fallback_dim,
    rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
    rope_theta=_rope_theta(raw),
    tie_word_embeddings=raw.get("tie_word_embeddings", False),
    qkv_bias=family == "qwen2",
    qk_norm=family == "qwen3",
    max_position_embeddings=raw.get("max_position_embeddings", 32768),
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
    "tie_word_embeddings": config.tie_word_embeddings,
    "use_cache": True,
  }
