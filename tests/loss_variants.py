"""Every variant of the GRPO loss in one compiled function, for invariances."""

import dataclasses
import itertools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from codea1_jax import grpo, losses, train_state

VARIANTS = tuple(itertools.product(grpo.AGGREGATIONS, grpo.RATIOS))

# Gradients as they are: read off changed parameters, they would be rounded.
KEEP_GRADIENTS = optax.GradientTransformation(
  init=lambda params: jax.tree.map(jnp.zeros_like, params),
  update=lambda grads, state, params: (
    jax.tree.map(jnp.zeros_like, grads),
    grads,
  ),
)


@flax.struct.dataclass
class ChosenBatch(train_state.UpdateBatch):
  """A minibatch that says which variant it is for: one compilation for all."""

  variant: Any = None  # [B, variants], 1 at the chosen one


def chosen_objective(config, log_probs, entropy, batch, denominators):
  """Loss and metrics of the chosen variant; every other one counts 0 times."""
  shares = [
    losses.grpo_objective(
      dataclasses.replace(config, aggregation=aggregation, ratio=ratio),
      log_probs,
      entropy,
      batch,
      denominators,
    )
    for aggregation, ratio in VARIANTS
  ]
  return jax.tree.map(
    lambda *leaves: (jnp.stack(leaves) * batch.variant[0]).sum(), *shares
  )
