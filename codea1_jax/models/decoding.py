"""Prompts into a cache, then one token a row. Letters of `qwen.py`."""

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models import qwen


@flax.struct.dataclass
class Cache:
  """Keys and values of a decode loop, a tuple entry a layer.

  A prompt's part is stored once for all its samples. Keys lie transposed and
  slots are innermost rows, so that a step's attention reads memory in order.
  """

  prompt_valid: jax.Array  # [P, S] bool
  prompt_keys: tuple[jax.Array, ...]  # [P, K, H, S]
  prompt_values: tuple[jax.Array, ...]  # [P, K, S, H]
  keys: tuple[jax.Array, ...]  # [P, K, N, H, T], slot t: t-th sampled token
  values: tuple[jax.Array, ...]  # [P, K, N, T, H]


def prefill(
  params: qwen.Params,
  config: qwen.QwenConfig,
  tokens: jax.Array,
  valid: jax.Array,
  *,
  num_samples: int = 1,
  cache_length: int,
) -> tuple[jax.Array, Cache]:
  """Runs the prompts once, whatever the number of samples drawn from them.

  Args:
    params: parameters, stacked or through `unstack`.
    config: the decoder's shape.
    tokens: [P, S] int32 prompts, padded on any side.
    valid: [P, S] bool.
    num_samples: N, continuations of each prompt.
    cache_length: slots for sampled tokens, prompt excluded.

  Returns:
    Hidden states [P, S, D], and the cache for `decode_step`.
  """

  def keep(k, v):
    return k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)

  hidden, kept = qwen.forward(params, config, tokens, valid, keep)
  keys, values = zip(*kept, strict=True)
  shape = (len(tokens), config.num_kv_heads, num_samples)
  sizes = (config.head_dim, cache_length)
  dtype, depth = jnp.dtype(config.dtype), range(config.num_layers)
  return hidden, Cache(
    prompt_valid=valid,
    prompt_keys=keys,
    prompt_values=values,
    keys=tuple(jnp.zeros(shape + sizes, dtype) for _ in depth),
    values=tuple(jnp.zeros(shape + sizes[::-1], dtype) for _ in depth),
  )


def _attend_cached(q_PKNGH, prompt, own, prompt_valid, step):
  """One softmax over a prompt's shared keys and a sample's own."""
  (prompt_k, prompt_v), (own_k, own_v) = prompt, own
  prompt_scores = qwen.einsum("PKNGH,PKHS->PKNGS", q_PKNGH, prompt_k)
  own_scores = qwen.einsum("PKNGH,PKNHT->PKNGT", q_PKNGH, own_k)
  prompt_bias = jnp.where(prompt_valid, 0.0, qwen.MASKED)
  prompt_scores += prompt_bias[:, None, None, None, :]
  written = jnp.arange(own_k.shape[-1]) <= step
  own_bias = jnp.where(written, 0.0, qwen.MASKED)
  own_scores += own_bias[None, None, None, None, :]
  top = jnp.maximum(
    prompt_scores.max(-1, keepdims=True), own_scores.max(-1, keepdims=True)
  )
  prompt_e, own_e = jnp.exp(prompt_scores - top), jnp.exp(own_scores - top)
  total = prompt_e.sum(-1, keepdims=True) + own_e.sum(-1, keepdims=True)
  dtype = prompt_v.dtype
  mixed = qwen.einsum("PKNGS,PKSH->PKNGH", prompt_e.astype(dtype), prompt_v)
  mixed += qwen.einsum("PKNGT,PKNTH->PKNGH", own_e.astype(dtype), own_v)
  return mixed / total


def decode_step(
  params: qwen.Params,
  config: qwen.QwenConfig,
  token: jax.Array,
  step: jax.Array,
  cache: Cache,
) -> tuple[jax.Array, Cache]:
  """Feeds the step-th sampled token of every row.

  Layers are unrolled whatever `scan_layers` says: threading the cache through
  a scan costs a third of the speed, and the loop's body compiles once.

  Args:
    params: parameters, best through `unstack` once before the loop.
    config: the decoder's shape.
    token: [P * N] int32, row p * N + n is sample n of prompt p.
    step: scalar int32, the token's slot; its position is the prompt's number
      of valid tokens + step.
    cache: from `prefill`, then from the step before.

  Returns:
    Hidden states [P * N, D] to predict the next token, and the cache.
  """
  num_samples = cache.keys[0].shape[2]
  prompts = (-1, num_samples)
  positions_P = cache.prompt_valid.sum(axis=1, dtype=jnp.int32) + step
  rope = qwen.rope_tables(config, jnp.repeat(positions_P, num_samples))
  x_BD = params["embedding"][token].astype(config.dtype)
  all_keys, all_values = [], []
  for index, layer in enumerate(qwen.layer_list(params, config)):
    q, k, v = qwen.project(config, layer, x_BD, rope)
    q = q.reshape(prompts + q.shape[1:]).transpose(0, 2, 1, 3, 4)
    k = k.reshape(prompts + k.shape[1:]).transpose(0, 2, 1, 3)
    v = v.reshape(prompts + v.shape[1:]).transpose(0, 2, 1, 3)
    keys = lax.dynamic_update_index_in_dim(cache.keys[index], k, step, 4)
    values = lax.dynamic_update_index_in_dim(cache.values[index], v, step, 3)
    prompt = cache.prompt_keys[index], cache.prompt_values[index]
    mixed = _attend_cached(q, prompt, (keys, values), cache.prompt_valid, step)
    mixed = mixed.transpose(0, 2, 1, 3, 4).reshape(len(token), -1)
    x_BD = qwen.finish(config, layer, x_BD, mixed)
    all_keys.append(keys)
    all_values.append(values)
  hidden = qwen.norm(x_BD, params["final_norm"], config.rms_norm_eps)
  return hidden.astype(config.dtype), cache.replace(
    keys=tuple(all_keys), values=tuple(all_values)
  )
