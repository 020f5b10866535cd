"""The one update of a policy, whatever devices it runs on (devices.py).

A scan over micro-batches adds up float32 gradients, then one sum joins the
devices. All averages divide by counts of the whole minibatch, taken before
any gradient, so that numbers do not depend on how it was cut.

Letters: B rows, P prompt tokens, T completion tokens, D hidden, G groups of
rows.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from codea1_jax import grpo
from codea1_jax.devices import Parallel
from codea1_jax.log_probs import CHUNK_SIZE
from codea1_jax.losses import (
  LossFn,
  completion_log_probs,
  completion_sequences,
  is_maximum,
)
from codea1_jax.models import axes, qwen
from codea1_jax.train_state import PolicyState, UpdateBatch

# (frozen, trained parameters) -> all of them.
Bind = Callable[[Any, Any], Any]


def make_update(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  parallel: Parallel,
  *,
  micro_batch_size: int | None = None,
  bind: Bind | None = None,
) -> Callable[..., tuple[PolicyState, dict[str, float]]]:
  """One optimizer step on a minibatch of any number of rows.

  Args:
    loss_fn: `grpo_loss(...)` or `sft_loss(...)`.
    optimizer: see optimizer.py.
    parallel: where the state lies.
    micro_batch_size: most rows of one forward and backward pass of a group;
      None for all at once.
    bind: (frozen, trained parameters) -> the parameters that the loss takes,
      where only a part is trained, as with LoRA; None: all of them are.

  Returns:
    update(placed state, host batch, placed frozen parameters or None) ->
    (state, metrics). The given state is donated: its buffers are gone.
    Metrics are floats; a NaN in the loss or in `grad_norm` (before clipping) is
    there to be raised on. `update.step` is the compiled part, of rows already
    split as [G, micro-batches, rows, ...]; it has the method `lower`.
  """

  def device_step(state, batch, frozen):
    denominators = parallel.psum(
      grpo.count_denominators(
        batch.completion_mask, completion_sequences(batch)
      )
    )

    def trained_loss(params, *rest):
      return loss_fn(bind(frozen, params) if bind else params, *rest)

    grads, metrics = _accumulate(
      trained_loss, state.params, batch, denominators
    )
    grads, metrics = parallel.psum(grads), _over_devices(metrics, parallel)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    metrics = {
      **metrics,
      "grad_norm": optax.global_norm(grads),
      "update_norm": optax.global_norm(updates),
      "completion_tokens": denominators.tokens,
    }
    params = optax.apply_updates(state.params, updates)
    return PolicyState(state.step + 1, params, opt_state), metrics

  step = parallel.map(
    device_step, held=(0, 2), gives="params", rows_axis=1, donate=(0,)
  )

  def update(state, batch, frozen=None):
    rows = batch.tokens.shape[0]
    _check_rows(batch, rows)
    shape = _cut(rows, parallel.num_groups, micro_batch_size)
    split = _split_rows(batch, shape)
    padding = _split_rows(np.arange(shape.total) < rows, shape)
    mask = np.asarray(split.completion_mask, np.float32)
    split = split.replace(completion_mask=mask * padding[..., None])
    # Steps with collectives that are not waited for can deadlock on forced
    # host devices.
    state, metrics = jax.block_until_ready(step(state, split, frozen))
    metrics = parallel.fetch(metrics)
    return state, {name: float(value) for name, value in metrics.items()}

  update.step = step
  return update


def make_score(
  model_config: qwen.QwenConfig,
  parallel: Parallel,
  *,
  micro_batch_size: int | None = None,
  chunk_size: int | None = CHUNK_SIZE,
  temperature: float = 1.0,
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
  """Log-probs of given completions under given parameters, without gradient.

  Returns:
    score(placed params, host batch) -> log-probs and entropies of the batch's
    completion tokens, numpy float32 [B, T]; arbitrary where no token is.
  """

  def device_score(params, batch):
    def one(rows):
      return completion_log_probs(
        params,
        model_config,
        rows.tokens,
        rows.valid,
        completion_length=rows.completion_mask.shape[1],
        chunk_size=chunk_size,
        temperature=temperature,
        segments=rows.segments,
        places=rows.places,
        slots=rows.slots,
      )

    return jax.lax.map(one, batch)

  mapped = parallel.map(device_score, rows_axis=1)

  def score(params, batch):
    rows = batch.tokens.shape[0]
    shape = _cut(rows, parallel.num_groups, micro_batch_size)
    # Nothing else of the batch has to travel.
    read = UpdateBatch(
      tokens=batch.tokens,
      valid=batch.valid,
      completion_mask=batch.completion_mask,
      segments=batch.segments,
      places=batch.places,
      slots=batch.slots,
    )
    scored = mapped(params, _split_rows(read, shape))
    return _join_rows(parallel.to_host(scored), shape, rows)

  return score


def parallel_rows(fn: Callable, parallel: Parallel) -> Callable:
  """Splits the rows of `fn(params, *row_arrays)` over the groups.

  Args:
    fn: traceable; each argument after the first, and each output, has one row
      an example. Bind anything static with functools.partial.
    parallel: where the params lie.

  Returns:
    A function of (placed params, *host arrays [B, ...]) that returns numpy
    arrays [B, ...]; B need not divide by the number of groups.
  """
  mapped = parallel.map(fn)

  def call(params, *row_arrays):
    rows = row_arrays[0].shape[0]
    _check_rows(row_arrays, rows)
    size = -(-rows // parallel.num_groups)
    shape = _Cut(parallel.num_groups, None, size)
    outputs = mapped(params, *_split_rows(row_arrays, shape))
    return _join_rows(parallel.to_host(outputs), shape, rows)

  return call


def _over_devices(metrics, parallel):
  """Of what all programs have, the sums, or the largest."""
  return {
    name: (parallel.pmax if is_maximum(name) else parallel.psum)(value)
    for name, value in metrics.items()
  }


def _joined(one, other):
  """(gradients, metrics) of two parts as those of both."""
  (grads, metrics), (more_grads, more_metrics) = one, other
  return jax.tree.map(jnp.add, grads, more_grads), {
    name: (jnp.maximum if is_maximum(name) else jnp.add)(
      value, more_metrics[name]
    )
    for name, value in metrics.items()
  }


def _accumulate(loss_fn, params, batch, denominators):
  """(float32 gradients, metrics) of all micro-batches."""
  value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)

  def shares(micro_batch):
    (_, metrics), grads = value_and_grad(params, micro_batch, denominators)
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), (grads, metrics))
    return axes.constrain_tree(wide)

  def add(total, micro_batch):
    return _joined(total, shares(micro_batch))

  def skip(total, _):
    return total

  def step(total, micro_batch):
    if batch.segments is None:
      return add(total, micro_batch), None
    # Packed rows come in few numbers, so that the last ones may be empty.
    filled = micro_batch.completion_mask.any()
    return jax.lax.cond(filled, add, skip, total, micro_batch), None

  first = jax.tree.map(lambda x: x[0], batch)
  zeros = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(shares, first)
  )
  return jax.lax.scan(step, zeros, batch)[0]


@dataclasses.dataclass(frozen=True)
class _Cut:
  """Rows as [groups, micro-batches, rows]; without micro-batches if None."""

  groups: int
  micro_batches: int | None
  rows: int

  @property
  def leading(self) -> tuple[int, ...]:
    middle = () if self.micro_batches is None else (self.micro_batches,)
    return (self.groups, *middle, self.rows)

  @property
  def total(self) -> int:
    return int(np.prod(self.leading))


def _cut(rows, groups, micro_batch_size):
  """Even micro-batches of at most the asked size, so that padding is small."""
  if micro_batch_size is not None and micro_batch_size < 1:
    raise ValueError(f"micro_batch_size {micro_batch_size} is below 1")
  each = -(-rows // groups)
  micro_batches = -(-each // (micro_batch_size or each or 1))
  return _Cut(groups, micro_batches, -(-each // max(micro_batches, 1)))


def _check_rows(tree, rows):
  """Every leaf has `rows` rows, and there is one at least."""
  sizes = {leaf.shape[0] for leaf in jax.tree.leaves(tree)}
  if sizes != {rows} or not rows:
    raise ValueError(f"a batch's arrays have {sorted(sizes)} rows, not {rows}")


def _split_rows(tree, cut):
  """[B, ...] -> [*leading, ...]; row 0 fills up, as a row that is surely sane
  (all padding would be attention over nothing)."""

  def split(leaf):
    leaf = np.asarray(leaf)
    index = np.arange(cut.total)
    leaf = leaf[np.where(index < leaf.shape[0], index, 0)]
    return leaf.reshape(*cut.leading, *leaf.shape[1:])

  return jax.tree.map(split, tree)


def _join_rows(tree, cut, rows):
  """The inverse, of numpy arrays."""

  def join(leaf):
    return leaf.reshape(cut.total, *leaf.shape[len(cut.leading) :])[:rows]

  return jax.tree.map(join, tree)
