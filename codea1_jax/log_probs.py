"""Log-probs, entropies and their gradients without the logits in memory.

The loops run over chunks of the vocabulary, for all tokens at once, and the
backward pass computes a chunk's logits again. Chunks of tokens could not keep
memory low: what one of them adds to the head's gradient is as large as the
head, 0.5 GB at V = 151,936 and D = 896, while a chunk of the vocabulary owns
its rows of that gradient and is done with them.

On a mesh that cuts the vocabulary a chunk has as many entries of each part.

Letters: N tokens, D hidden, V vocabulary, C entries of a chunk, S parts of the
vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models import axes

# Of 512 to 4,096 the fastest at V = 151,936 and no slower than others elsewhere
# (experiments/benchmark_log_probs.py, on a CPU).
CHUNK_SIZE = 1024


def token_log_probs(
  hidden: jax.Array,
  head: jax.Array,
  targets: jax.Array,
  *,
  chunk_size: int | None = None,
  temperature: float = 1.0,
) -> tuple[jax.Array, jax.Array]:
  """Log-probabilities of given tokens, and entropies of their distributions.

  log p(y) = z_y - logsumexp(z), z = hidden . head / temperature. Beside its
  outputs it needs about 2 [B, T, chunk_size] float32 arrays, gradients too.

  Args:
    hidden: [B, T, D] final hidden states, each of which predicts its target.
    head: [V, D] output embedding; multiplied in the dtype of `hidden`.
    targets: [B, T] int token ids.
    chunk_size: vocabulary entries whose logits exist at a time on a device;
      None, or at least V, for one plain pass that JAX differentiates.
    temperature: the sampling temperature that log-probs refer to.

  Returns:
    log-probs [B, T] and entropies [B, T] in nats, float32. Both have gradients
    by `hidden` and `head` (reverse mode only where chunked).

  Raises:
    ValueError: chunk_size is below 1.
  """
  batch, length, width = hidden.shape
  # What a mesh cuts along D every token needs: gathered once, not a chunk.
  head = axes.constrain(head, "vocab", None)
  inputs = hidden.reshape(-1, width), head, targets.reshape(-1)
  if chunk_size is not None and chunk_size < 1:
    raise ValueError(f"chunk_size {chunk_size} is below 1")
  if chunk_size is None or chunk_size >= head.shape[0]:
    outputs = _plain(*inputs, temperature)
  else:
    outputs = _chunked(*inputs, chunk_size, temperature)
  return jax.tree.map(lambda x: x.reshape(batch, length), outputs)


def _logits(hidden, head, temperature):
  """[N, V] float32, summed in float32."""
  logits = jnp.einsum(
    "ND,VD->NV",
    hidden,
    head.astype(hidden.dtype),
    preferred_element_type=jnp.float32,
  )
  return logits if temperature == 1.0 else logits / temperature


def _plain(hidden, head, targets, temperature):
  """All logits at once; gather - logsumexp, 1.4 to 1.7 x faster than gathering
  from a log-softmax."""
  logits = _logits(hidden, head, temperature)
  normalizer = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
  chosen = jnp.take_along_axis(logits, targets[:, None], axis=-1)
  mean_logit = (jnp.exp(logits - normalizer) * logits).sum(-1)
  return (chosen - normalizer)[:, 0], normalizer[:, 0] - mean_logit


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _chunked(hidden, head, targets, chunk_size, temperature):
  """`_plain` in chunks of the vocabulary, with gradients of its own."""
  return _forward(hidden, head, targets, chunk_size, temperature)[0]


def _forward(hidden, head, targets, chunk_size, temperature):
  """Running sums of exp(z) and exp(z) z, relative to the largest z so far."""
  parts = _parts(head)

  def step(start, size, carry):
    top, total, weighted, chosen = carry
    rows = _rows(parts, start, size)
    logits = _logits(hidden, rows, temperature)
    new_top = jnp.maximum(top, logits.max(-1))
    exps = jnp.exp(logits - new_top[:, None])
    shrink = jnp.exp(top - new_top)
    total = total * shrink + exps.sum(-1)
    weighted = weighted * shrink + (exps * logits).sum(-1)
    found, inside = _find(logits, targets, start, size, parts.shape)
    chosen = jnp.where(inside, found, chosen)
    return new_top, total, weighted, chosen

  zeros = jnp.zeros(targets.shape, jnp.float32)
  carry = (zeros - jnp.inf, zeros, zeros, zeros)
  carry = _over_chunks(step, carry, parts.shape[-2], chunk_size)
  top, total, weighted, chosen = carry
  normalizer = top + jnp.log(total)
  entropy = normalizer - weighted / total
  residuals = hidden, head, targets, normalizer, entropy
  return (chosen - normalizer, entropy), residuals


def _backward(chunk_size, temperature, residuals, cotangents):
  """With p = softmax(z), H its entropy, and cotangents g of log p(y), h of H:
  dz = g (1[y] - p) - h p (log p + H)."""
  hidden, head, targets, normalizer, entropy = residuals
  g_N1, h_N1 = (x[:, None] for x in cotangents)
  parts = _parts(head)

  def step(start, size, carry):
    d_hidden, d_head = carry
    rows = _rows(parts, start, size).astype(hidden.dtype)
    log_p = _logits(hidden, rows, temperature) - normalizer[:, None]
    chosen = targets[:, None] == _entries(start, size, parts.shape)[None]
    d_logits = jnp.where(chosen, g_N1, 0.0)
    d_logits -= jnp.exp(log_p) * (g_N1 + h_N1 * (log_p + entropy[:, None]))
    d_logits /= temperature
    multiply = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    d_rows = multiply("NC,ND->CD", d_logits, hidden).astype(head.dtype)
    d_rows = d_rows.reshape(*parts.shape[:-2], size, -1)
    d_head = lax.dynamic_update_slice_in_dim(d_head, d_rows, start, axis=-2)
    return d_hidden + multiply("NC,CD->ND", d_logits, rows), d_head

  carry = jnp.zeros(hidden.shape, jnp.float32), jnp.zeros_like(parts)
  carry = _over_chunks(step, carry, parts.shape[-2], chunk_size)
  d_hidden, d_head = carry
  return d_hidden.astype(hidden.dtype), d_head.reshape(head.shape), None


_chunked.defvjp(_forward, _backward)


def _over_chunks(step, carry, vocab_size, chunk_size):
  """Calls carry = step(start, size, carry); the last chunk may be smaller."""
  chunks, rest = divmod(vocab_size, chunk_size)
  carry = lax.fori_loop(
    0, chunks, lambda i, c: step(i * chunk_size, chunk_size, c), carry
  )
  return step(vocab_size - rest, rest, carry) if rest else carry


def _parts(head):
  """The head as a mesh cuts it, [S, V / S, D]; [V, D] where none does, or XLA
  would copy it."""
  parts = axes.shards("vocab")
  return head if parts == 1 else head.reshape(parts, -1, head.shape[1])


def _rows(parts, start, size):
  """As many rows of each part, one part after the other. Without the barrier
  XLA's CPU backend takes a bfloat16 head's conversion to float32, all of it,
  out of the loop."""
  parts, start = lax.optimization_barrier((parts, start))
  rows = lax.dynamic_slice_in_dim(parts, start, size, axis=-2)
  return rows.reshape(-1, parts.shape[-1])


def _entries(start, size, shape):
  """Which entries of the vocabulary the rows of a chunk are."""
  entries = start + jnp.arange(size)
  if len(shape) == 2:
    return entries
  parts, each, _ = shape
  return (jnp.arange(parts)[:, None] * each + entries[None]).reshape(-1)


def _find(logits, targets, start, size, shape):
  """The targets' logits in a chunk, and whether they are in it."""
  if len(shape) == 3:  # a device has its part's only: sum instead of looking up
    is_target = targets[:, None] == _entries(start, size, shape)[None]
    found = jnp.where(is_target, logits, 0.0).sum(-1)
    return found, is_target.any(-1)
  place = targets - start
  clipped = jnp.clip(place, 0, size - 1)[:, None]
  found = jnp.take_along_axis(logits, clipped, axis=-1)[:, 0]
  return found, (place >= 0) & (place < size)
