"""Ragged padded rows, and a loss of every variant for any layout of them."""

import dataclasses
import functools

import jax
import numpy as np
import optax
from loss_variants import (
  KEEP_GRADIENTS,
  VARIANTS,
  ChosenBatch,
  chosen_objective,
)

from codea1_jax import losses, train_state, update
from codea1_jax.devices import make_parallel
from codea1_jax.models import qwen

CONFIG = qwen.QwenConfig(
  vocab_size=37,
  hidden_size=32,
  intermediate_size=48,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  scan_layers=True,  # compiles faster
)
ONE_LAYER = dataclasses.replace(CONFIG, num_layers=1, scan_layers=False)
ROWS, PROMPT, LENGTH = 13, 4, 6
LOSS = losses.GrpoLossConfig(
  kl_coef=0.1, entropy_coef=0.05, horizon=7, chunk_size=16
)


def _all_losses(params, batch, denominators):
  """The loss and metrics of the chosen variant."""
  log_probs, entropy = losses.completion_log_probs(
    params,
    ONE_LAYER,
    batch.tokens,
    batch.valid,
    completion_length=batch.completion_mask.shape[1],
    chunk_size=None,
    segments=batch.segments,
    places=batch.places,
    slots=batch.slots,
  )
  return chosen_objective(LOSS, log_probs, entropy, batch, denominators)


def ragged_batch(seed=0, rows=ROWS):
  """Ragged padded rows, a little off-policy; two of them do not train, and of
  another one the first completion token does not."""
  rng = np.random.default_rng(seed)
  prompts = rng.integers(1, PROMPT + 1, rows)[:, None]
  lengths = rng.integers(1, LENGTH + 1, rows)[:, None]
  right = np.arange(LENGTH)[None] < lengths
  valid = np.arange(PROMPT)[None] >= PROMPT - prompts
  valid = np.concatenate([valid, right], 1)
  completion_mask = right.astype(np.float32)
  completion_mask[2:4] = 0
  completion_mask[lengths.argmax(), 0] = 0
  log_probs = rng.normal(-3.6, 0.3, (2, rows, LENGTH)).astype(np.float32)
  log_probs[:, ~right] = np.nan  # nobody reads them
  return train_state.UpdateBatch(
    tokens=rng.integers(1, 37, valid.shape).astype(np.int32) * valid,
    valid=valid,
    completion_mask=completion_mask,
    advantages=rng.normal(size=rows).astype(np.float32),
    behavior_log_probs=log_probs[0],
    ref_log_probs=log_probs[1],
    importance_weights=rng.uniform(0.5, 2, right.shape).astype(np.float32),
  )


@functools.cache
def _compiled(loss_fn, devices, micro_batch_size):
  parallel = make_parallel("pmap", jax.devices()[:devices])
  run = update.make_update(
    loss_fn, KEEP_GRADIENTS, parallel, micro_batch_size=micro_batch_size
  )
  return run, parallel


def gradient(params, batch, loss_fn, devices=1, micro_batch_size=None):
  """(gradient, metrics)."""
  run, parallel = _compiled(loss_fn, devices, micro_batch_size)
  state = train_state.create_policy_state(params, KEEP_GRADIENTS)
  state, metrics = run(parallel.place(state), batch)
  return parallel.fetch(state).opt_state, metrics


def of_variant(params, batch, variant, *cut):
  chosen = np.zeros((len(batch.tokens), len(VARIANTS)), np.float32)
  chosen[:, VARIANTS.index(variant)] = 1
  fields = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
  batch = ChosenBatch(**fields, variant=chosen)
  return gradient(params, batch, _all_losses, *cut)


def assert_close(actual, expected):
  """Within 1e-6, the gradient in the norm of all parameters together."""
  difference = jax.tree.map(lambda x, y: x - y, actual[0], expected[0])
  norm = optax.global_norm(expected[0])
  assert norm > 0.01
  assert optax.global_norm(difference) < 1e-6 * norm
  assert actual[1].keys() == expected[1].keys()
  for name, value in expected[1].items():
    # Averages of terms of size 1 that may cancel.
    np.testing.assert_allclose(
      actual[1][name], value, rtol=1e-6, atol=1e-6, err_msg=name
    )
