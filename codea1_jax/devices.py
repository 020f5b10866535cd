"""How arrays lie on devices, and how a function runs on all of them.

This is the only file that knows. `pmap`: every device holds everything and
does a group of the rows. `mesh`: one program over a mesh of
("data", "fsdp", "tensor"); parameters, moments and gradients are cut along
fsdp and tensor, rows along data and fsdp, by the names of their axes
(models/axes.py). The arithmetic is the same, and so are the numbers.

To callers both look alike: rows are in G groups, arrays [G, ...], and what is
*held* (parameters, states, caches) is whatever the last function left.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codea1_jax.models import axes

KINDS = ("pmap", "mesh")
MESH_AXES = ("data", "fsdp", "tensor")
_ROWS = ("data", "fsdp")
_DEVICES = "devices"  # pmap's one axis
# Axis of parameters or activations -> axes of the mesh.
RULES = (
  ("rows", _ROWS),
  ("vocab", "tensor"),
  ("kv_heads", "tensor"),
  ("mlp", "tensor"),
  ("embed", "fsdp"),
)


@dataclasses.dataclass(frozen=True)
class Parallel:
  """Devices, and how arrays lie on them."""

  kind: str
  devices: tuple[jax.Device, ...]
  shape: tuple[int, int, int] = (1, 1, 1)  # of the mesh

  @functools.cached_property
  def mesh(self) -> Mesh:
    """pmap's has one axis."""
    if self.kind == "pmap":
      return Mesh(np.array(self.devices), (_DEVICES,))
    devices = np.array(self.devices).reshape(self.shape)
    automatic = (jax.sharding.AxisType.Auto,) * len(MESH_AXES)
    return Mesh(devices, MESH_AXES, axis_types=automatic)

  @property
  def num_groups(self) -> int:
    """G: of rows, one a device with pmap, else one a (data, fsdp)."""
    data, fsdp, _ = self.shape
    return len(self.devices) if self.kind == "pmap" else data * fsdp

  @property
  def groups_inside(self) -> int:
    """How many of them one program has."""
    return 1 if self.kind == "pmap" else self.num_groups

  @property
  def cuts_layers(self) -> bool:
    """Whether a device has a part of each head's or mlp's outputs only."""
    return self.kind == "mesh" and self.shape[-1] > 1

  def psum(self, tree: Any) -> Any:
    """Sums of what all programs have; one program has everything."""
    return lax.psum(tree, _DEVICES) if self.kind == "pmap" else tree

  def pmax(self, tree: Any) -> Any:
    """The largest of what all programs have."""
    return lax.pmax(tree, _DEVICES) if self.kind == "pmap" else tree

  def map(
    self,
    fn: Callable,
    *,
    held: Sequence[int] = (0,),
    gives: str | tuple[str, ...] = "rows",
    rows_axis: int = 0,
    donate: Sequence[int] = (),
    static: Sequence[int] = (),
  ) -> Callable:
    """`fn` over all groups of rows.

    Args:
      fn: traceable, of positional arguments. It sees the rows of all groups of
        its program at `rows_axis`, one group after the other; arguments that
        are a number a group it sees as a scalar with pmap, as [G] on a mesh.
      held: places of arguments that are held and not made of rows.
      gives: what it returns, or each part of a tuple: "rows"; "params", held
        and cut as parameters are; "held", as the compiler leaves it.
      rows_axis: see fn; arguments and results outside have [G, ...] instead.
      donate: places of arguments whose memory the results may take.
      static: places of hashable arguments, a compilation for each value.

    Returns:
      A function of held trees and arrays [G, ...]. Its method `lower` takes
      their shapes too, and gives what jax.jit's gives.
    """
    if self.kind == "pmap":
      return jax.pmap(
        fn,
        axis_name=_DEVICES,
        devices=self.devices,
        donate_argnums=tuple(donate),
        static_broadcasted_argnums=tuple(static),
      )
    as_given = {*held, *static}

    def program(*args):
      args = [
        arg if at in as_given else _join(arg, rows_axis)
        for at, arg in enumerate(args)
      ]
      return self._give(fn(*args), gives, rows_axis)

    jitted = jax.jit(
      program, donate_argnums=tuple(donate), static_argnums=tuple(static)
    )

    def in_mesh(run):
      @functools.wraps(fn)
      def call(*args):
        args = [
          arg if at in as_given else self._spread(arg)
          for at, arg in enumerate(args)
        ]
        with jax.set_mesh(self.mesh), nn.logical_axis_rules(RULES):
          return run(*args)

      return call

    call = in_mesh(jitted)
    call.lower = in_mesh(jitted.lower)
    return call

  def place(self, tree: Any) -> Any:
    """Parameters, or a state of them, as this holds them."""
    if self.kind == "mesh":
      return jax.tree.map(_put, tree, self.shardings(tree))
    split = NamedSharding(self.mesh, PartitionSpec(_DEVICES))

    def copy(leaf):
      leaf = np.asarray(leaf)
      shape = (self.num_groups, *leaf.shape)
      return jax.device_put(np.broadcast_to(leaf, shape), split)

    return jax.tree.map(copy, tree)

  def fetch(self, tree: Any) -> Any:
    """What `place` was given: of pmap's copies the first, which a later
    donation leaves alone; of a mesh's the arrays as they are."""
    if self.kind == "mesh":
      return tree
    return jax.tree.map(lambda leaf: leaf.addressable_shards[0].data[0], tree)

  def shardings(self, tree: Any) -> Any:
    """Of parameters, or a state of them, on a mesh, each leaf's.

    Raises:
      ValueError: names a leaf with an axis that the mesh does not divide.
    """

    def one(path, leaf):
      names = axes.leaf_axes(path, len(leaf.shape)) or ()
      spec = nn.logical_to_mesh_axes(names, RULES)
      for size, name, along in zip(leaf.shape, names, spec):
        parts = self.mesh.shape[along] if along else 1
        if size % parts:
          raise ValueError(
            f"mesh.{along} is {parts}, which does not divide {name} = {size}"
            f" of {jax.tree_util.keystr(path)}"
          )
      return NamedSharding(self.mesh, PartitionSpec(*spec))

    return jax.tree_util.tree_map_with_path(one, tree)

  def to_host(self, tree: Any) -> Any:
    """Arrays [G, ...] as numpy, on every host."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
      return jax.tree.map(np.asarray, tree)
    return jax.tree.map(np.asarray, _everywhere(self.mesh)(tree))

  def _spread(self, tree: Any) -> Any:
    """Arrays [G, ...] of the host, a group a (data, fsdp)."""
    sharding = NamedSharding(self.mesh, PartitionSpec(_ROWS))
    return jax.tree.map(lambda leaf: _put(leaf, sharding), tree)

  def _give(self, result, gives, rows_axis):
    if isinstance(gives, tuple):
      return tuple(
        self._give(part, kind, rows_axis)
        for part, kind in zip(result, gives, strict=True)
      )
    if gives == "rows":
      return _split(result, rows_axis, self.num_groups)
    return axes.constrain_tree(result) if gives == "params" else result


def make_parallel(
  kind: str = "pmap",
  devices: Sequence[jax.Device] | None = None,
  *,
  data: int = 1,
  fsdp: int = -1,
  tensor: int = 1,
) -> Parallel:
  """Devices to compute on.

  Args:
    kind: one of KINDS.
    devices: by default all of this host with pmap, of all hosts with mesh.
    data: copies of the parameters on a mesh; rows are split among them.
    fsdp: parts of parameters, among which rows are split too.
    tensor: parts of heads, mlp and vocabulary, each of which sees all rows of
      its group. One of the three may be -1: what is left.

  Raises:
    ValueError: unknown kind, no device, or a mesh of another number of them.
  """
  if kind not in KINDS:
    raise ValueError(f"parallel {kind!r} is not one of {KINDS}")
  if devices is None:
    devices = jax.local_devices() if kind == "pmap" else jax.devices()
  devices = tuple(devices)
  if not devices:
    raise ValueError("make_parallel: an empty list of devices")
  if kind == "mesh":
    return Parallel(kind, devices, mesh_shape(len(devices), data, fsdp, tensor))
  if jax.process_count() > 1:
    raise ValueError("parallel 'pmap' is for one host: several need 'mesh'")
  return Parallel(kind, devices)


def halves() -> tuple[list[jax.Device], list[jax.Device]]:
  """The first and the second half of every host's devices.

  Raises:
    ValueError: a host has an odd number of them.
  """
  of_host: dict[int, list[jax.Device]] = {}
  for device in jax.devices():
    of_host.setdefault(device.process_index, []).append(device)
  first, second = [], []
  for host, found in of_host.items():
    if len(found) % 2:
      raise ValueError(f"host {host} has {len(found)} devices: no two halves")
    first += found[: len(found) // 2]
    second += found[len(found) // 2 :]
  return first, second


def mesh_shape(
  count: int, data: int, fsdp: int, tensor: int
) -> tuple[int, int, int]:
  """data, fsdp, tensor; -1 for one of them is what is left.

  Raises:
    ValueError: a mesh of another number of devices.
  """
  sizes = data, fsdp, tensor
  named = ", ".join(f"{n} {s}" for n, s in zip(MESH_AXES, sizes))
  given = int(np.prod([size for size in sizes if size != -1]))
  if min(sizes) < -1 or 0 in sizes or sizes.count(-1) > 1 or count % given:
    raise ValueError(f"mesh {named} does not fit {count} devices")
  shape = tuple(count // given if size == -1 else size for size in sizes)
  if np.prod(shape) != count:
    raise ValueError(f"mesh {named} does not fit {count} devices")
  return shape


def _put(leaf: Any, sharding: NamedSharding) -> jax.Array:
  """A leaf that every host has, or its shape, with the sharding."""
  if isinstance(leaf, jax.ShapeDtypeStruct):
    return leaf.update(sharding=sharding)
  if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
    return leaf
  if isinstance(leaf, jax.Array) or sharding.is_fully_addressable:
    return jax.device_put(leaf, sharding)
  leaf = np.asarray(leaf)
  return jax.make_array_from_callback(
    leaf.shape, sharding, lambda index: leaf[index]
  )


@functools.cache
def _everywhere(mesh: Mesh) -> Callable:
  """Gives every device all of its argument."""
  return jax.jit(
    lambda tree: tree, out_shardings=NamedSharding(mesh, PartitionSpec())
  )


def _join(tree: Any, rows_axis: int) -> Any:
  """[G, ..., rows, ...] -> [..., G * rows, ...]; [G] stays what it is."""

  def join(leaf):
    if leaf.ndim == 1:
      return leaf
    leaf = jnp.moveaxis(leaf, 0, rows_axis)
    shape = leaf.shape
    merged = (shape[rows_axis] * shape[rows_axis + 1],)
    leaf = leaf.reshape(shape[:rows_axis] + merged + shape[rows_axis + 2 :])
    names = [None] * leaf.ndim
    names[rows_axis] = "rows"
    return axes.constrain(leaf, *names)

  return jax.tree.map(join, tree)


def _split(tree: Any, rows_axis: int, groups: int) -> Any:
  """The inverse of `_join`."""

  def split(leaf):
    shape = leaf.shape
    parts = (groups, shape[rows_axis] // groups)
    leaf = leaf.reshape(shape[:rows_axis] + parts + shape[rows_axis + 1 :])
    leaf = jnp.moveaxis(leaf, rows_axis, 0)
    return axes.constrain(leaf, "rows", *[None] * (leaf.ndim - 1))

  return jax.tree.map(split, tree)
