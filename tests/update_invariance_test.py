"""No variant of the loss depends on how a minibatch is cut, padded, ordered."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest
from loss_variants import (
  KEEP_GRADIENTS,
  VARIANTS,
  ChosenBatch,
  chosen_objective,
)
from packed_rows import CONFIG, LENGTH, PROMPT, ROWS

from codea1_jax import losses, train_state, update
from codea1_jax.devices import make_parallel
from codea1_jax.models import qwen

LOSS = losses.GrpoLossConfig(
  kl_coef=0.1, entropy_coef=0.05, horizon=11, chunk_size=16
)


def _all_losses(params, batch, denominators):
  """The loss of the chosen variant."""
  log_probs, entropy = losses.completion_log_probs(
    params,
    CONFIG,
    batch.tokens,
    batch.valid,
    completion_length=batch.completion_mask.shape[1],
    chunk_size=LOSS.chunk_size,
  )
  return chosen_objective(LOSS, log_probs, entropy, batch, denominators)


@functools.cache
def _compiled(devices, micro_batch_size):
  parallel = make_parallel("pmap", jax.devices()[:devices])
  run = update.make_update(
    _all_losses, KEEP_GRADIENTS, parallel, micro_batch_size=micro_batch_size
  )
  return run, parallel


def _gradient(params, batch, variant, devices=1, micro_batch_size=None):
  """(loss, gradient) of one variant."""
  chosen = np.zeros((ROWS, len(VARIANTS)), np.float32)
  chosen[:, VARIANTS.index(variant)] = 1
  fields = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
  run, parallel = _compiled(devices, micro_batch_size)
  state = train_state.create_policy_state(params, KEEP_GRADIENTS)
  state, metrics = run(
    parallel.place(state), ChosenBatch(**fields, variant=chosen)
  )
  return metrics["loss"], parallel.fetch(state).opt_state


@pytest.fixture(scope="module")
def params():
  return jax.tree.map(np.asarray, qwen.init_params(CONFIG, jax.random.key(0)))


@pytest.fixture(scope="module")
def batch():
  """Rows of 1 to T completion tokens, a little off-policy."""
  rng = np.random.default_rng(0)
  prompts = rng.integers(1, PROMPT + 1, ROWS)[:, None]
  lengths = np.sort(rng.integers(1, LENGTH + 1, ROWS))[:, None]
  completion_mask = np.arange(LENGTH)[None] < lengths
  valid = np.arange(PROMPT)[None] >= PROMPT - prompts
  tokens = rng.integers(37, size=(ROWS, PROMPT + LENGTH)).astype(np.int32)
  valid = np.concatenate([valid, completion_mask], 1)
  # Around those of a new model, log 1/37.
  log_probs = rng.normal(-3.6, 0.3, (2, ROWS, LENGTH)).astype(np.float32)
  weights = rng.uniform(0.5, 2, (ROWS, LENGTH)).astype(np.float32)
  return train_state.UpdateBatch(
    tokens=tokens,
    valid=valid,
    completion_mask=completion_mask.astype(np.float32),
    advantages=rng.normal(size=ROWS).astype(np.float32),
    behavior_log_probs=log_probs[0],
    ref_log_probs=log_probs[1],
    importance_weights=weights,
  )


@pytest.fixture(scope="module")
def expected(params, batch):
  """Of every variant: one device, four rows at a time."""
  return {v: _gradient(params, batch, v, 1, 4) for v in VARIANTS}


def _padded(batch, left, right):
  """`left` more columns before the prompts, `right` after the completions."""

  def pad(array, left, value=0):
    return np.pad(array, ((0, 0), (left, right)), constant_values=value)

  completion = ("behavior_log_probs", "ref_log_probs", "importance_weights")
  return batch.replace(
    tokens=pad(batch.tokens, left, 7),
    valid=pad(batch.valid, left),
    completion_mask=pad(batch.completion_mask, 0),
    **{name: pad(getattr(batch, name), 0, np.nan) for name in completion},
  )


def _assert_close(actual, expected, tolerance=1e-6):
  """The loss, and the gradient in the norm of all parameters together."""
  loss, gradient = actual
  np.testing.assert_allclose(loss, expected[0], rtol=tolerance)
  difference = jax.tree.map(lambda x, y: x - y, gradient, expected[1])
  norm = optax.global_norm(expected[1])
  assert norm > 0.01
  assert optax.global_norm(difference) < tolerance * norm


# Between small micro-batches 1e-7 was measured, between those and all rows at
# once, whose products are summed in another order, up to 8.5e-7.
@pytest.mark.parametrize(
  "devices, micro_batch_size, tolerance",
  [(1, None, 2e-6), (2, 3, 1e-6), (8, 1, 1e-6)],
)
def test_cut_does_not_matter(
  params, batch, expected, devices, micro_batch_size, tolerance
):
  for variant in VARIANTS:
    cut = _gradient(params, batch, variant, devices, micro_batch_size)
    _assert_close(cut, expected[variant], tolerance)


def test_padding_does_not_matter(params, batch, expected):
  padded = _padded(batch, left=5, right=3)
  for variant in VARIANTS:
    _assert_close(_gradient(params, padded, variant, 2, 3), expected[variant])


def test_order_of_rows_does_not_matter(params, batch, expected):
  order = np.random.default_rng(1).permutation(ROWS)
  mixed = jax.tree.map(lambda leaf: leaf[order], batch)
  for variant in VARIANTS:
    _assert_close(_gradient(params, mixed, variant, 2, 3), expected[variant])


def test_variants_differ(expected):
  """Or the tests above would compare one loss with itself."""
  norms = [float(optax.global_norm(g)) for _, g in expected.values()]
  assert len({round(norm, 4) for norm in norms}) == len(VARIANTS)
