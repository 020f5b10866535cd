"""The learning rate by hand, what decays, and the clip."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from codea1_jax import optimizer
from codea1_jax.models import qwen


def test_cosine_by_hand():
  rate = optimizer.make_schedule(
    learning_rate=2.0, warmup_steps=4, total_steps=12
  )
  # A quarter each, the peak at the fourth update, half of it half way down.
  np.testing.assert_allclose(
    [rate(step) for step in (0, 1, 3, 4, 8, 12, 99)],
    [0.5, 1.0, 2.0, 2.0, 1.0, 0.0, 0.0],
    atol=1e-6,
  )


def test_constant_by_hand():
  rate = optimizer.make_schedule(
    learning_rate=3.0, warmup_steps=2, total_steps=0, schedule="constant"
  )
  np.testing.assert_allclose([rate(step) for step in range(4)], [1.5, 3, 3, 3])
  rate = optimizer.make_schedule(
    learning_rate=3.0, warmup_steps=0, total_steps=9, schedule="constant"
  )
  assert rate(0) == 3


def test_bad_schedules_are_named():
  with pytest.raises(ValueError, match="'linear' is not one of"):
    optimizer.make_optimizer(schedule="linear")
  with pytest.raises(ValueError, match="total_steps 10 <= warmup_steps 10"):
    optimizer.make_optimizer(warmup_steps=10, total_steps=10)


@pytest.mark.parametrize("tied, qk_norm", [(True, False), (False, True)])
def test_norms_and_biases_do_not_decay(tied, qk_norm):
  config = qwen.QwenConfig(
    vocab_size=5,
    hidden_size=4,
    intermediate_size=6,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=2,
    tie_word_embeddings=tied,
    qkv_bias=not qk_norm,
    qk_norm=qk_norm,
  )
  shapes = qwen.param_shapes(config)
  params = jax.tree.map(
    lambda shape: np.ones(shape, np.float32),
    shapes,
    is_leaf=lambda x: type(x) is tuple,
  )
  make = optimizer.make_optimizer(
    learning_rate=0.5, warmup_steps=0, schedule="constant", weight_decay=0.2
  )
  zeros = jax.tree.map(np.zeros_like, params)
  updates, _ = jax.jit(make.update)(zeros, make.init(params), params)
  # Without gradient the update is -lr * decay * 1, or nothing.
  moved = {
    jax.tree_util.keystr(path[-1:], simple=True)
    for path, leaf in jax.tree_util.tree_leaves_with_path(updates)
    if np.allclose(leaf, -0.1)
  }
  still = {
    jax.tree_util.keystr(path[-1:], simple=True)
    for path, leaf in jax.tree_util.tree_leaves_with_path(updates)
    if not np.any(leaf)
  }
  assert moved == {"embedding", "qkv", "out", "gate_up", "down"} | (
    set() if tied else {"head"}
  )
  assert still == {"attention_norm", "mlp_norm", "final_norm"} | (
    {"q_norm", "k_norm"} if qk_norm else {"qkv_bias"}
  )


def test_first_step_and_clip_by_hand():
  params = {"w": np.zeros(2, np.float32)}
  gradient = {"w": np.array([30.0, -40.0], np.float32)}
  make = optimizer.make_optimizer(
    learning_rate=0.1,
    warmup_steps=0,
    schedule="constant",
    weight_decay=0.0,
    grad_clip=1.0,
    eps=1.0,
  )
  updates, state = make.update(gradient, make.init(params), params)
  # Clipped to (.6, -.8); Adam's first step is g / (|g| + eps).
  np.testing.assert_allclose(
    updates["w"], [-0.1 * 0.6 / 1.6, 0.1 * 0.8 / 1.8], rtol=1e-5
  )
  moments = optax.tree_utils.tree_get(state, "mu")
  np.testing.assert_allclose(moments["w"], [0.06, -0.08], rtol=1e-5)


def test_no_clip():
  params = {"w": np.zeros(1, np.float32)}
  make = optimizer.make_optimizer(
    learning_rate=0.1,
    warmup_steps=0,
    schedule="constant",
    grad_clip=0,
    eps=1.0,
  )
  gradient = {"w": np.array([9.0], np.float32)}
  updates, _ = make.update(gradient, make.init(params), params)
  np.testing.assert_allclose(updates["w"], [-0.09], rtol=1e-5)


def test_rate_follows_updates():
  params = {"w": np.zeros(1, np.float32)}
  arguments = {"learning_rate": 0.4, "warmup_steps": 2, "total_steps": 6}
  make = optimizer.make_optimizer(**arguments, weight_decay=0.0, eps=1e-12)
  rate = optimizer.make_schedule(**arguments)
  state, gradient = make.init(params), {"w": np.ones(1, np.float32)}
  for step in range(5):
    updates, state = make.update(gradient, state, params)
    np.testing.assert_allclose(-updates["w"], [rate(step)], rtol=1e-4)


def test_float32_moments_are_those_of_adamw():
  params = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
  ours = optimizer.make_optimizer(
    learning_rate=0.1,
    warmup_steps=0,
    schedule="constant",
    weight_decay=0.2,
    grad_clip=0,
  )
  theirs = optax.chain(
    optax.identity(),
    optax.adamw(
      optax.constant_schedule(0.1), b2=0.999, weight_decay=0.2, mask={"w": True}
    ),
  )
  states = [make.init(params) for make in (ours, theirs)]
  for step in range(3):
    grads = jax.tree.map(lambda x: np.cos(x * (step + 1)), params)  # noqa: B023
    both = [m.update(grads, s, params) for m, s in zip((ours, theirs), states)]
    (updates, states[0]), (expected, states[1]) = both
    np.testing.assert_array_equal(updates["w"], expected["w"])
  # Checkpoints of one are checkpoints of the other.
  jax.tree.map(np.testing.assert_array_equal, *states)


def test_rounding_at_random_by_hand():
  # A quarter of the way from 1 to the next bfloat16, 1 + 2^-7.
  bits = jnp.arange(2**16, dtype=jnp.uint32)
  for sign in (1, -1):
    x = jnp.full(2**16, sign * (1 + 2**-9), jnp.float32)
    rounded = np.abs(optimizer.round_at_random(x, bits).astype(np.float32))
    assert (rounded == 1).sum() == 3 * 2**14
    assert (rounded == 1 + 2**-7).sum() == 2**14
  kept = np.array([0, -0.0, 1.5, -3, 2**-130, np.inf, -np.inf, np.nan])
  kept = np.float32(kept)
  ones = jnp.full(len(kept), 2**16 - 1, jnp.uint32)
  rounded = optimizer.round_at_random(jnp.asarray(kept), ones)
  assert rounded.dtype == jnp.bfloat16
  np.testing.assert_array_equal(np.float32(rounded), kept)
  # All bits of a NaN set would carry into the sign, and be 0.
  full = jax.lax.bitcast_convert_type(jnp.int32(0x7FFFFFFF), jnp.float32)
  assert np.isnan(optimizer.round_at_random(full, ones[0]))


def _second_moments(dtype, steps=2000):
  """Of gradients of 1, from 0 on, at b2 = 0.999."""
  params = {"w": jnp.zeros(1000)}
  adam = optimizer.scale_by_adam(0.9, 0.999, 1e-8, dtype)

  def step(state, _):
    return adam.update({"w": jnp.ones(1000)}, state)[1], None

  run = jax.jit(lambda s: jax.lax.scan(step, s, None, length=steps)[0])
  state = run(adam.init(params))
  assert {leaf["w"].dtype.name for leaf in (state.mu, state.nu)} == {dtype}
  return np.float32(state.nu["w"])


def test_bfloat16_moments_follow_float32():
  exact = 1 - 0.999**2000
  np.testing.assert_allclose(_second_moments("float32"), exact, rtol=1e-3)
  moments = _second_moments("bfloat16")
  assert abs(moments.mean() - exact) < 0.003
  assert moments.std() < 0.03
  # To the nearest it stays where a step is less than half the next distance.
  nearest = jnp.bfloat16(0)
  for _ in range(2000):
    wide = np.float32(nearest)
    nearest = jnp.bfloat16(wide + np.float32(0.001) * (1 - wide))
  assert nearest == 0.25


def test_rounding_depends_on_the_number_of_the_update_alone():
  params = {"w": jnp.ones(64), "v": jnp.ones(64)}
  adam = optimizer.scale_by_adam(0.9, 0.999, 1e-8, "bfloat16")
  grads = jax.tree.map(lambda x: x / 3, params)
  first = adam.update(grads, adam.init(params))[1]
  stored = jax.tree.map(np.asarray, first)
  (_, second), (_, again) = (adam.update(grads, s) for s in (first, stored))
  jax.tree.map(np.testing.assert_array_equal, second, again)
  late = adam.init(params)._replace(count=jnp.int32(7))
  late = adam.update(grads, late)[1]
  for one, other in (
    (late.nu["w"], first.nu["w"]),
    (first.nu["v"], first.nu["w"]),
    (first.mu["w"] / first.mu["w"].max(), first.nu["w"] / first.nu["w"].max()),
  ):
    assert (np.asarray(one) != np.asarray(other)).any()


def test_unknown_moment_dtype_is_named():
  with pytest.raises(ValueError, match="moment_dtype 'float16' is not one of"):
    optimizer.make_optimizer(moment_dtype="float16")
