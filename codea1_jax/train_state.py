"""What training carries from step to step, and what one update eats."""

from __future__ import annotations

import typing
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from codea1_jax.curriculum import PassRates

if typing.TYPE_CHECKING:
  from codea1_jax.mistake_book import MistakeBook

Array = jax.Array | np.ndarray


@flax.struct.dataclass
class PolicyState:
  """One policy, on device."""

  step: Array  # [] int32, updates done
  params: Any  # the model's pytree
  opt_state: optax.OptState  # moments, shaped as params


@flax.struct.dataclass
class UpdateBatch:
  """A minibatch of sequences, each a prompt and its completion.

  Padded, as scoring has it, a row is one sequence: P prompt tokens, padded on
  the left, and T completion tokens, padded on the right. Packed (packing.py),
  a row of P + T tokens holds several whole sequences, one after the other, and
  the T completion tokens are those of all of them that are trained on. With
  shared prompts, a row is one prompt and T = N * U tokens behind it, N slots of
  U tokens that hold whole completions of that prompt.
  Supervised training needs no more than tokens, valid and completion_mask.
  """

  tokens: Array  # [B, P + T] int32
  valid: Array  # [B, P + T] bool, False at padding
  completion_mask: Array  # [B, T], 1 at tokens that are trained on
  # [B] float32; where a row holds several sequences [B, T].
  advantages: Array | None = None
  behavior_log_probs: Array | None = None  # [B, T] float32
  ref_log_probs: Array | None = None  # [B, T] float32; None without a KL term
  importance_weights: Array | None = None  # [B, T] float32; None for all ones
  # Rows of several sequences only: the one of each token, 1.. within a row, 0
  # at padding and in a shared prompt; and how many a row may hold.
  segments: Array | None = None  # [B, P + T] int32
  max_segments: int = flax.struct.field(pytree_node=False, default=1)
  # Packed rows only: the place in the row of the state that predicts each
  # completion token, which stands at the next place.
  places: Array | None = None  # [B, T] int32
  # Shared prompts only: (P, U).
  slots: tuple[int, int] | None = flax.struct.field(
    pytree_node=False, default=None
  )


@flax.struct.dataclass
class RunState:
  """Everything a resumed run needs; one checkpoint holds all of it."""

  code: PolicyState
  test: PolicyState
  book: MistakeBook = flax.struct.field(pytree_node=False)
  step: int = flax.struct.field(pytree_node=False, default=0)
  # What a curriculum orders problems by; empty without one.
  pass_rates: PassRates = flax.struct.field(
    pytree_node=False, default=PassRates()
  )


def create_policy_state(
  params: Any, optimizer: optax.GradientTransformation
) -> PolicyState:
  """A policy before its first update; moments are of the optimizer's dtype,
  never of the parameters'."""
  # Gradients come in float32, so moments begun in bfloat16 with parameters, and
  # not by the optimizer's own storage, would change their dtype in the first
  # update: a second compilation, and a resume that rounds.
  wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
  return PolicyState(
    step=np.zeros((), np.int32),
    params=params,
    opt_state=optimizer.init(wide),
  )
