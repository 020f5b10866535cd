"""Low-rank adapters beside frozen weights (LoRA, arXiv 2106.09685).

y = x W + (alpha / rank) (x A) B for each targeted projection. Several adapters
share one copy of the base: two policies and their reference, which is the base
itself, then fit where one full policy would.

Adapters are {projection: {"a": [L, in, R], "b": [L, R, out]}}, projections by
their names in Hugging Face files. Letters as in qwen.py; R rank; outputs of
q_proj lie as (k, g, h), those of k_proj and v_proj as (k, h).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models import layout, products
from codea1_jax.models.config import QwenConfig

Adapters = dict[str, dict[str, jax.Array]]

# Leaf of a layer -> the projections that it holds, in their order.
PARTS = {
  "qkv": ("q_proj", "k_proj", "v_proj"),
  "out": ("o_proj",),
  "gate_up": ("gate_proj", "up_proj"),
  "down": ("down_proj",),
}
TARGETS = tuple(name for names in PARTS.values() for name in names)
ATTENTION = PARTS["qkv"] + PARTS["out"]  # the others are the mlp's


@dataclasses.dataclass(frozen=True)
class LoraConfig:
  """Which projections are adapted, and how."""

  rank: int
  alpha: float
  targets: tuple[str, ...] = TARGETS

  def __post_init__(self):
    if self.rank < 1:
      raise ValueError(f"lora rank is {self.rank}, must be at least 1")
    unknown = sorted(set(self.targets) - set(TARGETS))
    twice = len(set(self.targets)) < len(self.targets)
    if unknown or twice or not self.targets:
      named = unknown or (self.targets if twice else ["(none)"])
      raise ValueError(
        f"lora targets {', '.join(named)}: choose of {', '.join(TARGETS)}, each"
        " once"
      )

  @property
  def scale(self) -> float:
    return self.alpha / self.rank


def projection_shapes(config: QwenConfig) -> dict[str, tuple[int, int]]:
  """(in, out) of every projection that may be adapted."""
  found = {}
  for name in TARGETS:
    out, size = _slot(config, name).shape
    found[name] = (size, out)
  return found


def _slot(config: QwenConfig, name: str) -> layout.Slot:
  """Where a projection lies in layer 0."""
  block = "self_attn" if name in ATTENTION else "mlp"
  return layout.slots(config)[f"model.layers.0.{block}.{name}.weight"]


def adapter_shapes(config: QwenConfig, lora: LoraConfig) -> dict[str, Any]:
  """The tree of adapter shapes."""
  depth = config.num_layers
  sizes = projection_shapes(config)
  return {
    name: {
      "a": (depth, sizes[name][0], lora.rank),
      "b": (depth, lora.rank, sizes[name][1]),
    }
    for name in lora.targets
  }


def init_adapters(
  config: QwenConfig, lora: LoraConfig, key: jax.Array, dtype="float32"
) -> Adapters:
  """Adapters that change nothing yet: A uniform within in^-1/2, B zero."""
  shapes = adapter_shapes(config, lora)
  adapters = {}
  for index, name in enumerate(sorted(shapes)):
    shape = shapes[name]
    bound = shape["a"][1] ** -0.5
    adapters[name] = {
      "a": jax.random.uniform(
        jax.random.fold_in(key, index), shape["a"], dtype, -bound, bound
      ),
      "b": jnp.zeros(shape["b"], dtype),
    }
  return adapters


def attach(params: dict, adapters: Adapters, lora: LoraConfig) -> dict:
  """Parameters that `qwen` runs with adapters; the base is not copied."""
  scaled = {
    name: {"a": part["a"], "b": part["b"] * lora.scale}
    for name, part in adapters.items()
  }
  return params | {"layers": params["layers"] | {"lora": scaled}}


def add(
  product: jax.Array, layer: dict, leaf: str, x: jax.Array, num_out: int
) -> jax.Array:
  """A layer's product with what its adapters add to it, in float32.

  Args:
    product: x times the matrix `leaf`, [..., *outputs].
    layer: one layer's parameters; without "lora" nothing is added.
    leaf: a key of PARTS.
    x: [..., in].
    num_out: axes of the outputs.
  """
  adapters = layer.get("lora", {})
  deltas = {
    name: _low_rank(x, adapters[name])
    for name in PARTS[leaf]
    if name in adapters
  }
  if not deltas:
    return product
  outputs = product.shape[product.ndim - num_out :]
  return product + _arrange(deltas, leaf, x.shape[:-1], outputs)


def _low_rank(x: jax.Array, part: dict[str, jax.Array]) -> jax.Array:
  """(x A) B, summed in float32, [..., out]."""
  inner = products.matmul(x, part["a"])
  return products.matmul(inner.astype(x.dtype), part["b"])


def _arrange(deltas, leaf: str, leading, outputs) -> jax.Array:
  """What each projection adds, laid out as the fused leaf's outputs."""
  if leaf == "qkv":  # [K, G + 2, H]
    kv_heads, bundle, head_dim = outputs
    sizes = {"q_proj": bundle - 2, "k_proj": 1, "v_proj": 1}
    shapes = {name: (kv_heads, n, head_dim) for name, n in sizes.items()}
  elif leaf == "gate_up":  # [2, F]
    shapes = {name: (1, outputs[1]) for name in PARTS[leaf]}
  else:
    (name,) = PARTS[leaf]
    return deltas[name].reshape(*leading, *outputs)
  return jnp.concatenate(
    [
      deltas[name].reshape(*leading, *shape)
      if name in deltas
      else jnp.zeros((*leading, *shape), jnp.float32)
      for name, shape in shapes.items()
    ],
    axis=-2,
  )


def merge(
  params: dict,
  config: QwenConfig,
  adapters: Adapters,
  lora: LoraConfig,
  dtype: str = "float32",
) -> dict:
  """Plain parameters that compute what base and adapters compute together.

  What adapters add is small beside the weights: where these are bfloat16, most
  of it would be rounded away. So matrices that change come in `dtype`.
  """
  layers = dict(params["layers"])
  for name, part in adapters.items():
    slot = _slot(config, name)
    leaf = slot.path[-1]
    delta = lora.scale * jnp.einsum(
      "lir,lro->lio",
      part["a"].astype(jnp.float32),
      part["b"].astype(jnp.float32),
      precision="highest",
    )
    delta = delta.reshape(config.num_layers, *slot.block[1:])
    weight = layers[leaf]
    old = lax.dynamic_slice(weight, slot.start, delta.shape)
    new = (old.astype(jnp.float32) + delta).astype(dtype)
    layers[leaf] = lax.dynamic_update_slice(
      weight.astype(dtype), new, slot.start
    )
  return params | {"layers": layers}
