"""Prompts into caches, then one token a row. Letters of `qwen.py`, and:

C slots of the decode batch, W samples a slot (rows B = C * W), R places of the
ring that holds the last R tokens of every row.
"""

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models import attention, axes, products, qwen


@flax.struct.dataclass
class Prompts:
  """What prefill leaves of each prompt; a tuple has an entry a layer.

  Keys lie transposed, so that a step's attention reads memory in order.
  """

  valid: jax.Array  # [P, S] bool
  hidden: jax.Array  # [P, D] at the last valid token, predicts the first new
  keys: tuple[jax.Array, ...]  # [P, K, H, S]
  values: tuple[jax.Array, ...]  # [P, K, S, H]


@flax.struct.dataclass
class Cache:
  """Keys and values of the slots: a prompt once for its W samples, and theirs.

  All rows write a step's token at one place of the ring, clock % R, wherever
  they are in their own completion: a contiguous update instead of a scatter,
  and a slot can begin anew while the others go on.
  """

  prompts: Prompts  # P = C
  keys: tuple[jax.Array, ...]  # [B, K, H, R]
  values: tuple[jax.Array, ...]  # [B, K, R, H]


def prefill(
  params: qwen.Params,
  config: qwen.QwenConfig,
  tokens: jax.Array,
  valid: jax.Array,
  *,
  micro_batch: int | None = None,
  groups: int = 1,
) -> Prompts:
  """Runs every prompt once, whatever the number of samples drawn from it.

  Args:
    params: parameters, stacked or through `unstack`.
    config: the decoder's shape.
    tokens: [P, S] int32 prompts, padded on any side.
    valid: [P, S] bool.
    micro_batch: prompts whose activations exist at a time; None for all.
    groups: of prompts, one after the other; a micro-batch is of each.

  Returns:
    What the samples of the prompts begin with.
  """

  def keep(k, v):
    return tuple(
      axes.constrain(x, "rows", "kv_heads", None, None)
      for x in (k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3))
    )

  def run(rows):
    tokens, valid = rows
    hidden, kept = qwen.forward(params, config, tokens, valid, keep)
    keys, values = zip(*kept, strict=True)
    last_P = valid.shape[1] - 1 - jnp.argmax(valid[:, ::-1], axis=1)
    hidden = jnp.take_along_axis(hidden, last_P[:, None, None], 1)[:, 0]
    return Prompts(valid, hidden, keys, values)

  count = len(tokens) // groups
  size = min(micro_batch or count, count)
  if size == count:
    return run((tokens, valid))

  def cut(x):
    x = x.reshape(groups, count, -1)
    x = jnp.pad(x, ((0, 0), (0, -count % size), (0, 0)))
    x = x.reshape(groups, -1, size, x.shape[-1]).swapaxes(0, 1)
    x = x.reshape(len(x), groups * size, -1)
    return axes.constrain(x, None, "rows", None)

  def join(x):
    rest = x.shape[2:]
    x = x.reshape(-1, groups, size, *rest).swapaxes(0, 1)
    x = x.reshape(groups, -1, *rest)[:, :count]
    return x.reshape(-1, *rest)

  return jax.tree.map(join, lax.map(run, (cut(tokens), cut(valid))))


def empty_cache(
  config: qwen.QwenConfig,
  slots: int,
  width: int,
  *,
  prompt_length: int,
  ring: int,
) -> Cache:
  """A cache of C slots of W samples, none of them in use."""
  dtype, depth = jnp.dtype(config.dtype), range(config.num_layers)
  heads, size = config.num_kv_heads, config.head_dim

  def zeros(count, *shape):
    return tuple(
      axes.constrain(
        jnp.zeros((count, heads, *shape), dtype),
        *("rows", "kv_heads", None, None),
      )
      for _ in depth
    )

  return Cache(
    Prompts(
      valid=jnp.zeros((slots, prompt_length), bool),
      hidden=jnp.zeros((slots, config.hidden_size), dtype),
      keys=zeros(slots, size, prompt_length),
      values=zeros(slots, prompt_length, size),
    ),
    keys=zeros(slots * width, size, ring),
    values=zeros(slots * width, ring, size),
  )


def select(
  cache: Cache, slots: jax.Array, rows: jax.Array, groups: int = 1
) -> Cache:
  """What belongs to some slots [C'], and to their rows [C' * W]; of several
  groups as many each, counted within it."""
  return Cache(
    jax.tree.map(lambda leaf: axes.take(leaf, slots, groups), cache.prompts),
    keys=tuple(axes.take(leaf, rows, groups) for leaf in cache.keys),
    values=tuple(axes.take(leaf, rows, groups) for leaf in cache.values),
  )


def _write(ring, value, place, axis):
  """The ring with a step's keys or values at its place."""
  dtype = ring.dtype
  if dtype == jnp.bfloat16:
    # XLA's CPU backend would convert the whole ring to float32 and back.
    ring, value = (
      lax.bitcast_convert_type(x, jnp.uint16) for x in (ring, value)
    )
  ring = lax.dynamic_update_index_in_dim(ring, value, place, axis)
  return lax.bitcast_convert_type(ring, dtype)


def _attend_cached(q_BKGH, prompt, own, prompt_bias_CS, own_bias_BR):
  """One softmax over a prompt's shared keys and a sample's own.

  The prompt's part is one matmul for all W samples of a slot.
  """
  (prompt_k, prompt_v), (own_k, own_v) = prompt, own
  B, K, G, _ = q_BKGH.shape
  C = len(prompt_k)

  def shared(x_BKGY):  # -> [C, K, W * G, Y]
    x = x_BKGY.reshape(C, -1, K, G, x_BKGY.shape[-1])
    return x.swapaxes(1, 2).reshape(C, K, -1, x.shape[-1])

  def split(x_CKMY):  # and back
    x = x_CKMY.reshape(C, K, -1, G, x_CKMY.shape[-1])
    return x.swapaxes(1, 2).reshape(B, K, G, -1)

  prompt_scores = products.einsum("CKMH,CKHS->CKMS", shared(q_BKGH), prompt_k)
  prompt_scores += prompt_bias_CS[:, None, None, :]
  own_scores = products.einsum("BKGH,BKHR->BKGR", q_BKGH, own_k)
  own_scores += own_bias_BR[:, None, None, :]
  top_own = own_scores.max(-1, keepdims=True)
  top = jnp.maximum(split(prompt_scores.max(-1, keepdims=True)), top_own)
  prompt_e, own_e = (
    jnp.exp(prompt_scores - shared(top)),
    jnp.exp(own_scores - top),
  )
  total = split(prompt_e.sum(-1, keepdims=True)) + own_e.sum(-1, keepdims=True)
  dtype = prompt_v.dtype
  mixed = products.einsum("CKMS,CKSH->CKMH", prompt_e.astype(dtype), prompt_v)
  own = products.einsum("BKGR,BKRH->BKGH", own_e.astype(dtype), own_v)
  return (split(mixed) + own) / total


def decode_step(
  params: qwen.Params,
  config: qwen.QwenConfig,
  token: jax.Array,
  clock: jax.Array,
  start: jax.Array,
  cache: Cache,
) -> tuple[jax.Array, Cache]:
  """Feeds one token of every row.

  Layers are unrolled whatever `scan_layers` says: threading the cache through
  a scan costs a third of the speed, and the loop's body compiles once.

  Args:
    params: parameters, best through `unstack` once before the loop.
    config: the decoder's shape.
    token: [C * W] int32, row c * W + w is sample w of slot c.
    clock: scalar int32, steps that the loop has made.
    start: [C] int32, the clock when the slot's samples began, at most R - 1
      ago; a token's position is its prompt's valid tokens + clock - start.
    cache: from the step before.

  Returns:
    Hidden states [C * W, D] to predict the next token, and the cache.
  """
  ring, valid = cache.values[0].shape[2], cache.prompts.valid
  width = len(token) // len(valid)
  place, age_C = clock % ring, clock - start
  age_B = jnp.repeat(age_C, width)
  lengths_C = valid.sum(axis=1, dtype=jnp.int32)
  rope = qwen.rope_tables(config, jnp.repeat(lengths_C, width) + age_B)
  age_R = (clock - jnp.arange(ring)) % ring
  own_bias = jnp.where(age_R[None] <= age_B[:, None], 0.0, attention.MASKED)
  bias = jnp.where(valid, 0.0, attention.MASKED), own_bias
  x_BD = qwen.embed(params, config, token)
  all_keys, all_values = [], []
  for index, layer in enumerate(qwen.layer_list(params, config)):
    q, k, v = qwen.project(config, layer, x_BD, rope)
    keys = _write(cache.keys[index], k, place, 3)
    values = _write(cache.values[index], v, place, 2)
    prompt = cache.prompts.keys[index], cache.prompts.values[index]
    mixed = _attend_cached(q, prompt, (keys, values), *bias)
    x_BD = qwen.finish(config, layer, x_BD, mixed)
    all_keys.append(keys)
    all_values.append(values)
  hidden = qwen.norm(x_BD, params["final_norm"], config.rms_norm_eps)
  return hidden.astype(config.dtype), cache.replace(
    keys=tuple(all_keys), values=tuple(all_values)
  )
