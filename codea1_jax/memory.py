"""Bytes that a step's compiled programs need on a device, from shapes alone.

Parameters, moments, gradients and caches are counted. Activations are a sum
over what the model's code makes, in widths of its arrays; the factors in front
were read off XLA's buffer assignments on a CPU, jax 0.10, which the tests
compare with. An accelerator's compiler fuses more and copies less.

Letters as in qwen.py; N tokens of a pass, B rows, S tokens of a row.
"""

import dataclasses
import functools
import math
from typing import Any

import jax

from codea1_jax.flops import query_blocks
from codea1_jax.models import axes, lora, qwen
from codea1_jax.models.config import QwenConfig


@dataclasses.dataclass(frozen=True)
class Cut:
  """How devices share parameters and rows."""

  groups: int  # of rows: those of a group are on its devices only
  fsdp: int = 1  # parts of parameters that are gathered to be used
  tensor: int = 1  # parts of heads, mlp and vocabulary
  mesh: bool = False  # else pmap

  @property
  def gathered(self) -> "Cut":
    """As parameters are used."""
    return dataclasses.replace(self, fsdp=1)


def size_of(dtype: str) -> int:
  return {"float32": 4, "bfloat16": 2}[dtype]


@functools.cache
def parameters(model: QwenConfig, cut: Cut) -> dict[str, int]:
  """Elements on a device, by leaf."""
  return _elements(qwen.param_shapes(model), cut)


@functools.cache
def adapters(model: QwenConfig, settings: lora.LoraConfig, cut: Cut) -> int:
  """Elements on a device."""
  shapes = lora.adapter_shapes(model, settings)
  return sum(_elements(shapes, cut).values())


def _elements(shapes: Any, cut: Cut) -> dict[str, int]:
  """Of each leaf of a tree of shapes, by the leaf's name in it.

  Raises:
    ValueError: names a leaf with an axis that the mesh does not divide.
  """
  parts = {"embed": cut.fsdp} | dict.fromkeys(
    ("vocab", "kv_heads", "mlp"), cut.tensor
  )
  leaves = jax.tree_util.tree_leaves_with_path(
    shapes, is_leaf=lambda x: type(x) is tuple
  )
  found = {}
  for path, shape in leaves:
    names = axes.leaf_axes(path, len(shape)) or ()
    key = jax.tree_util.keystr(path, simple=True, separator="/")
    for size, name in zip(shape, names):
      if size % parts.get(name, 1):
        raise ValueError(
          f"a mesh that cuts {name} in {parts[name]} does not divide {size} of"
          f" {key}"
        )
    divisor = math.prod(parts.get(name, 1) for name in names)
    found[key] = math.prod(shape) // divisor
  return found


# (P, U) of rows of a shared prompt and slots, see qwen.hidden_states.
Slots = tuple[int, int] | tuple[()]


@dataclasses.dataclass(frozen=True)
class Widths:
  """What a pass over B rows of S tokens makes; elements on one device."""

  stream: int  # N D
  queries: int  # N K G H
  mlp: int  # N F
  keys: int  # keys that the blocks of queries meet, B K H each
  weights: int  # attention's, of all heads
  bias: int  # attention's mask
  shared: int  # of the weights, those of a shared prompt

  @classmethod
  def of(
    cls,
    model: QwenConfig,
    rows: int,
    length: int,
    cut: Cut,
    slots: Slots = (),
  ) -> "Widths":
    tokens = rows * length
    pairs, met = _pairs(rows, length)
    shared = 0  # pairs that need no mask of their own
    if slots:
      prompt, slot = slots
      count = (length - prompt) // slot
      (first, met), (rest, more) = (
        _pairs(rows, prompt),
        _pairs(rows * count, slot),
      )
      shared = rows * count * slot * prompt
      pairs, met = first + rest, met + more + rows * prompt
    return cls(
      stream=tokens * model.hidden_size,
      queries=tokens * model.num_heads * model.head_dim // cut.tensor,
      mlp=tokens * model.intermediate_size // cut.tensor,
      keys=met * model.num_kv_heads * model.head_dim // cut.tensor,
      weights=(pairs + shared) * model.num_heads // cut.tensor,
      bias=pairs,
      shared=shared * model.num_heads // cut.tensor,
    )


def _pairs(rows: int, length: int) -> tuple[int, int]:
  """Of queries and the keys that they meet, and such keys by block."""
  blocks = list(query_blocks(length))
  return (
    rows * sum(size * stop for size, stop in blocks),
    rows * sum(stop for _, stop in blocks),
  )


# Bytes that a backward pass keeps of each layer, and more that it takes at its
# peak, for an element of each of Widths' fields, by whether layers are scanned,
# the dtype and what is kept. XLA's CPU backend computes unrolled layers once,
# whatever `remat` says.
_NAMES = ("stream", "queries", "mlp", "keys", "weights", "bias")
_KEPT = {
  (False, "float32", None): ((24, 12, 16, 8, 4, 3), (0, 0, 20, 0, 0, 0)),
  (False, "bfloat16", None): ((29, 13, 15, 8, 8, 0), (0, 0, 17, 0, 0, 0)),
  (True, "float32", "full"): ((0, 0, 0, 0, 0, 0), (34, 15, 36, 3, 4, 0)),
  (True, None, "full"): ((0, 0, 0, 0, 0, 0), (34, 15, 36, 3, 8, 0)),
  (True, None, "none"): ((22, 10, 20, 4, 4, 0), (27, 21, 40, 15, 5, 0)),
  (True, None, "dots"): ((8, 8, 8, 4, 4, 0), (8, 8, 32, 6, 8, 0)),
  (True, None, "dots_no_batch"): ((8, 4, 8, 4, 0, 0), (8, 8, 32, 6, 8, 0)),
}


def forward(
  model: QwenConfig,
  rows: int,
  length: int,
  cut: Cut,
  adapted: bool = False,
  slots: Slots = (),
) -> int:
  """Bytes of activations where nothing is kept for a backward pass.

  Masks of all layers stand side by side where these are not scanned.
  """
  width = Widths.of(model, rows, length, cut, slots)
  if model.scan_layers:
    masks, mlp, stream, shared = 1, 3 + 4 * adapted, 3, 0
  else:
    masks = model.num_layers - (not cut.mesh)
    mlp, stream, shared = 3 + 2 * adapted, 5, width.shared
  sizes = masks * width.bias, mlp * width.mlp, stream * width.stream, shared
  return 4 * sum(sizes)


def backward(
  model: QwenConfig,
  rows: int,
  length: int,
  cut: Cut,
  adapted: bool = False,
  slots: Slots = (),
) -> int:
  """Bytes of activations of a forward and a backward pass at their peak."""
  width = Widths.of(model, rows, length, cut, slots)
  kept, more = _factors(model)
  sizes = [getattr(width, name) for name in _NAMES]
  layer = sum(f * size for f, size in zip(kept, sizes))
  if model.scan_layers:  # what the scan carries
    layer += size_of(model.dtype) * width.stream
  peak = sum(f * size for f, size in zip(more, sizes))
  return model.num_layers * layer + peak + 16 * adapted * width.mlp


def _factors(model: QwenConfig):
  """Of _KEPT, the row that a model's computation has."""
  for dtype in (model.dtype, None):
    for remat in (model.remat, None):
      found = _KEPT.get((model.scan_layers, dtype, remat))
      if found:
        return found
  raise AssertionError(f"no row of _KEPT for {model}")


def gathered(model: QwenConfig, cut: Cut) -> int:
  """Bytes of what a pass gathers along fsdp: the tables, and one layer."""
  if cut.fsdp == 1:
    return 0
  leaves = parameters(model, cut.gathered)
  tables = sum(leaves.get(name, 0) for name in ("embedding", "head"))
  layer = (sum(leaves.values()) - tables) // model.num_layers
  return size_of(model.param_dtype) * (tables + layer)


def cached_token(model: QwenConfig, cut: Cut) -> int:
  """Keys and values of a token in all layers, in bytes."""
  heads = 2 * model.num_layers * model.num_kv_heads // cut.tensor
  return heads * model.head_dim * size_of(model.dtype)


def decoding(
  model: QwenConfig, slots: int, rows: int, prompt: int, ring: int, cut: Cut
) -> int:
  """Activations of a decode step: logits, and one layer's attention.

  Args:
    model: the policy's shape.
    slots: that share a prompt's cache.
    rows: samples.
    prompt: tokens of a prompt.
    ring: tokens of a sample.
    cut: how devices share.
  """
  logits = 4 * rows * model.vocab_size // cut.tensor
  scores = 4 * rows * model.num_heads // cut.tensor * (prompt + ring)
  wide = 0
  if model.dtype != "float32":  # a layer's keys, where no matmul takes bfloat16
    tokens = max(slots * prompt, rows * ring)
    wide = 4 * tokens * model.num_kv_heads // cut.tensor * model.head_dim
  return logits + 2 * scores + wide


def updating(params: int, moments: int, trained: int, activations: int) -> int:
  """Temporary bytes of an update, in one of two places.

  In a micro-batch: a copy of the donated parameters, the gradients so far, the
  new ones and activations. In the optimizer: copies of all that is donated, and
  one and a half gradients.

  Args:
    params: bytes of what is trained.
    moments: bytes of both moments.
    trained: elements.
    activations: bytes, see `backward`.
  """
  gradients = 4 * trained
  return max(
    params + 2 * gradients + activations,
    params + moments + gradients * 3 // 2,
  )
