"""The update does not depend on how a minibatch is cut, and learns."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from codea1_jax import grpo, losses, train_state, update
from codea1_jax.devices import make_parallel
from codea1_jax.models import qwen

CONFIG = qwen.QwenConfig(
  vocab_size=37,
  hidden_size=16,
  intermediate_size=24,
  num_layers=1,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  scan_layers=True,  # compiles faster
)
ROWS, PROMPT, LENGTH = 13, 4, 6
LOSS = losses.GrpoLossConfig(kl_coef=0.1, chunk_size=5)


@pytest.fixture(scope="module")
def params():
  return jax.tree.map(np.asarray, qwen.init_params(CONFIG, jax.random.key(0)))


def _batch(seed=0):
  """Rows of 1 to T completion tokens, short ones first: parts differ."""
  rng = np.random.default_rng(seed)
  prompts = rng.integers(1, PROMPT + 1, ROWS)[:, None]
  lengths = np.sort(rng.integers(1, LENGTH + 1, ROWS))[:, None]
  completion_mask = np.arange(LENGTH)[None] < lengths
  valid = np.arange(PROMPT)[None] >= PROMPT - prompts
  log_probs = rng.uniform(-5, -3, (2, ROWS, LENGTH)).astype(np.float32)
  return train_state.UpdateBatch(
    tokens=rng.integers(37, size=(ROWS, PROMPT + LENGTH)).astype(np.int32),
    valid=np.concatenate([valid, completion_mask], 1),
    completion_mask=completion_mask.astype(np.float32),
    advantages=rng.normal(size=ROWS).astype(np.float32),
    behavior_log_probs=log_probs[0],
    ref_log_probs=log_probs[1],
    importance_weights=rng.uniform(size=(ROWS, LENGTH)).astype(np.float32),
  )


def _plain_log_probs(params, batch):
  """Log-probs and entropy of the completion, the direct way."""
  hidden = qwen.hidden_states(params, CONFIG, batch.tokens, batch.valid)
  log_softmax = jax.nn.log_softmax(qwen.logits(params, CONFIG, hidden))
  log_softmax = log_softmax[:, PROMPT - 1 : PROMPT + LENGTH - 1]
  targets = jnp.asarray(batch.tokens[:, PROMPT:, None])
  chosen = jnp.take_along_axis(log_softmax, targets, -1)[..., 0]
  return chosen, -(jnp.exp(log_softmax) * log_softmax).sum(-1)


def _plain_token_losses(params, batch, entropy_coef=0.0):
  """The paper's loss of every token of the batch, 0 at padding."""
  log_probs, entropy = _plain_log_probs(params, batch)
  advantages = batch.advantages[:, None]
  ratio = jnp.exp(log_probs - batch.behavior_log_probs)
  loss = jnp.maximum(
    -advantages * ratio, -advantages * jnp.clip(ratio, 0.8, 1.28)
  )
  loss = jnp.where(advantages < 0, jnp.minimum(loss, -advantages * 10.0), loss)
  difference = batch.ref_log_probs - log_probs
  kl = jnp.clip(jnp.exp(difference) - difference - 1, -10, 10)
  loss = batch.importance_weights * loss + LOSS.kl_coef * kl
  return (loss - entropy_coef * entropy) * batch.completion_mask


def _plain_loss(params, batch):
  return _plain_token_losses(params, batch).sum() / batch.completion_mask.sum()


@functools.cache
def _compiled(loss, devices, micro_batch_size):
  """Plain gradient descent; cached, since compiling is what takes time."""
  parallel = make_parallel("pmap", jax.devices()[:devices])
  run = update.make_update(
    losses.grpo_loss(loss, CONFIG),
    optax.sgd(1.0),
    parallel,
    micro_batch_size=micro_batch_size,
  )
  return run, parallel


def _step(params, batch, devices=2, micro_batch_size=3, loss=LOSS):
  """The gradient, read off the parameters' change, and the metrics."""
  run, parallel = _compiled(loss, devices, micro_batch_size)
  state = train_state.create_policy_state(params, optax.sgd(1.0))
  state, metrics = run(parallel.place(state), batch)
  after = parallel.fetch(state)
  assert after.step == 1
  return jax.tree.map(lambda x, y: x - y, params, after.params), metrics


def _relative_difference(tree, expected):
  difference = jax.tree.map(lambda x, y: x - y, tree, expected)
  return optax.global_norm(difference) / optax.global_norm(expected)


@pytest.fixture(scope="module")
def plain(params):
  return jax.jit(jax.value_and_grad(_plain_loss))(params, _batch())


@pytest.mark.parametrize(
  "devices, micro_batch_size",
  [(1, None), (1, 1), (1, 3), (2, None), (2, 3), (8, 1)],
)
def test_cut_does_not_matter(params, plain, devices, micro_batch_size):
  gradient, metrics = _step(params, _batch(), devices, micro_batch_size)
  loss, expected = plain
  assert _relative_difference(gradient, expected) < 1e-5
  np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
  norm = optax.global_norm(expected)
  np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-5)
  np.testing.assert_allclose(metrics["update_norm"], norm, rtol=1e-5)
  assert metrics["completion_tokens"] == _batch().completion_mask.sum()
  _check_ratios(params, metrics)


def _check_ratios(params, metrics):
  """Sums and the largest of all parts are those of the whole minibatch."""
  batch = _batch()
  log_probs, _ = _plain_log_probs(params, batch)
  there = batch.completion_mask > 0
  ratios = np.exp(log_probs - batch.behavior_log_probs)
  good = np.broadcast_to(batch.advantages[:, None] > 0, ratios.shape)[there]
  ratios = ratios[there]
  for name, expected in (
    ("ratio/mean", ratios.mean()),
    ("ratio/max", ratios.max()),
    ("clip_fraction/low", ((ratios < 0.8) & ~good).mean()),
    ("clip_fraction/high", ((ratios > 1.28) & good).mean()),
  ):
    assert expected > 0
    np.testing.assert_allclose(metrics[name], expected, rtol=1e-5, err_msg=name)
  both = metrics["clip_fraction/low"] + metrics["clip_fraction/high"]
  np.testing.assert_allclose(both, metrics["clip_fraction"], rtol=1e-6)


def test_cut_does_not_matter_to_means_of_sequences(params):
  config = dataclasses.replace(
    LOSS, aggregation="seq_mean_token_mean", entropy_coef=0.2
  )
  batch = _batch()

  def plain_loss(params):
    losses = _plain_token_losses(params, batch, entropy_coef=0.2)
    return (losses.sum(1) / batch.completion_mask.sum(1)).mean()

  expected = jax.jit(jax.grad(plain_loss))(params)
  gradient, _ = _step(params, batch, loss=config)
  assert _relative_difference(gradient, expected) < 1e-5


def test_first_update_on_policy_is_reinforce(params):
  parallel = make_parallel("pmap", jax.devices()[:2])
  score = update.make_score(CONFIG, parallel, micro_batch_size=3)
  batch = _batch()
  log_probs, _ = score(parallel.place(params), batch)
  batch = batch.replace(
    behavior_log_probs=log_probs,
    ref_log_probs=log_probs,
    importance_weights=np.ones_like(log_probs),
  )
  gradient, metrics = _step(params, batch)
  assert metrics["clip_fraction"] == metrics["clip_fraction/dual"] == 0
  assert abs(metrics["ratio/mean"] - 1) < 1e-6
  assert abs(metrics["approx_kl"]) < 1e-6 and abs(metrics["kl"]) < 1e-6

  def reinforce(params):
    log_probs, _ = _plain_log_probs(params, batch)
    weights = batch.completion_mask * batch.advantages[:, None]
    return -(weights * log_probs).sum() / batch.completion_mask.sum()

  expected = jax.jit(jax.grad(reinforce))(params)
  assert _relative_difference(gradient, expected) < 1e-5


def test_equal_rewards_teach_only_the_reference(params):
  batch = _batch().replace(
    advantages=grpo.group_advantages(np.full(ROWS, 0.7, np.float32))
  )
  gradient, metrics = _step(params, batch)
  assert metrics["policy_loss"] == 0 and metrics["grad_norm"] > 0
  # A policy that stands on its reference has nothing to learn from them.
  parallel = make_parallel("pmap", jax.devices()[:2])
  score = update.make_score(CONFIG, parallel, micro_batch_size=3, chunk_size=5)
  log_probs, _ = score(parallel.place(params), batch)
  gradient, metrics = _step(params, batch.replace(ref_log_probs=log_probs))
  assert metrics["grad_norm"] < 1e-6
  assert optax.global_norm(gradient) < 1e-6


def test_nan_shows_and_padding_does_not(params):
  batch = _batch()
  padding = batch.completion_mask == 0
  log_probs = np.where(padding, np.nan, batch.behavior_log_probs)
  sane = batch.replace(behavior_log_probs=log_probs, ref_log_probs=log_probs)
  _, metrics = _step(params, sane)
  assert np.isfinite(list(metrics.values())).all()

  log_probs = batch.behavior_log_probs.copy()
  log_probs[-1, 0] = np.nan
  _, metrics = _step(params, batch.replace(behavior_log_probs=log_probs))
  assert np.isnan(metrics["loss"]) and np.isnan(metrics["grad_norm"])


def test_empty_mask_changes_nothing(params):
  batch = _batch().replace(completion_mask=np.zeros((ROWS, LENGTH)))
  gradient, metrics = _step(params, batch)
  assert metrics["loss"] == metrics["grad_norm"] == 0
  assert not any(x.any() for x in jax.tree.leaves(gradient))


def test_sft_loss_is_cross_entropy_and_falls(params):
  batch = _batch().replace(
    advantages=None,
    behavior_log_probs=None,
    ref_log_probs=None,
    importance_weights=None,
  )
  parallel = make_parallel("pmap", jax.devices()[:2])
  optimizer = optax.adam(3e-2)
  run = update.make_update(
    losses.sft_loss(CONFIG), optimizer, parallel, micro_batch_size=3
  )
  first = parallel.place(train_state.create_policy_state(params, optimizer))
  state, history = first, []
  for _ in range(20):
    state, metrics = run(state, batch)
    history.append(metrics["loss"])
  log_probs, _ = _plain_log_probs(params, batch)
  mask = batch.completion_mask
  np.testing.assert_allclose(
    history[0], -(log_probs * mask).sum() / mask.sum(), rtol=1e-5
  )
  assert history[-1] < history[0] / 2
  # The state was donated: two copies of a model need not fit.
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))


@pytest.mark.parametrize("devices, micro_batch_size", [(1, None), (8, 1)])
def test_score_is_that_of_a_row_alone(params, devices, micro_batch_size):
  parallel = make_parallel("pmap", jax.devices()[:devices])
  score = update.make_score(
    CONFIG, parallel, micro_batch_size=micro_batch_size, chunk_size=5
  )
  batch = _batch()
  outputs = score(parallel.place(params), batch)
  for output, expected in zip(outputs, _plain_log_probs(params, batch)):
    assert output.shape == (ROWS, LENGTH) and output.dtype == np.float32
    np.testing.assert_allclose(output, expected, atol=1e-5)
  # Without its padding, and without anyone beside it.
  row = next(i for i in range(ROWS) if not batch.valid[i, 0])
  tokens = batch.tokens[row : row + 1, batch.valid[row]]
  hidden = qwen.hidden_states(params, CONFIG, tokens, tokens >= 0)
  log_softmax = jax.nn.log_softmax(qwen.logits(params, CONFIG, hidden))[0]
  length = int(batch.completion_mask[row].sum())
  alone = log_softmax[np.arange(tokens.size - 1), tokens[0, 1:]][-length:]
  np.testing.assert_allclose(outputs[0][row, :length], alone, atol=1e-5)


def test_score_refuses_rows_without_prompt(params):
  parallel = make_parallel("pmap", jax.devices()[:1])
  score = update.make_score(CONFIG, parallel)
  batch = _batch()
  batch = batch.replace(completion_mask=np.ones(batch.tokens.shape))
  with pytest.raises(ValueError, match="10 leaves no prompt in rows of 10"):
    score(parallel.place(params), batch)


@pytest.mark.parametrize("devices, rows", [(1, 13), (3, 1), (8, 8), (8, 13)])
def test_parallel_rows(devices, rows):
  def fn(weight, x, y, *, power):
    assert x.shape[0] == -(-rows // devices)  # split, not copied
    return {"z": weight * x**power, "y": y + 1}

  parallel = make_parallel("pmap", jax.devices()[:devices])
  call = update.parallel_rows(functools.partial(fn, power=2), parallel)
  x = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)
  output = call(parallel.place(np.float32(3)), x, np.arange(rows))
  np.testing.assert_array_equal(output["z"], 3 * x**2)
  np.testing.assert_array_equal(output["y"], np.arange(rows) + 1)
  assert isinstance(output["z"], np.ndarray)


def test_replicate_and_back():
  parallel = make_parallel("pmap", jax.devices()[:3])
  tree = {"a": np.arange(4.0), "b": np.int32(7)}
  copies = parallel.place(tree)
  assert copies["a"].shape == (3, 4) and copies["b"].shape == (3,)
  assert len(copies["a"].sharding.device_set) == parallel.num_groups == 3
  jax.tree.map(np.testing.assert_array_equal, parallel.fetch(copies), tree)


def test_bad_arguments_are_named(params):
  with pytest.raises(ValueError, match="'tpu' is not one of"):
    make_parallel("tpu")
  with pytest.raises(ValueError, match="empty list"):
    make_parallel("pmap", [])
  with pytest.raises(ValueError, match="kl_estimator 'k4'"):
    losses.GrpoLossConfig(kl_estimator="k4")
  with pytest.raises(ValueError, match="aggregation 'mean'"):
    losses.GrpoLossConfig(aggregation="mean")
  batch = _batch()
  with pytest.raises(ValueError, match="micro_batch_size 0"):
    _step(params, batch, micro_batch_size=0)
  with pytest.raises(ValueError, match=r"\[12, 13\] rows, not 13"):
    _step(params, batch.replace(advantages=batch.advantages[1:]))
  with pytest.raises(ValueError, match=r"\[0\] rows"):
    _step(params, jax.tree.map(lambda x: x[:0], batch))
  with pytest.raises(ValueError, match="needs ref_log_probs"):
    _step(params, batch.replace(ref_log_probs=None))


def test_bfloat16_parameters_have_float32_moments_before_and_after(params):
  low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
  config = dataclasses.replace(CONFIG, param_dtype="bfloat16")
  optimizer = optax.adamw(1e-2)
  parallel = make_parallel("pmap", jax.local_devices()[:1])
  state = parallel.place(train_state.create_policy_state(low, optimizer))
  step = update.make_update(
    losses.grpo_loss(LOSS, config), optimizer, parallel, micro_batch_size=13
  )

  def types(state):
    return jax.tree.map(lambda leaf: leaf.dtype, state)

  before = types(state)
  assert {leaf.dtype.name for leaf in jax.tree.leaves(state.opt_state)} == {
    "float32",
    "int32",  # its count
  }
  after, _ = step(state, _batch())
  assert types(after) == before
  moved = jax.tree.map(lambda a, b: jnp.abs(a[0] - b).max(), after.params, low)
  assert all(float(leaf) > 0 for leaf in jax.tree.leaves(moved))
