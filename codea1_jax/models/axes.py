"""Names for the axes of parameters and activations, for a mesh to cut.

The model says what an axis is; which axis of which mesh it lies along is the
business of rules (devices.py). Without rules everything here does nothing.

  rows      sequences, prompts, slots and samples
  vocab     entries of the vocabulary
  embed     the residual stream of parameters; activations keep theirs whole
  kv_heads  key/value heads, each with its queries
  mlp       the gated mlp's inner width
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

# Of each parameter, stacked over layers where it is one of a layer's.
PARAMETERS = {
  "embedding": ("vocab", "embed"),
  "head": ("vocab", "embed"),
  "qkv": (None, "embed", "kv_heads", None, None),
  "qkv_bias": (None, "kv_heads", None, None),
  "out": (None, "kv_heads", None, None, "embed"),
  "gate_up": (None, "embed", None, "mlp"),
  "down": (None, "mlp", "embed"),
}
# Of the outputs and inputs of projections; heads lie in front of their width.
_OUTPUTS = {
  "q_proj": "kv_heads",
  "k_proj": "kv_heads",
  "v_proj": "kv_heads",
  "gate_proj": "mlp",
  "up_proj": "mlp",
}
_INPUTS = {"o_proj": "kv_heads", "down_proj": "mlp"}


def leaf_axes(
  path: tuple[Any, ...], ndim: int
) -> tuple[str | None, ...] | None:
  """The names of a leaf's axes, by its place in a tree of parameters.

  Optimizer states hold trees of the same names, and so do gradients; a
  layer's leaf that is not stacked lacks the first axis.

  Args:
    path: of the leaf, as `jax.tree_util` gives it.
    ndim: its number of axes.

  Returns:
    A name or None for each axis; None for a leaf that is no parameter, or one
    that is held whole, as norms are.
  """
  keys = [k.key for k in path if isinstance(k, jax.tree_util.DictKey)]
  if not keys:
    return None
  if keys[-1] in ("a", "b") and len(keys) > 1:
    axes = _adapter_axes(keys[-2], keys[-1])
  else:
    axes = PARAMETERS.get(keys[-1])
  return None if axes is None else axes[len(axes) - ndim :]


def _adapter_axes(projection: str, part: str):
  """Of A [L, in, R] and B [L, R, out] beside one projection."""
  if part == "a":
    return None, _INPUTS.get(projection, "embed"), None
  return None, None, _OUTPUTS.get(projection, "embed")


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
  """x, cut along its named axes; all others whole."""
  return nn.with_logical_constraint(x, axes)


def constrain_tree(tree: Any, *, whole: tuple[str, ...] = ()) -> Any:
  """Parameters, or what is shaped as they are, cut as their names say.

  Args:
    tree: its leaves that are no parameters are left to the compiler.
    whole: axes that are not cut.
  """

  def one(path, leaf):
    axes = leaf_axes(path, leaf.ndim)
    if axes is None:
      return leaf
    return constrain(leaf, *(None if a in whole else a for a in axes))

  return jax.tree_util.tree_map_with_path(one, tree)


def take(
  x: jax.Array, index: jax.Array, groups: int = 1, axis: int = 0
) -> jax.Array:
  """x at `index` [I] along an axis, of G equal groups in each: index i // G
  counts within its group, so that nothing leaves the device that has it."""
  if groups == 1:
    return jnp.take(x, index, axis, mode="clip")
  before, after = x.shape[:axis], x.shape[axis + 1 :]
  grouped = x.reshape(*before, groups, -1, *after)
  index = index.reshape(groups, -1)
  pick = functools.partial(jnp.take, axis=axis, mode="clip")
  found = jax.vmap(pick, (axis, 0), axis)(grouped, index)
  return found.reshape(*before, -1, *after)


def shards(axis: str) -> int:
  """In how many parts the mesh at hand cuts an axis; 1 without rules."""
  rules = dict(nn.get_logical_axis_rules())
  names = rules.get(axis)
  if not names:
    return 1
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  names = (names,) if isinstance(names, str) else names
  total = 1
  for name in names:
    total *= sizes.get(name, 1)
  return total
