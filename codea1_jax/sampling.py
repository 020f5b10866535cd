"""Drawing completions: one prefill a prompt, then one loop for all samples.

Letters of shapes: P prompts, N samples a prompt, B = P * N rows (row p * N + n
is sample n of prompt p), L prompt tokens, T new tokens, V vocabulary.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models import decoding, qwen

_BLOCK = 128  # tokens a block in the two-level search of `draw`


class SampleOutput(NamedTuple):
  """What the loop wrote; after a row's end: pad, False and 0."""

  tokens: jax.Array  # [B, T] int32
  mask: jax.Array  # [B, T] bool, True for sampled tokens, the end token too
  log_probs: jax.Array  # [B, T] float32, policy at temperature 1, no truncation


def row_keys(seed_key: jax.Array, ids: jax.Array) -> jax.Array:
  """One key a row from its id [B], so that no batch order matters."""
  return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(
    seed_key, jnp.asarray(ids, jnp.uint32)
  )


def _uniforms(keys: jax.Array, length: int) -> jax.Array:
  """[T, B] numbers in [0, 1): one a step and row, from the row's key only."""

  def row(key):
    steps = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(
      key, jnp.arange(length, dtype=jnp.uint32)
    )
    return jax.vmap(jax.random.uniform)(steps)

  return jax.vmap(row)(keys).T


def _first_beyond(weights: jax.Array, mass: jax.Array):
  """Where the running sum of weights [B, M] first exceeds mass [B].

  Only places with weight count: rounding can never pick an impossible one.

  Returns:
    The index [B] and the mass that is left inside that place [B].
  """
  sums = jnp.cumsum(weights, axis=-1)
  beyond = (sums > mass[:, None]) & (weights > 0)
  index = jnp.where(
    beyond.any(-1), jnp.argmax(beyond, -1), jnp.argmax(weights, -1)
  )
  before = jnp.take_along_axis(sums - weights, index[:, None], 1)[:, 0]
  return index, jnp.maximum(mass - before, 0.0)


def draw(weights: jax.Array, uniform: jax.Array) -> jax.Array:
  """Inverse cdf: index i with probability weights[i] / sum(weights).

  In two levels (a block, then a place in it), since a running sum over a whole
  vocabulary costs more than everything else in the draw.

  Args:
    weights: [B, V] float32, not negative, not all zero.
    uniform: [B] in [0, 1).

  Returns:
    [B] int32.
  """
  rows, size = weights.shape
  block = min(_BLOCK, size)
  weights = jnp.pad(weights, ((0, 0), (0, -size % block)))
  blocks = weights.reshape(rows, -1, block)
  sums = blocks.sum(-1)
  outer, rest = _first_beyond(sums, uniform * sums.sum(-1))
  chosen = jnp.take_along_axis(blocks, outer[:, None, None], 1)[:, 0]
  inner, _ = _first_beyond(chosen, rest)
  return (outer * block + inner).astype(jnp.int32)


def _truncated_draw(scaled, uniform, top_k: int, top_p: float) -> jax.Array:
  """Draws from the top_k logits, of these from the smallest top_p nucleus."""
  size = scaled.shape[-1]
  values, order = lax.top_k(scaled, min(top_k or size, size))
  probs = jax.nn.softmax(values, axis=-1)
  before = jnp.cumsum(probs, axis=-1) - probs
  # The first token stays however small top_p is.
  inside = (before < top_p).at[:, 0].set(True)
  rank = draw(jnp.where(inside, probs, 0.0), uniform)
  return jnp.take_along_axis(order, rank[:, None], 1)[:, 0].astype(jnp.int32)


def next_token(
  logits: jax.Array,
  uniform: jax.Array,
  temperature: jax.Array,
  *,
  top_p: float = 1.0,
  top_k: int = 0,
) -> tuple[jax.Array, jax.Array]:
  """Draws one token a row.

  Args:
    logits: [B, V] float32.
    uniform: [B] in [0, 1).
    temperature: scalar; 0 takes the most likely token.
    top_p: mass of the nucleus to draw from, 1 for everything.
    top_k: how many tokens to draw from, 0 for everything.

  Returns:
    Tokens [B] int32, and log softmax(logits)[token] [B]: the policy's own
    probability, before temperature and truncation.
  """
  top = logits.max(-1, keepdims=True)
  log_total = jnp.log(jnp.exp(logits - top).sum(-1))

  def greedy():
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)

  def random():
    scaled = (logits - top) / jnp.maximum(temperature, 1e-6)
    if top_p < 1.0 or top_k > 0:
      return _truncated_draw(scaled, uniform, top_k, top_p)
    return draw(jnp.exp(scaled), uniform)

  token = lax.cond(temperature > 0, random, greedy)
  chosen = jnp.take_along_axis(logits - top, token[:, None], 1)[:, 0]
  return token, chosen - log_total


def _last_valid(hidden: jax.Array, valid: jax.Array) -> jax.Array:
  """hidden [P, L, D] at each prompt's last valid token, wherever that is."""
  last_P = valid.shape[1] - 1 - jnp.argmax(valid[:, ::-1], axis=1)
  return jnp.take_along_axis(hidden, last_P[:, None, None], 1)[:, 0]


def _blank(length: int, rows: int, pad_id: int):
  """Tokens, mask and log-probs of rows that have not begun, time first."""
  shape = (length, rows)
  tokens = jnp.full(shape, pad_id, jnp.int32)
  return tokens, jnp.zeros(shape, bool), jnp.zeros(shape, jnp.float32)


def _check(prompt_tokens, prompt_valid, keys, num_samples, top_p, top_k):
  """Names what does not fit, before anything compiles."""
  if prompt_tokens.shape != prompt_valid.shape:
    raise ValueError(
      f"prompt_tokens has shape {prompt_tokens.shape}, prompt_valid"
      f" {prompt_valid.shape}"
    )
  if len(keys) != len(prompt_tokens) * num_samples:
    raise ValueError(
      f"{len(keys)} row_keys for {len(prompt_tokens)} prompts x"
      f" {num_samples} samples"
    )
  if not 0.0 < top_p <= 1.0 or top_k < 0:
    raise ValueError(
      f"top_p must be in (0, 1] and top_k at least 0, got {top_p}, {top_k}"
    )


@functools.partial(
  jax.jit,
  static_argnames=(
    "config",
    "num_samples",
    "max_new_tokens",
    "top_p",
    "top_k",
    "eos_ids",
    "pad_id",
  ),
)
def sample(
  params: qwen.Params,
  config: qwen.QwenConfig,
  prompt_tokens: jax.Array,
  prompt_valid: jax.Array,
  row_keys: jax.Array,
  *,
  num_samples: int,
  max_new_tokens: int,
  temperature: jax.Array | float = 1.0,
  top_p: float = 1.0,
  top_k: int = 0,
  eos_ids: tuple[int, ...],
  pad_id: int,
) -> SampleOutput:
  """Samples N completions of every prompt; stops once all rows have ended.

  A row depends on its key and its prompt, never on the rows beside it. A prompt
  without any valid token is a filler: its rows are born ended.

  Args:
    params: the policy.
    config: its shape.
    prompt_tokens: [P, L] int32, padded on any side.
    prompt_valid: [P, L] bool.
    row_keys: [P * N] PRNG keys, see `row_keys`.
    num_samples: N.
    max_new_tokens: T.
    temperature: scalar, 0 is greedy; not static, changing it costs nothing.
    top_p: static, 1 for the whole distribution (training needs that).
    top_k: static, 0 for the whole vocabulary.
    eos_ids: tokens that end a row.
    pad_id: fills rows after their end.

  Returns:
    SampleOutput of [P * N, T] arrays, row p * N + n.
  """
  _check(prompt_tokens, prompt_valid, row_keys, num_samples, top_p, top_k)
  uniforms_TB = _uniforms(row_keys, max_new_tokens)
  decode_params = qwen.unstack(params, config)
  hidden, cache = decoding.prefill(
    params if config.scan_layers else decode_params,
    config,
    prompt_tokens,
    prompt_valid,
    num_samples=num_samples,
    cache_length=max_new_tokens,
  )
  stops = jnp.asarray(eos_ids, jnp.int32)

  def unfinished(carry):
    step, _, ended, _, _ = carry
    return (step < max_new_tokens) & ~ended.all()

  def advance(carry):
    step, hidden, ended, cache, output = carry
    token, log_prob = next_token(
      qwen.logits(decode_params, config, hidden),
      uniforms_TB[step],
      temperature,
      top_p=top_p,
      top_k=top_k,
    )
    token = jnp.where(ended, pad_id, token)
    written = token, ~ended, jnp.where(ended, 0.0, log_prob)
    output = jax.tree.map(
      lambda all, new: all.at[step].set(new), output, written
    )
    ended = ended | (token[:, None] == stops[None, :]).any(-1)
    hidden, cache = decoding.decode_step(
      decode_params, config, token, step, cache
    )
    return step + 1, hidden, ended, cache, output

  start = (
    jnp.int32(0),
    jnp.repeat(_last_valid(hidden, prompt_valid), num_samples, axis=0),
    jnp.repeat(~prompt_valid.any(-1), num_samples),
    cache,
    _blank(max_new_tokens, len(row_keys), pad_id),
  )
  output = lax.while_loop(unfinished, advance, start)[-1]
  return SampleOutput(*(leaf.T for leaf in output))
