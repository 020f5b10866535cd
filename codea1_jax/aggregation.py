"""Averages over the tokens or sequences of a minibatch that is cut into parts.

Every part divides by counts of the whole global minibatch, so that its shares
add up to the average, wherever the cuts are. A row is one sequence, or, packed
(packing.py), several.

Letters: B rows, T completion tokens, S sequences that share a row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

AGGREGATIONS = (
  "token_mean",
  "seq_mean_token_mean",
  "seq_mean_token_sum",
  "seq_mean_token_sum_norm",
)


class Denominators(NamedTuple):
  """What averages divide by: counts of a whole global minibatch, not a part."""

  tokens: jax.Array  # [] completion tokens
  sequences: jax.Array  # [] sequences with a completion token


def count_denominators(
  completion_mask: jax.Array, sequences: jax.Array | None = None
) -> Denominators:
  """Counts of one part [..., T] of a minibatch: sum them over all the parts."""
  lengths = sequence_lengths(completion_mask, sequences)
  return Denominators(lengths.sum(), (lengths > 0).sum().astype(jnp.float32))


def sequence_sums(
  values: jax.Array,
  completion_mask: jax.Array,
  sequences: jax.Array | None = None,
) -> jax.Array:
  """The sum of every sequence, [B, 1], or [B, S] where S share a row.

  Args:
    values: [B, T] a token; masked ones may hold anything, even NaN.
    completion_mask: [B, T].
    sequences: [B, S, T] bool, the tokens of each; None: a row is a sequence.
  """
  # where, not a product: the NaN would stay.
  values = jnp.where(completion_mask > 0, values, 0.0)
  if sequences is None:
    return values.sum(-1, keepdims=True)
  return jnp.where(sequences, values[..., None, :], 0.0).sum(-1)


def sequence_lengths(
  completion_mask: jax.Array, sequences: jax.Array | None = None
) -> jax.Array:
  """Completion tokens of every sequence, as `sequence_sums` gives them."""
  mask = completion_mask.astype(jnp.float32)
  return sequence_sums(mask, mask, sequences)


def aggregate(
  values: jax.Array,
  completion_mask: jax.Array,
  denominators: Denominators,
  *,
  aggregation: str = "token_mean",
  horizon: int | None = None,
  sequences: jax.Array | None = None,
) -> jax.Array:
  """This part's share of a minibatch average; shares add up to the average.

  token_mean: sum of all tokens / tokens (Code-A1). seq_mean_token_mean: each
  sequence's mean / sequences. seq_mean_token_sum: each sequence's sum /
  sequences. seq_mean_token_sum_norm: sum of all tokens / horizon (Dr. GRPO).

  Args:
    values: [B, T] a token.
    completion_mask: [B, T].
    denominators: of the whole global minibatch.
    aggregation: one of AGGREGATIONS.
    horizon: tokens that `seq_mean_token_sum_norm` divides by; default T, which
      changes with the padding, and is not there where sequences share a row.
    sequences: [B, S, T], as `sequence_sums` takes them.

  Returns:
    A scalar; 0 for a minibatch without tokens.

  Raises:
    ValueError: unknown aggregation, or no horizon where one is needed.
  """
  sums = sequence_sums(values, completion_mask, sequences)
  if aggregation == "token_mean":
    return sums.sum() / jnp.maximum(denominators.tokens, 1)
  if aggregation == "seq_mean_token_mean":
    lengths = sequence_lengths(completion_mask, sequences)
    means = sums / jnp.maximum(lengths, 1)
    return means.sum() / jnp.maximum(denominators.sequences, 1)
  if aggregation == "seq_mean_token_sum":
    return sums.sum() / jnp.maximum(denominators.sequences, 1)
  if aggregation == "seq_mean_token_sum_norm":
    if sequences is not None and horizon is None:
      raise ValueError(f"{aggregation} of packed rows needs a horizon: None")
    return sums.sum() / (horizon or values.shape[-1])
  raise ValueError(f"aggregation {aggregation!r} is not one of {AGGREGATIONS}")


def token_mean(
  values: jax.Array, completion_mask: jax.Array, denominators: Denominators
) -> jax.Array:
  """This part's share of the mean over all tokens of the global minibatch."""
  return aggregate(values, completion_mask, denominators)
