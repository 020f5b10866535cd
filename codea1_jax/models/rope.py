"""Frequencies of rotary position embeddings, and their scaling.

As transformers computes them (`modeling_rope_utils.py`), in float32 like it:
at a position of 10^5 the last bit of a frequency moves the angle by 0.01.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from absl import logging

_LENGTH = "original_max_position_embeddings"
_REQUIRED = {
  "linear": ("factor",),
  "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
  "yarn": ("factor",),
}
_NUMBERS = {
  "linear": ("factor",),
  "llama3": (*_REQUIRED["llama3"], _LENGTH),
  "yarn": (
    "factor",
    _LENGTH,
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "beta_fast",
    "beta_slow",
  ),
}
_FIELDS = _NUMBERS | {"yarn": (*_NUMBERS["yarn"], "truncate")}
# Read elsewhere, or of no meaning for the computation.
_OTHER = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_HARMLESS = {"finetuned"}


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """How rope is stretched beyond the context of pretraining; hashable."""

  kind: str  # linear, llama3 or yarn
  factor: float  # the context's growth
  original_max_position_embeddings: float | None = None  # not for linear
  low_freq_factor: float | None = None  # llama3
  high_freq_factor: float | None = None  # llama3
  attention_factor: float | None = None  # yarn, as all below
  mscale: float | None = None
  mscale_all_dim: float | None = None
  beta_fast: float | None = None  # None: 32
  beta_slow: float | None = None  # None: 1
  truncate: bool = True

  def __post_init__(self):
    if self.kind not in _FIELDS:
      raise ValueError(
        f"rope scaling kind = {self.kind!r}, this decoder has only"
        f" {', '.join(_FIELDS)}"
      )
    needed = _REQUIRED[self.kind]
    if self.kind != "linear":
      needed = (*needed, _LENGTH)
    lost = [name for name in needed if getattr(self, name) is None]
    if lost:
      raise ValueError(f"rope scaling {self.kind!r} lacks {', '.join(lost)}")
    low, high = self.low_freq_factor, self.high_freq_factor
    if self.kind == "llama3" and low >= high:
      raise ValueError(
        f"rope scaling: low_freq_factor {low} is not below high_freq_factor"
        f" {high}"
      )


def _check_numbers(field: str, kind: str, raw: dict[str, Any]) -> None:
  """Names the first value that is not a number of its range."""
  for name in _NUMBERS[kind]:
    value = raw.get(name)
    if value is None:
      continue
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    may_be_zero = name not in (*_REQUIRED[kind], _LENGTH)
    in_range = is_number and 0 <= value < math.inf
    if not in_range or not (value or may_be_zero):
      raise ValueError(
        f"unsupported model config: {field}.{name} = {value!r}, expected a"
        " positive number"
      )
  if not isinstance(raw.get("truncate", True), bool):
    raise ValueError(
      f"unsupported model config: {field}.truncate = {raw['truncate']!r}"
    )


def _kind(field: str, raw: dict[str, Any]) -> str:
  """The scaling asked for, once all is checked that every kind shares."""
  kind = raw.get("rope_type", raw.get("type", "default"))
  if kind != "default" and kind not in _FIELDS:
    raise ValueError(
      f"unsupported model config: {field} asks for {kind!r}, this decoder"
      f" has only 'default', {', '.join(map(repr, _FIELDS))}"
    )
  for name, value in raw.items():
    if isinstance(value, dict):
      raise ValueError(
        f"unsupported model config: {field}.{name} is rope of one kind of"
        " layer, this decoder has one rope for all"
      )
  if raw.get("partial_rotary_factor") not in (None, 1, 1.0):
    raise ValueError(
      f"unsupported model config: {field} has partial_rotary_factor"
      f" {raw['partial_rotary_factor']}"
    )
  return kind


def _warn_of_unknown(field: str, kind: str, raw: dict[str, Any]) -> None:
  known = _OTHER | _HARMLESS | set(_FIELDS.get(kind, ()))
  unknown = {
    name: value
    for name, value in raw.items()
    if name not in known and value is not None and value is not False
  }
  if unknown:
    logging.warning(
      "model config: %s, rope %s, has unknown fields, ignored: %s",
      field,
      kind,
      unknown,
    )


def _read(
  field: str, raw: dict[str, Any], top: dict[str, Any], length: int
) -> tuple[float, RopeScaling | None]:
  """Base and scaling of one of the two fields."""
  kind = _kind(field, raw)
  _warn_of_unknown(field, kind, raw)
  theta = float(raw.get("rope_theta") or top.get("rope_theta") or 10000.0)
  if kind == "default":
    return theta, None
  _check_numbers(field, kind, raw)
  lost = [name for name in _REQUIRED[kind] if raw.get(name) is None]
  if kind == "yarn" and "factor" in raw:
    lost = []  # null: the ratio of the two lengths, as in DeepSeek's files
  if lost:
    raise ValueError(f"model config: {field} ({kind}) lacks {', '.join(lost)}")
  values = {n: raw[n] for n in _FIELDS[kind] if raw.get(n) is not None}
  if kind != "linear":
    # Phi-like files have it outside, and there it has precedence.
    values[_LENGTH] = top.get(_LENGTH) or raw.get(_LENGTH) or length
    if kind == "yarn":
      values.setdefault("factor", length / values[_LENGTH])
  return theta, RopeScaling(kind, **values)


def rope_from_hf(
  raw: dict[str, Any], max_position_embeddings: int
) -> tuple[float, RopeScaling | None]:
  """Base and scaling from a `config.json` of either generation.

  Args:
    raw: the parsed file; `rope_scaling` beside `rope_theta`, or both in
      `rope_parameters`.
    max_position_embeddings: what a missing original length defaults to.

  Raises:
    ValueError: an unsupported kind, a bad value, or two fields that disagree;
      the message names field and value.
  """
  found: dict[str, tuple[float, RopeScaling | None]] = {}
  for field in ("rope_scaling", "rope_parameters"):
    value = raw.get(field) or {}
    if not isinstance(value, dict):
      raise ValueError(f"unsupported model config: {field} = {value!r}")
    if value:
      found[field] = _read(field, value, raw, max_position_embeddings)
  if not found:
    return _read("rope_parameters", {}, raw, max_position_embeddings)
  if len(set(found.values())) > 1:
    raise ValueError(
      f"unsupported model config: rope_scaling {raw['rope_scaling']} and"
      f" rope_parameters {raw['rope_parameters']} disagree"
    )
  return next(iter(found.values()))


def rope_scaling_to_hf(scaling: RopeScaling) -> dict[str, Any]:
  """The `rope_scaling` that `rope_from_hf` and transformers read."""
  values = {name: getattr(scaling, name) for name in _FIELDS[scaling.kind]}
  found = {name: value for name, value in values.items() if value is not None}
  return {"rope_type": scaling.kind, **found}


def attention_scale(scaling: RopeScaling | None) -> float:
  """What multiplies cos and sin: 1 but for yarn (arXiv:2309.00071, eq. 22)."""
  if scaling is None or scaling.kind != "yarn":
    return 1.0
  if scaling.attention_factor is not None:
    return scaling.attention_factor

  def scale(weight: float) -> float:
    if scaling.factor <= 1:
      return 1.0
    return 0.1 * weight * math.log(scaling.factor) + 1.0

  if scaling.mscale and scaling.mscale_all_dim:
    return scale(scaling.mscale) / scale(scaling.mscale_all_dim)
  return scale(1.0)


def _llama3(frequencies: np.ndarray, scaling: RopeScaling) -> np.ndarray:
  """Long waves divided by the factor, short ones kept, a ramp between."""
  length, factor = scaling.original_max_position_embeddings, scaling.factor
  low, high = scaling.low_freq_factor, scaling.high_freq_factor
  turns = length * frequencies / (2 * math.pi)  # in the original context
  kept = np.clip((turns - low) / (high - low), 0, 1)
  return (1 - kept) * frequencies / factor + kept * frequencies


def _yarn(
  frequencies: np.ndarray, head_dim: int, theta: float, scaling: RopeScaling
) -> np.ndarray:
  """Like llama3, with the ramp linear in the pair's index."""
  length = scaling.original_max_position_embeddings

  def pair_turning(times: float) -> float:
    """Index of the pair that turns so often in the original context."""
    ratio = length / (times * 2 * math.pi)
    return head_dim * math.log(ratio) / (2 * math.log(theta))

  low = pair_turning(scaling.beta_fast or 32)
  high = pair_turning(scaling.beta_slow or 1)
  if scaling.truncate:
    low, high = math.floor(low), math.ceil(high)
  low, high = max(low, 0), min(high, head_dim - 1)
  high += 0.001 if low == high else 0  # as transformers avoids 0 / 0
  index = np.arange(head_dim // 2, dtype=np.float32)
  stretched = np.clip((index - low) / (high - low), 0, 1)
  return frequencies / scaling.factor * stretched + frequencies * (
    1 - stretched
  )


def frequencies(
  head_dim: int, theta: float, scaling: RopeScaling | None
) -> np.ndarray:
  """Angle a position, [head_dim / 2] float32: theta^(-2i / H), scaled."""
  exponents = np.arange(0, head_dim, 2, dtype=np.float32) / head_dim
  plain = (1.0 / np.float32(theta) ** exponents).astype(np.float32)
  if scaling is None:
    return plain
  if scaling.kind == "linear":
    scaled = plain / scaling.factor
  elif scaling.kind == "llama3":
    scaled = _llama3(plain, scaling)
  else:
    scaled = _yarn(plain, head_dim, theta, scaling)
  return scaled.astype(np.float32)
