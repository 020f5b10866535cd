"""What never changes while a run trains: the references, the base of adapters.

The reference of a role's KL term is its policy as loaded, a full copy. It
scores once a step and waits for the rest of it: bfloat16 halves it, and loses
nothing where the model's files are bfloat16; on the host it takes none of the
devices' memory but while it scores, for a copy to them a step.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codea1_jax.devices import Parallel
from codea1_jax.rollout import Policy

DTYPES = ("same", "bfloat16")
PLACEMENTS = ("device", "host")


@dataclasses.dataclass(frozen=True)
class Reference:
  """Parameters that lie on the devices, or are put there when asked for."""

  params: Any  # placed, or numpy arrays where `parallel` is given
  parallel: Parallel | None = None

  def on_devices(self) -> Any:
    """Placed; what was put there goes with the last use of it."""
    if self.parallel is None:
      return self.params
    return self.parallel.place(self.params)


def is_default(fields: Any) -> bool:
  """Whether the config's `reference` asks for what was loaded, in place."""
  return (fields.dtype, fields.placement) == (DTYPES[0], PLACEMENTS[0])


def still_parameters(
  config: Any,
  policies: Mapping[str, tuple[Policy, Any]],
  roles: Sequence[str],
  parallel: Mapping[str, Parallel],
) -> tuple[dict[str, Any], dict[str, Reference | None]]:
  """What is held and never changes, each copy once.

  Args:
    config: see configs/tiny.py.
    policies: by role, with their parameters as loaded; may be one for both.
    roles: those with a KL term.
    parallel: each role's devices.

  Returns:
    For each role the base that its adapters stand beside, placed, or None; and
    its reference or None: the base, or the policy as loaded.

  Raises:
    ValueError: a reference on the host, of a mesh of several.
  """
  copies: dict[Any, Reference] = {}

  def keep(role, fields):
    where, params = parallel[role], policies[role][1]
    if (where, id(params)) not in copies:  # self-play's are one
      copies[where, id(params)] = _keep(fields, params, where)
    return copies[where, id(params)]

  frozen: dict[str, Any] = dict.fromkeys(policies)
  references: dict[str, Reference | None] = dict.fromkeys(policies)
  for role in policies:
    if config.lora.rank:
      frozen[role] = keep(role, None).params
    if role in roles:
      references[role] = keep(role, config.reference)
  return frozen, references


def _keep(fields: Any, params: Any, parallel: Parallel) -> Reference:
  """A copy in the dtype and the place that the config wants; as it is for
  None."""
  if fields and fields.dtype != "same":
    dtype = jnp.dtype(fields.dtype)
    params = jax.tree.map(lambda x: x.astype(dtype), params)
  if not fields or fields.placement == "device":
    return Reference(parallel.place(params))
  leaves = jax.tree.leaves(params)
  if not all(getattr(x, "is_fully_addressable", True) for x in leaves):
    raise ValueError(
      "reference.placement is host, but no host has all of a mesh of several"
    )
  return Reference(jax.tree.map(np.asarray, params), parallel)
