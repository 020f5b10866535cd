"""The learning rate by hand, what decays, and the clip."""

import jax
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
