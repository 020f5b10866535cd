"""Drawing completions: slots that begin, go on and are given to the next.

Letters of shapes: P prompts, N samples a prompt, C slots of W samples each
(rows B = C * W), L prompt tokens, T most new tokens, D hidden width. A slot
holds one prompt's cache and W of its samples, which begin together; when all
of them have ended it can be given to others while the rest goes on.
"""

import functools
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.drawing import NO_FILTERS, Filters, next_token
from codea1_jax.models import axes, decoding, qwen


class SampleOutput(NamedTuple):
  """What was drawn; after a row's end: pad, False and 0."""

  tokens: jax.Array  # [..., T] int32
  mask: jax.Array  # [..., T] bool, True for drawn tokens, the end token too
  log_probs: jax.Array  # [..., T] float32, at temperature 1, no filter


@flax.struct.dataclass
class Slots:
  """The decode batch. Rings hold the last T steps, written at clock % T."""

  clock: jax.Array  # [] int32, steps made
  start: jax.Array  # [C] int32, clock when the slot's samples began
  keys: jax.Array  # [C, W, 2] uint32, data of one PRNG key a sample
  limit: jax.Array  # [C, W] int32, most tokens of a sample, at most T
  length: jax.Array  # [C, W] int32, tokens drawn
  ended: jax.Array  # [C, W] bool, also where no sample is
  hidden: jax.Array  # [C, W, D], predicts the next token
  cache: decoding.Cache
  tokens: jax.Array  # [T, C, W] int32 ring
  log_probs: jax.Array  # [T, C, W] float32 ring


def row_keys(seed_key: jax.Array, ids: jax.Array) -> jax.Array:
  """One key a row from its id [B], so that no batch order matters."""
  return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(
    seed_key, jnp.asarray(ids, jnp.uint32)
  )


def _uniforms(keys_CW, steps_CW) -> jax.Array:
  """[C * W] numbers in [0, 1) from each row's key and own step only."""

  def one(key, step):
    key = jax.random.wrap_key_data(key)
    return jax.random.uniform(jax.random.fold_in(key, step))

  keys_B = keys_CW.reshape(-1, keys_CW.shape[-1])
  return jax.vmap(one)(keys_B, steps_CW.reshape(-1))


def empty_slots(
  config: qwen.QwenConfig,
  slots: int,
  width: int,
  *,
  prompt_length: int,
  max_new_tokens: int,
) -> Slots:
  """C slots of W samples in which nothing runs."""
  rows, ring = (slots, width), (max_new_tokens, slots, width)
  key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
  return Slots(
    clock=jnp.int32(0),
    start=jnp.zeros(slots, jnp.int32),
    keys=jnp.zeros((*rows, *key.shape), key.dtype),
    limit=jnp.zeros(rows, jnp.int32),
    length=jnp.zeros(rows, jnp.int32),
    ended=jnp.ones(rows, bool),
    hidden=jnp.zeros((*rows, config.hidden_size), config.dtype),
    cache=decoding.empty_cache(
      config, slots, width, prompt_length=prompt_length, ring=max_new_tokens
    ),
    tokens=jnp.zeros(ring, jnp.int32),
    log_probs=jnp.zeros(ring, jnp.float32),
  )


def admit(
  slots: Slots,
  prompts: decoding.Prompts,
  source: jax.Array,
  keys: jax.Array,
  limit: jax.Array,
  groups: int = 1,
) -> Slots:
  """Begins new samples in some of the slots.

  Args:
    slots: those taken must have ended; what they held is gone.
    prompts: from `decoding.prefill`, padded as the slots' are.
    source: [C] int32, which prompt a slot begins with; -1 leaves it alone.
    keys: [C, W, 2] uint32 key data.
    limit: [C, W] most new tokens; a sample with 0 is born ended, and so is
      one of a prompt without any valid token.
    groups: static; of slots and prompts, one after the other, when `source`
      counts within a slot's group.

  Returns:
    The slots.
  """
  taken, index = source >= 0, jnp.maximum(source, 0)

  def pick(new, old):
    where = taken.reshape((-1,) + (1,) * (old.ndim - 1))
    return jnp.where(where, new, old)

  held = jax.tree.map(
    lambda new, old: pick(axes.take(new, index, groups), old),
    prompts,
    slots.cache.prompts,
  )
  # A prompt of no token is a filler.
  used = axes.take(prompts.valid.any(-1), index, groups)
  limit = jnp.where(used[:, None], limit, 0)
  first = jnp.broadcast_to(held.hidden[:, None], slots.hidden.shape)
  return slots.replace(
    start=pick(slots.clock, slots.start),
    keys=pick(keys, slots.keys),
    limit=pick(limit, slots.limit),
    length=pick(0, slots.length),
    ended=pick(limit <= 0, slots.ended),
    hidden=pick(first, slots.hidden),
    cache=slots.cache.replace(prompts=held),
  )


def advance(
  params: qwen.Params,
  config: qwen.QwenConfig,
  slots: Slots,
  stop_at: jax.Array,
  *,
  temperature: jax.Array,
  filters: Filters,
  eos_ids: tuple[int, ...],
) -> Slots:
  """Draws until at most `stop_at` slots have a sample that goes on.

  Args:
    params: through `qwen.unstack`.
    config: the policy's shape.
    slots: the decode batch.
    stop_at: int32, scalar or of each of some groups of slots; 0 runs all
      samples to their end.
    temperature: scalar, 0 is greedy.
    filters: static.
    eos_ids: static; tokens that end a sample.

  Returns:
    The slots.
  """
  stops = jnp.asarray(eos_ids, jnp.int32)
  ring, shape = slots.tokens.shape[0], slots.ended.shape
  stop_at = jnp.atleast_1d(stop_at)

  def unfinished(slots):
    running = (~slots.ended).any(-1).reshape(len(stop_at), -1).sum(1)
    return (running > stop_at).any()

  def step(slots):
    place, going = slots.clock % ring, ~slots.ended
    hidden = slots.hidden.reshape(-1, config.hidden_size)
    logits = axes.constrain(qwen.logits(params, config, hidden), "rows", None)
    token, log_prob = next_token(
      logits,
      _uniforms(slots.keys, slots.length),
      temperature,
      filters,
      going.reshape(-1),
    )
    # An ended sample's ring stays as it is until somebody has read it.
    tokens, log_probs = (
      all.at[place].set(jnp.where(going, new.reshape(shape), all[place]))
      for all, new in ((slots.tokens, token), (slots.log_probs, log_prob))
    )
    length = slots.length + going
    stopped = (token[:, None] == stops[None, :]).any(-1).reshape(shape)
    hidden, cache = decoding.decode_step(
      params, config, token, slots.clock, slots.start, slots.cache
    )
    return slots.replace(
      clock=slots.clock + 1,
      length=length,
      ended=slots.ended | stopped | (length >= slots.limit),
      hidden=hidden.reshape(slots.hidden.shape),
      cache=cache,
      tokens=tokens,
      log_probs=log_probs,
    )

  return lax.while_loop(unfinished, step, slots)


def select(slots: Slots, chosen: jax.Array, groups: int = 1) -> Slots:
  """The slots at `chosen` [C'] only: a smaller batch for the last ones; of
  several groups as many each, counted within it."""
  width = slots.ended.shape[1]
  rows = (chosen[:, None] * width + jnp.arange(width)[None]).reshape(-1)
  cache = decoding.select(slots.cache, chosen, rows, groups)
  rings = {
    name: axes.take(getattr(slots, name), chosen, groups, axis=1)
    for name in ("tokens", "log_probs")
  }
  rest = slots.replace(clock=None, cache=None, tokens=None, log_probs=None)
  rest = jax.tree.map(lambda leaf: axes.take(leaf, chosen, groups), rest)
  return rest.replace(clock=slots.clock, cache=cache, **rings)


def collect(slots: Slots, pad_id: int) -> SampleOutput:
  """What every slot's samples have drawn so far: [C, W, T] arrays."""
  ring = slots.tokens.shape[0]
  steps = jnp.arange(ring)
  places = (slots.start[:, None] + steps[None]) % ring  # [C, T]

  def unroll(all):
    return jax.vmap(lambda column, place: column[place].T, (1, 0))(all, places)

  mask = steps[None, None] < slots.length[..., None]
  return SampleOutput(
    jnp.where(mask, unroll(slots.tokens), pad_id),
    mask,
    jnp.where(mask, unroll(slots.log_probs), 0.0),
  )


def _check(prompt_tokens, prompt_valid, keys, num_samples):
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


@functools.partial(
  jax.jit,
  static_argnames=(
    "config",
    "num_samples",
    "max_new_tokens",
    "filters",
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
  filters: Filters = NO_FILTERS,
  eos_ids: tuple[int, ...],
  pad_id: int,
  limit: jax.Array | None = None,
) -> SampleOutput:
  """Samples N completions of every prompt in one loop, all at once.

  A row depends on its key and its prompt, never on the rows beside it. A prompt
  without any valid token is a filler: its rows are born ended. For more rows
  than fit, see `generation.py`.

  Args:
    params: the policy.
    config: its shape.
    prompt_tokens: [P, L] int32, padded on any side.
    prompt_valid: [P, L] bool.
    row_keys: [P * N] PRNG keys, see `row_keys`.
    num_samples: N.
    max_new_tokens: T.
    temperature: scalar, 0 is greedy; not static, changing it costs nothing.
    filters: static; by default none.
    eos_ids: tokens that end a row.
    pad_id: fills rows after their end.
    limit: [P * N] most new tokens of each row; T where not given.

  Returns:
    SampleOutput of [P * N, T] arrays, row p * N + n.
  """
  _check(prompt_tokens, prompt_valid, row_keys, num_samples)
  count, length = prompt_tokens.shape
  rows = (count, num_samples)
  prompts = decoding.prefill(params, config, prompt_tokens, prompt_valid)
  params = qwen.unstack(params, config)
  slots = empty_slots(
    config, *rows, prompt_length=length, max_new_tokens=max_new_tokens
  )
  if limit is None:
    limit = jnp.full(rows, max_new_tokens)
  slots = admit(
    slots,
    prompts,
    jnp.arange(count),
    jax.random.key_data(row_keys).reshape(*rows, -1),
    jnp.minimum(limit, max_new_tokens).reshape(rows),
  )
  slots = advance(
    params,
    config,
    slots,
    jnp.int32(0),
    temperature=temperature,
    filters=filters,
    eos_ids=eos_ids,
  )
  output = collect(slots, pad_id)
  return jax.tree.map(lambda leaf: leaf.reshape(-1, max_new_tokens), output)
