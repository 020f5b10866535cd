"""The one update of a policy, and the only file that knows devices.

`parallel="pmap"`: parameters are replicated and rows are split. On every
device a scan over micro-batches adds up float32 gradients; one psum joins the
devices. All averages divide by counts of the whole minibatch, taken before
any gradient, so that numbers do not depend on how it was cut.

Letters: B rows, P prompt tokens, T completion tokens, D hidden, N devices.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from codea1_jax import grpo
from codea1_jax.log_probs import CHUNK_SIZE
from codea1_jax.losses import (
  LossFn,
  completion_log_probs,
  completion_sequences,
)
from codea1_jax.models import qwen
from codea1_jax.train_state import PolicyState

# (frozen, trained parameters) -> all of them.
Bind = Callable[[Any, Any], Any]
AXIS = "devices"
KINDS = ("pmap",)


@dataclasses.dataclass(frozen=True)
class Parallel:
  """How arrays lie on devices."""

  kind: str
  devices: tuple[jax.Device, ...]

  @property
  def num_devices(self) -> int:
    return len(self.devices)

  def map(self, fn: Callable, **kwargs) -> Callable:
    """`fn` on every device, over the leading axis of its arguments."""
    return jax.pmap(fn, axis_name=AXIS, devices=self.devices, **kwargs)

  def replicate(self, tree: Any) -> Any:
    """One copy of every leaf a device, [N, ...]."""
    mesh = jax.sharding.Mesh(np.array(self.devices), (AXIS,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(AXIS))

    def copy(leaf):
      leaf = np.asarray(leaf)
      return jax.device_put(
        np.broadcast_to(leaf, (self.num_devices, *leaf.shape)), split
      )

    return jax.tree.map(copy, tree)

  def unreplicate(self, tree: Any) -> Any:
    """The first device's copy, which a later donation leaves alone."""
    return jax.tree.map(lambda leaf: leaf.addressable_shards[0].data[0], tree)


def make_parallel(kind: str = "pmap", devices=None) -> Parallel:
  """Devices to compute on: all local ones by default.

  Raises:
    ValueError: unknown kind, or no device.
  """
  if kind not in KINDS:
    raise ValueError(f"parallel {kind!r} is not one of {KINDS}")
  devices = tuple(jax.local_devices() if devices is None else devices)
  if not devices:
    raise ValueError("make_parallel: an empty list of devices")
  return Parallel(kind, devices)


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
    micro_batch_size: most rows of one forward and backward pass on a device;
      None for all at once.
    bind: (frozen, trained parameters) -> the parameters that the loss takes,
      where only a part is trained, as with LoRA; None: all of them are.

  Returns:
    update(replicated state, host batch, replicated frozen parameters or None)
    -> (state, metrics). The given state is donated: its buffers are gone.
    Metrics are floats; a NaN in the loss or in `grad_norm` (before clipping) is
    there to be raised on.
  """

  def device_step(state, batch, frozen):
    denominators = jax.lax.psum(
      grpo.count_denominators(
        batch.completion_mask, completion_sequences(batch)
      ),
      AXIS,
    )

    def trained_loss(params, *rest):
      return loss_fn(bind(frozen, params) if bind else params, *rest)

    shares = _accumulate(trained_loss, state.params, batch, denominators)
    grads, metrics = jax.lax.psum(shares, AXIS)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    metrics = {
      **metrics,
      "grad_norm": optax.global_norm(grads),
      "update_norm": optax.global_norm(updates),
      "completion_tokens": denominators.tokens,
    }
    params = optax.apply_updates(state.params, updates)
    return PolicyState(state.step + 1, params, opt_state), metrics

  step = parallel.map(device_step, donate_argnums=(0,))

  def update(state, batch, frozen=None):
    rows = batch.tokens.shape[0]
    _check_rows(batch, rows)
    shape = _cut(rows, parallel.num_devices, micro_batch_size)
    split = _split_rows(batch, shape)
    padding = _split_rows(np.arange(shape.total) < rows, shape)
    mask = np.asarray(split.completion_mask, np.float32)
    split = split.replace(completion_mask=mask * padding[..., None])
    # Steps with collectives that are not waited for can deadlock on forced
    # host devices.
    state, metrics = jax.block_until_ready(step(state, split, frozen))
    metrics = parallel.unreplicate(metrics)
    return state, {name: float(value) for name, value in metrics.items()}

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
    score(replicated params, tokens [B, P + T], valid [B, P + T],
    completion_length) -> log-probs and entropies, numpy float32 [B, T].
  """

  def device_score(params, tokens, valid, completion_length):
    def one(rows):
      return completion_log_probs(
        params,
        model_config,
        *rows,
        completion_length=completion_length,
        chunk_size=chunk_size,
        temperature=temperature,
      )

    return jax.lax.map(one, (tokens, valid))

  mapped = parallel.map(device_score, static_broadcasted_argnums=(3,))

  def score(params, tokens, valid, completion_length):
    rows = tokens.shape[0]
    shape = _cut(rows, parallel.num_devices, micro_batch_size)
    split = _split_rows((tokens, valid), shape)
    return _join_rows(mapped(params, *split, completion_length), shape, rows)

  return score


def parallel_rows(fn: Callable, parallel: Parallel) -> Callable:
  """Splits the rows of `fn(params, *row_arrays)` over the devices.

  Args:
    fn: traceable; each argument after the first, and each output, has one row
      an example. Bind anything static with functools.partial.
    parallel: where the replicated params lie.

  Returns:
    A function of (replicated params, *host arrays [B, ...]) that returns numpy
    arrays [B, ...]; B need not divide by the number of devices.
  """
  mapped = parallel.map(fn)

  def call(params, *row_arrays):
    rows = row_arrays[0].shape[0]
    _check_rows(row_arrays, rows)
    per_device = -(-rows // parallel.num_devices)
    shape = _Cut(parallel.num_devices, None, per_device)
    return _join_rows(
      mapped(params, *_split_rows(row_arrays, shape)), shape, rows
    )

  return call


def _accumulate(loss_fn, params, batch, denominators):
  """Sums over micro-batches of (float32 gradients, metrics)."""
  value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)

  def shares(micro_batch):
    (_, metrics), grads = value_and_grad(params, micro_batch, denominators)
    return jax.tree.map(lambda x: x.astype(jnp.float32), (grads, metrics))

  def add(total, micro_batch):
    return jax.tree.map(jnp.add, total, shares(micro_batch))

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
  """Rows as [devices, micro-batches, rows]; without micro-batches if None."""

  devices: int
  micro_batches: int | None
  rows: int

  @property
  def leading(self) -> tuple[int, ...]:
    middle = () if self.micro_batches is None else (self.micro_batches,)
    return (self.devices, *middle, self.rows)

  @property
  def total(self) -> int:
    return int(np.prod(self.leading))


def _cut(rows, devices, micro_batch_size):
  """Even micro-batches of at most the asked size, so that padding is small."""
  if micro_batch_size is not None and micro_batch_size < 1:
    raise ValueError(f"micro_batch_size {micro_batch_size} is below 1")
  per_device = -(-rows // devices)
  micro_batches = -(-per_device // (micro_batch_size or per_device or 1))
  return _Cut(devices, micro_batches, -(-per_device // max(micro_batches, 1)))


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
  """The inverse: [*leading, ...] on devices -> numpy [B, ...]."""

  def join(leaf):
    leaf = np.asarray(leaf)
    return leaf.reshape(cut.total, *leaf.shape[len(cut.leading) :])[:rows]

  return jax.tree.map(join, jax.block_until_ready(tree))
