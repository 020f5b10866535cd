"""Decoder of the Qwen2, Qwen2.5 and Qwen3 families: params in, arrays out.

Letters of shapes and einsums in this file:
  B rows            D hidden width      K key/value heads
  T query tokens    F mlp width         G query heads per key/value head
  S key tokens      V vocabulary        H width of a head
  L layers          P prompts           N samples per prompt (B = P * N)

Parameters (layers stacked in front, so that one file serves scan and loop):
  embedding [V, D]; head [V, D] unless tied; final_norm [D]; layers:
    attention_norm [L, D]        mlp_norm [L, D]
    qkv [L, D, K, G + 2, H]      gate_up [L, D, 2, F]
    qkv_bias [L, K, G + 2, H]    down [L, F, D]
    out [L, K, G, H, D]          q_norm, k_norm [L, H] (Qwen3)
Projections are fused by key/value head: its G queries, its key, its value.
One matmul instead of three, and a mesh can still cut them along K and F.
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models import attention, axes, lora, products, rope
from codea1_jax.models.config import QwenConfig

Params = dict[str, Any]

_MATRICES = ("qkv", "out", "gate_up", "down")  # of a layer


def param_shapes(config: QwenConfig) -> Params:
  """The tree of parameter shapes (the table at the top of the file)."""
  width, heads = config.hidden_size, config.num_kv_heads
  group, depth = config.num_heads // heads, config.num_layers
  layers = {
    "attention_norm": (depth, width),
    "qkv": (depth, width, heads, group + 2, config.head_dim),
    "out": (depth, heads, group, config.head_dim, width),
    "mlp_norm": (depth, width),
    "gate_up": (depth, width, 2, config.intermediate_size),
    "down": (depth, config.intermediate_size, width),
  }
  if config.qkv_bias:
    layers["qkv_bias"] = (depth, heads, group + 2, config.head_dim)
  if config.qk_norm:
    layers |= {name: (depth, config.head_dim) for name in ("q_norm", "k_norm")}
  shapes = {
    "embedding": (config.vocab_size, width),
    "final_norm": (width,),
    "layers": layers,
  }
  if not config.tie_word_embeddings:
    shapes["head"] = (config.vocab_size, width)
  return shapes


def _initializer(name: str, config: QwenConfig):
  """Scaled by fan-in; what writes to the residual stream, by depth too."""
  width, inner = config.hidden_size, config.num_heads * config.head_dim
  depth = (2 * config.num_layers) ** -0.5
  stddev = {
    "embedding": 0.02,
    "head": 0.02,
    "qkv": width**-0.5,
    "out": inner**-0.5 * depth,
    "gate_up": width**-0.5,
    "down": config.intermediate_size**-0.5 * depth,
  }
  if name.endswith("norm"):
    return nn.initializers.ones
  if name == "qkv_bias":
    return nn.initializers.zeros
  return nn.initializers.normal(stddev[name])


class Qwen(nn.Module):
  """Declares the parameters; calling it gives float32 logits [B, T, V]."""

  config: QwenConfig

  @nn.compact
  def __call__(self, tokens: jax.Array, valid: jax.Array) -> jax.Array:
    dtype = jnp.dtype(self.config.param_dtype)

    def declare(name, shape):
      return self.param(name, _initializer(name, self.config), shape, dtype)

    def declare_layers(key, shapes):
      return {
        name: _initializer(name, self.config)(
          jax.random.fold_in(key, index), shape, dtype
        )
        for index, (name, shape) in enumerate(sorted(shapes.items()))
      }

    shapes = param_shapes(self.config)
    layers = self.param("layers", declare_layers, shapes.pop("layers"))
    params = {name: declare(name, shape) for name, shape in shapes.items()}
    params["layers"] = layers
    hidden = hidden_states(params, self.config, tokens, valid)
    return logits(params, self.config, hidden)


@functools.partial(jax.jit, static_argnames="config")
def init_params(config: QwenConfig, rng: jax.Array) -> Params:
  """Random parameters, in `config.param_dtype`."""
  tokens, valid = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool)
  return Qwen(config).init(rng, tokens, valid)["params"]


def embed(params: Params, config: QwenConfig, tokens: jax.Array) -> jax.Array:
  """tokens [B, ...] -> [B, ..., D] in the compute dtype."""
  table_VD = axes.constrain(params["embedding"], "vocab", None)
  x = table_VD[tokens].astype(config.dtype)
  return axes.constrain(x, "rows", *[None] * tokens.ndim)


def norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
  """x / rms(x) * scale over the last axis, in float32."""
  x32 = x.astype(jnp.float32)
  mean_square = jnp.mean(x32 * x32, axis=-1, keepdims=True)
  scale = scale.astype(jnp.float32)
  scale = scale.reshape((1,) * (x.ndim - scale.ndim) + scale.shape)
  return x32 * lax.rsqrt(mean_square + eps) * scale


def rope_tables(config: QwenConfig, positions: jax.Array):
  """Scaled cos and sin of position * frequency, positions + [H / 2]."""
  by_pair = rope.frequencies(
    config.head_dim, config.rope_theta, config.rope_scaling
  )
  by_pair = by_pair.reshape((1,) * positions.ndim + by_pair.shape)
  angles = positions[..., None].astype(jnp.float32) * by_pair
  scale = rope.attention_scale(config.rope_scaling)
  return jnp.cos(angles) * scale, jnp.sin(angles) * scale


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
  """Rotates the pairs (i, i + H / 2) of x [..., K, heads, H]."""
  cos, sin = cos[..., None, None, :], sin[..., None, None, :]
  first, second = jnp.split(x, 2, axis=-1)
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )


def project(config: QwenConfig, layer: Params, x: jax.Array, tables):
  """x [..., D] -> scaled queries [..., K, G, H], keys, values [..., K, H]."""
  dtype = jnp.dtype(config.dtype)
  normed = norm(x, layer["attention_norm"], config.rms_norm_eps).astype(dtype)
  qkv = products.matmul(normed, layer["qkv"])
  qkv = lora.add(qkv, layer, "qkv", normed, num_out=3)
  if config.qkv_bias:
    bias = layer["qkv_bias"].astype(jnp.float32)
    qkv += bias.reshape((1,) * (qkv.ndim - bias.ndim) + bias.shape)
  qk, v = qkv[..., :-1, :], qkv[..., -1, :]
  if config.qk_norm:
    group = config.num_heads // config.num_kv_heads
    scale = jnp.stack([layer["q_norm"]] * group + [layer["k_norm"]])
    qk = norm(qk, scale, config.rms_norm_eps)
  qk = rotate(qk, *tables)
  q = qk[..., :-1, :] * config.head_dim**-0.5
  return q.astype(dtype), qk[..., -1, :].astype(dtype), v.astype(dtype)


def finish(config: QwenConfig, layer: Params, x: jax.Array, mixed: jax.Array):
  """Output projection of mixed [..., K, G, H] and the gated mlp."""
  dtype = jnp.dtype(config.dtype)
  mixed = mixed.astype(dtype).reshape(x.shape[:-1] + (-1,))
  attended = products.matmul(mixed, layer["out"], num_in=3)
  attended = lora.add(attended, layer, "out", mixed, num_out=1)
  x = x + attended.astype(dtype)
  normed = norm(x, layer["mlp_norm"], config.rms_norm_eps).astype(dtype)
  gate_up = products.matmul(normed, layer["gate_up"])
  gate_up = lora.add(gate_up, layer, "gate_up", normed, num_out=2)
  inner = jax.nn.silu(gate_up[..., 0, :]) * gate_up[..., 1, :]
  inner = inner.astype(dtype)
  down = products.matmul(inner, layer["down"])
  return x + lora.add(down, layer, "down", inner, num_out=1).astype(dtype)


def layer_list(params: Params, config: QwenConfig) -> tuple[Params, ...]:
  """One dict a layer, from the stacked arrays or as `unstack` left them."""
  layers = params["layers"]
  if isinstance(layers, tuple):
    return layers
  return tuple(
    jax.tree.map(lambda leaf: leaf[index], layers)  # noqa: B023
    for index in range(config.num_layers)
  )


def unstack(params: Params, config: QwenConfig, by_rows: bool = True) -> Params:
  """Parameters for a decode loop: a dict a layer, matrices in compute dtype
  and, if `by_rows`, as `products.OutputRows`.

  Done once before the loop, or every step would convert and slice them again.
  """

  def convert(name, value):
    if name.endswith("norm"):
      return value
    return jax.tree.map(lambda leaf: leaf.astype(config.dtype), value)

  def arrange(name, value):
    value = convert(name, value)
    if by_rows and name in _MATRICES:
      return products.output_rows(name, value)
    return value

  layers = tuple(
    {name: arrange(name, value) for name, value in layer.items()}
    for layer in layer_list(params, config)
  )
  rest = {k: convert(k, v) for k, v in params.items() if k != "layers"}
  return rest | {"layers": layers}


def _rematerialized(apply, remat: str):
  """A layer whose backward pass keeps what `remat` of the config says."""
  if remat == "none":
    return apply
  policies = jax.checkpoint_policies
  keep = {
    "full": policies.nothing_saveable,
    "dots": policies.dots_saveable,
    "dots_no_batch": policies.dots_with_no_batch_dims_saveable,
  }
  return jax.checkpoint(apply, policy=keep[remat])


def _positions(valid_BT, segments_BT, slots=None):
  """Of valid tokens within their row, or within their segment of it; in slots
  they go on from those of the shared prefix."""
  if slots is not None:
    prefix, slot = slots
    first_BT = _positions(valid_BT[:, :prefix], None)
    rest = (x[:, prefix:].reshape(-1, slot) for x in (valid_BT, segments_BT))
    rest_BT = _positions(*rest).reshape(valid_BT.shape[0], -1)
    shared_B1 = valid_BT[:, :prefix].sum(1, keepdims=True)
    return jnp.concatenate([first_BT, shared_B1 + rest_BT], axis=1)
  positions_BT = jnp.maximum(jnp.cumsum(valid_BT, axis=1) - 1, 0)
  if segments_BT is None:
    return positions_BT
  # Padding may end a row: it begins a segment too, and nobody looks at it.
  begins_BT = jnp.diff(segments_BT, axis=1, prepend=-1) != 0
  first_BT = jnp.where(begins_BT, positions_BT, 0)
  return positions_BT - lax.cummax(first_BT, axis=1)


def forward(params, config, tokens, valid, keep, segments=None, slots=None):
  """All tokens at once; `keep(k, v)` picks what each layer leaves behind."""
  tables = rope_tables(config, _positions(valid, segments, slots))

  def apply(x_BTD, layer):
    q, k, v = project(config, layer, x_BTD, tables)
    if slots is None:
      mixed = attention.attend(q, k, v, valid, segments)
    else:
      mixed = attention.attend_slots(q, k, v, valid, segments, *slots)
    x_BTD = finish(config, layer, x_BTD, mixed)
    return axes.constrain(x_BTD, "rows", None, None), keep(k, v)

  apply = _rematerialized(apply, config.remat)
  x_BTD = embed(params, config, tokens)
  if config.scan_layers and not isinstance(params["layers"], tuple):
    x_BTD, kept = lax.scan(apply, x_BTD, params["layers"])
    kept = [
      jax.tree.map(lambda leaf: leaf[index], kept)  # noqa: B023
      for index in range(config.num_layers)
    ]
  else:
    kept = []
    for layer in layer_list(params, config):
      x_BTD, left = apply(x_BTD, layer)
      kept.append(left)
  hidden = norm(x_BTD, params["final_norm"], config.rms_norm_eps)
  return hidden.astype(config.dtype), kept


def hidden_states(
  params: Params,
  config: QwenConfig,
  tokens: jax.Array,
  valid: jax.Array,
  segments: jax.Array | None = None,
  slots: tuple[int, int] | None = None,
) -> jax.Array:
  """Causal forward pass up to the final norm.

  Padding may stand anywhere: positions count valid tokens only, and no token
  looks at an invalid one, so a padded row equals the row alone. Nor does one
  look out of its segment, where positions begin anew: of several sequences in
  a row each equals itself alone.

  Args:
    params: as `init_params` or `convert.load_pretrained` give them.
    config: the decoder's shape.
    tokens: [B, T] int32.
    valid: [B, T] bool, False at padding.
    segments: [B, T] int32, one number for the tokens of a sequence, which
      follow each other; None where a row is one sequence.
    slots: (P, U) of rows whose first P tokens begin every one of its sequences,
      which stand in slots of U tokens behind them; `segments` tells those of a
      slot apart.

  Returns:
    [B, T, D] in `config.dtype`; arbitrary (finite) at invalid places.
  """
  return forward(
    params, config, tokens, valid, lambda k, v: None, segments, slots
  )[0]


def head_matrix(params: Params, config: QwenConfig) -> jax.Array:
  """The output matrix as [V, D]: logits = hidden @ head_matrix.T."""
  return params["embedding" if config.tie_word_embeddings else "head"]


def logits(params: Params, config: QwenConfig, hidden: jax.Array) -> jax.Array:
  """hidden [..., D] -> float32 logits [..., V]."""
  head_VD = head_matrix(params, config).astype(hidden.dtype)
  return products.by_rows(hidden, head_VD)
