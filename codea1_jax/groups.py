"""Groups of samples whose rewards are compared, and the batch they become.

Letters: P prompts, G samples of a prompt.
"""

import dataclasses
from typing import Any

import numpy as np

from codea1_jax import grpo, metrics
from codea1_jax.player import Player, Samples
from codea1_jax.train_state import PolicyState, UpdateBatch


@dataclasses.dataclass(frozen=True)
class Groups:
  """Samples of one role whose rewards are compared with each other."""

  samples: Samples  # [P] prompts with G samples each
  reward: np.ndarray  # [P, G]
  mask: np.ndarray  # bool [P, G]

  @property
  def informative(self) -> np.ndarray:
    """bool [P]: the rewards of the group are not all equal."""
    return grpo.reward_spread(self.reward, self.mask) > 0


def prepare(
  config: Any, player: Player, state: PolicyState, groups: Groups
) -> tuple[UpdateBatch, dict[str, float]]:
  """Group-normalized advantages and a scored batch of all groups' rows.

  Where zero-variance groups are dropped, those that teach come first, others
  fill up the batch and are masked: its shape, and with it the compiled update,
  stays what it is.
  """
  numbers = metrics.summary_statistics(groups.reward[groups.mask], "reward")
  informative = groups.informative
  numbers["zero_variance_share"] = float(1 - informative.mean())
  if config.selection.drop_zero_variance:
    groups = fill(groups, player.groups_a_step)
  advantages = grpo.group_advantages(
    groups.reward,
    mask=groups.mask,
    norm_by_std=config.grpo.norm_by_std,
    std=config.grpo.std,
  )
  batch, described = player.prepare(
    state.params,
    groups.samples.rows(range(len(groups.samples.prompts))),
    np.asarray(advantages).reshape(-1),
    groups.mask.reshape(-1),
  )
  return batch, numbers | described


def fill(groups: Groups, limit: int) -> Groups:
  """At most `limit` groups, informative ones first; the others are masked."""
  order = np.argsort(~groups.informative, kind="stable")[:limit]
  mask = groups.mask & groups.informative[:, None]
  return Groups(
    groups.samples.take(order.tolist()), groups.reward[order], mask[order]
  )
