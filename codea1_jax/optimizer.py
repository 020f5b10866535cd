"""AdamW with warm-up, as both policies use it."""

import jax
import jax.numpy as jnp
import optax
from jax import lax

SCHEDULES = ("cosine", "constant")
MOMENT_DTYPES = ("float32", "bfloat16")
_UNDECAYED = ("norm", "bias", "scale")


def make_schedule(
  *,
  learning_rate: float,
  warmup_steps: int,
  total_steps: int,
  schedule: str = "cosine",
) -> optax.Schedule:
  """Learning rate of an update, counted from 0.

  Warm-up is lr * (update + 1) / warmup_steps, so that no update is wasted on a
  rate of 0; then constant, or half a cosine that ends at 0 in `total_steps`.

  Raises:
    ValueError: unknown schedule, or a warm-up as long as the cosine's run.
  """
  if schedule not in SCHEDULES:
    raise ValueError(f"schedule {schedule!r} is not one of {SCHEDULES}")
  if schedule == "constant":
    after = optax.constant_schedule(learning_rate)
  elif total_steps > warmup_steps:
    after = optax.cosine_decay_schedule(
      learning_rate, total_steps - warmup_steps
    )
  else:
    raise ValueError(
      f"cosine schedule: total_steps {total_steps} <= warmup_steps "
      f"{warmup_steps}"
    )
  if not warmup_steps:
    return after
  warmup = optax.linear_schedule(
    learning_rate / warmup_steps,
    learning_rate * (1 + 1 / warmup_steps),
    warmup_steps,
  )
  return optax.join_schedules([warmup, after], [warmup_steps])


def make_optimizer(
  *,
  learning_rate: float = 1e-6,
  warmup_steps: int = 10,
  total_steps: int = 1000,
  schedule: str = "cosine",
  weight_decay: float = 0.1,
  grad_clip: float = 1.0,
  b1: float = 0.9,
  b2: float = 0.999,
  eps: float = 1e-8,
  moment_dtype: str = "float32",
) -> optax.GradientTransformation:
  """Clip by global norm, then AdamW (arXiv 1711.05101) on the schedule.

  Args:
    learning_rate: peak rate.
    warmup_steps: updates until the peak.
    total_steps: updates of the whole run; the cosine ends there.
    schedule: "cosine" or "constant".
    weight_decay: decoupled decay, of matrices only: norms and biases keep 0.
    grad_clip: largest global gradient norm; 0 for none.
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added to the root of the second moment.
    moment_dtype: both moments are stored in it, see `scale_by_adam`.

  Returns:
    An optax transformation; `make_schedule` with the same arguments is its
    learning rate.

  Raises:
    ValueError: unknown schedule or moment_dtype, or a warm-up as long as the
      cosine's run.
  """
  rate = make_schedule(
    learning_rate=learning_rate,
    warmup_steps=warmup_steps,
    total_steps=total_steps,
    schedule=schedule,
  )
  return optax.chain(
    optax.clip_by_global_norm(grad_clip) if grad_clip else optax.identity(),
    optax.chain(
      scale_by_adam(b1, b2, eps, moment_dtype),
      optax.add_decayed_weights(weight_decay, decay_mask),
      optax.scale_by_learning_rate(rate),
    ),
  )


def scale_by_adam(
  b1: float, b2: float, eps: float, moment_dtype: str = "float32"
) -> optax.GradientTransformation:
  """Adam (arXiv 1412.6980) whose moments are stored in `moment_dtype`.

  Moments are computed in float32. bfloat16 has 8 bits, and an update changes a
  moment by a share of 1 - b2, e.g. 1/1000: rounded to the nearest it would
  never move. So they are rounded at random, right on average, and by the number
  of the update alone: a run that resumes draws the same.

  Raises:
    ValueError: a dtype that is not one of MOMENT_DTYPES.
  """
  if moment_dtype not in MOMENT_DTYPES:
    raise ValueError(
      f"moment_dtype {moment_dtype!r} is not one of {MOMENT_DTYPES}"
    )
  adam = optax.scale_by_adam(b1, b2, eps)
  if moment_dtype == "float32":
    return adam

  def init(params):
    return _cast_moments(adam.init(params), moment_dtype)

  def update(grads, state, params=None):
    wide = _cast_moments(state, "float32")
    updates, wide = adam.update(grads, wide, params)
    return updates, _round_moments(wide)

  return optax.GradientTransformation(init, update)


def _cast_moments(state, dtype):
  mu, nu = jax.tree.map(lambda x: x.astype(dtype), (state.mu, state.nu))
  return state._replace(mu=mu, nu=nu)


def _round_moments(state):
  """Both to bfloat16; one draw of 32 bits serves the two of a parameter."""
  key = jax.random.fold_in(jax.random.key(0), state.count)
  mu, tree = jax.tree.flatten(state.mu)
  nu = jax.tree.leaves(state.nu)
  for index, leaf in enumerate(mu):
    seeds = jax.random.bits(jax.random.fold_in(key, index), (2,))
    bits = _random_bits(leaf.shape, *seeds)
    mu[index] = round_at_random(leaf, bits & 0xFFFF)
    nu[index] = round_at_random(nu[index], bits >> 16)
  return state._replace(mu=tree.unflatten(mu), nu=tree.unflatten(nu))


def _random_bits(shape, *seeds) -> jax.Array:
  """uint32 [shape], a hash of each element's place and of the seeds.

  murmur3's finalizer, once a seed: good enough to round by, several times
  cheaper than jax.random, and nothing of it is ever in memory.
  """
  bits, stride = jnp.zeros(shape, jnp.uint32), 1
  for axis in reversed(range(len(shape))):
    place = lax.broadcasted_iota(jnp.uint32, shape, axis)
    bits += place * jnp.uint32(stride % 2**32)
    stride *= shape[axis]
  for seed in seeds:
    bits ^= seed
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    bits ^= bits >> 16
  return bits


def round_at_random(x: jax.Array, bits: jax.Array) -> jax.Array:
  """float32 -> bfloat16, up with the probability that keeps the mean.

  bfloat16 is the first half of a float32. Adding a uniform number to the second
  half carries into the first as often as that half is large.

  Args:
    x: float32; what bfloat16 holds exactly stays, as do infinity and NaN.
    bits: uint32 of the same shape, uniform below 2^16.

  Returns:
    bfloat16, one of the two neighbors of x.
  """
  whole = lax.bitcast_convert_type(x, jnp.uint32) + bits
  cut = lax.bitcast_convert_type(whole & jnp.uint32(0xFFFF0000), jnp.float32)
  return jnp.where(jnp.isfinite(x), cut, x).astype(jnp.bfloat16)


def decay_mask(params):
  """True at the leaves that decay. By name: a stack of norms is a matrix."""

  def decays(path, _):
    name = jax.tree_util.keystr(path).lower()
    return not any(word in name for word in _UNDECAYED)

  return jax.tree_util.tree_map_with_path(decays, params)
