"""One token from logits: temperature, top-k, top-p, min-p, by inverse cdf.

Letters of shapes: B rows, V vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

_BLOCK = 128  # places a block in the two-level search of `draw`
_HEAD = 1024  # a nucleus is looked for among so many tokens first


@dataclasses.dataclass(frozen=True)
class Filters:
  """Which tokens may be drawn; by default all, as training needs it.

  Applied in the order of transformers: the top_k likeliest at the given
  temperature, of these the smallest set that reaches top_p, of these what is
  at least min_p times as likely as the likeliest.
  """

  top_p: float = 1.0
  top_k: int = 0  # 0: all
  min_p: float = 0.0

  def __post_init__(self):
    if not (0.0 < self.top_p <= 1.0 and self.top_k >= 0):
      raise ValueError(
        f"top_p must be in (0, 1] and top_k at least 0, got {self.top_p},"
        f" {self.top_k}"
      )
    if not 0.0 <= self.min_p <= 1.0:
      raise ValueError(f"min_p must be in [0, 1], got {self.min_p}")


NO_FILTERS = Filters()


def _first_beyond(weights: jax.Array, mass: jax.Array):
  """Where the running sum of weights [B, M] first exceeds mass [B].

  Only places with weight count: rounding can never pick an impossible one.

  Returns:
    The index [B] and the mass that is left inside that place [B].
  """
  sums = jnp.cumsum(weights, axis=-1)
  beyond = (sums > mass[:, None]) & (weights > 0)
  index = jnp.where(
    beyond.any(-1), jnp.argmax(beyond, -1), jnp.argmax(weights, -1)
  )
  before = jnp.take_along_axis(sums - weights, index[:, None], 1)[:, 0]
  return index, jnp.maximum(mass - before, 0.0)


def draw(weights: jax.Array, uniform: jax.Array) -> jax.Array:
  """Inverse cdf: index i with probability weights[i] / sum(weights).

  In two levels (a block, then a place in it), since a running sum over a whole
  vocabulary costs more than everything else in the draw.

  Args:
    weights: [B, V] float32, not negative, not all zero.
    uniform: [B] in [0, 1).

  Returns:
    [B] int32.
  """
  rows, size = weights.shape
  block = min(_BLOCK, size)
  weights = jnp.pad(weights, ((0, 0), (0, -size % block)))
  blocks = weights.reshape(rows, -1, block)
  sums = blocks.sum(-1)
  outer, rest = _first_beyond(sums, uniform * sums.sum(-1))
  chosen = jnp.take_along_axis(blocks, outer[:, None, None], 1)[:, 0]
  inner, _ = _first_beyond(chosen, rest)
  return (outer * block + inner).astype(jnp.int32)


def _draw_from_head(weights, uniform, filters: Filters, count: int):
  """Draws by the filters among the `count` largest weights [B, V]."""
  values, order = lax.top_k(weights, count)
  # Of top_k's own mass; else of everything, what is not looked at included.
  whole = values if filters.top_k else weights
  probs = values / whole.sum(-1, keepdims=True)
  before = jnp.cumsum(probs, axis=-1) - probs
  # The first token stays however small top_p is.
  inside = (before < filters.top_p).at[:, 0].set(True)
  inside &= values >= filters.min_p * values[:, :1]
  rank = draw(jnp.where(inside, probs, 0.0), uniform)
  return jnp.take_along_axis(order, rank[:, None], 1)[:, 0].astype(jnp.int32)


def _filtered_draw(weights, uniform, filters: Filters, going) -> jax.Array:
  """Draws from weights [B, V], the largest of each row 1, what is let in."""
  size = weights.shape[-1]
  if filters.top_k == 0 and filters.top_p == 1.0:
    # The only filter that does not need an order.
    return draw(jnp.where(weights >= filters.min_p, weights, 0.0), uniform)
  if filters.top_k:
    count = min(filters.top_k, size)
    return _draw_from_head(weights, uniform, filters, count)
  if size <= _HEAD:
    return _draw_from_head(weights, uniform, filters, size)
  # Sorting a vocabulary costs more than a model's step; a nucleus is small
  # unless the policy is lost, and then the whole order is there to be used.
  head = lax.top_k(weights, _HEAD)[0].sum(-1)
  enough = head >= filters.top_p * weights.sum(-1)
  if going is not None:
    enough |= ~going
  return lax.cond(
    enough.all(),
    lambda: _draw_from_head(weights, uniform, filters, _HEAD),
    lambda: _draw_from_head(weights, uniform, filters, size),
  )


def next_token(
  logits: jax.Array,
  uniform: jax.Array,
  temperature: jax.Array,
  filters: Filters = NO_FILTERS,
  going: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Draws one token a row.

  Args:
    logits: [B, V] float32.
    uniform: [B] in [0, 1).
    temperature: scalar; 0 takes the most likely token.
    filters: static; which tokens may be drawn.
    going: [B] bool, rows whose token somebody wants; all where not given.

  Returns:
    Tokens [B] int32, and log softmax(logits)[token] [B]: the policy's own
    probability, before temperature and filters.
  """
  top = logits.max(-1, keepdims=True)
  log_total = jnp.log(jnp.exp(logits - top).sum(-1))

  def greedy():
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)

  def random():
    weights = jnp.exp((logits - top) / jnp.maximum(temperature, 1e-6))
    if filters == NO_FILTERS:
      return draw(weights, uniform)
    return _filtered_draw(weights, uniform, filters, going)

  token = lax.cond(temperature > 0, random, greedy)
  chosen = jnp.take_along_axis(logits - top, token[:, None], 1)[:, 0]
  return token, chosen - log_total
