"""Hugging Face directories <-> parameters, names and shapes checked.

`layout.py` says where each tensor goes. Tensors pass one by one, big tables
in pieces, so that the host never holds a second copy of the parameters.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import lax
from jax.sharding import Sharding

from codea1_jax.models import files, layout, qwen, text
from codea1_jax.models.config import QwenConfig, config_from_hf, config_to_hf

_PIECE_VALUES = 16 * 2**20  # of a table at once


def _read_config(directory: pathlib.Path) -> QwenConfig:
  if not directory.is_dir():
    raise FileNotFoundError(f"model directory {directory} does not exist")
  raw = files.read_json(directory / "config.json")
  try:
    return config_from_hf(raw)
  except ValueError as error:
    raise ValueError(f"{directory / 'config.json'}: {error}") from None


def _check_tensors(headers, slots: dict[str, layout.Slot], where) -> None:
  """One report of all that is missing, unknown, misshapen or not a float."""
  # A tied model's copy of the head, and rope's table in old Llama files.
  harmless = {"lm_head.weight"} | {n for n in headers if "rotary_emb" in n}
  missing = sorted(slots.keys() - headers.keys())
  extra = sorted(headers.keys() - slots.keys() - harmless)
  problems = [f"missing {', '.join(missing)}"] if missing else []
  problems += [f"unexpected {', '.join(extra)}"] if extra else []
  both = sorted(slots.keys() & headers.keys())
  found = [(name, headers[name][1], slots[name].shape) for name in both]
  problems += [
    f"{name} has shape {shape}, expected {expected}"
    for name, shape, expected in found
    if shape != expected
  ]
  problems += [
    f"{name} is {headers[name][2]}, expected one of {', '.join(files.FLOATS)}"
    for name in both
    if headers[name][2] not in files.FLOATS
  ]
  if problems:
    raise ValueError(f"weights in {where}: {'; '.join(problems)}")


@functools.cache
def _writer(sharding: Sharding | None):
  """Compiles the writing of a tensor into its leaf, in place."""

  def write(leaf, value, start, block, transposed):
    value = value.astype(leaf.dtype)
    value = (value.T if transposed else value).reshape(block)
    return lax.dynamic_update_slice(leaf, value, start)

  return jax.jit(
    write,
    static_argnames=("block", "transposed"),
    donate_argnames="leaf",
    out_shardings=sharding,
  )


def _load_leaf(shape, dtype, sharding, tensors) -> jax.Array:
  """Fills one leaf from its tensors, on its devices from the start.

  Args:
    shape: of the leaf.
    dtype: of the leaf.
    sharding: of the leaf; None leaves it on the default device.
    tensors: (file, name, slot) of each of its tensors.
  """
  leaf = jnp.zeros(shape, dtype, device=sharding)
  for path, name, slot in tensors:
    for row, piece in layout.pieces(slot, _PIECE_VALUES):
      value = files.read_rows(path, name, row, row + piece.shape[0])
      leaf = _writer(sharding)(
        leaf, value, piece.start, piece.block, piece.transposed
      )
      leaf.block_until_ready()  # or values of later tensors pile up
  return leaf


def _flat_shardings(shardings, paths) -> dict[tuple[str, ...], Any]:
  """One sharding, or None, by a leaf's path."""
  if shardings is None or isinstance(shardings, Sharding):
    return dict.fromkeys(paths, shardings)
  flat = flatten_dict(shardings)
  if flat.keys() != set(paths):
    names = sorted("/".join(path) for path in flat.keys() ^ set(paths))
    raise ValueError(
      f"shardings are not a tree like the parameters: {', '.join(names)} is in"
      " one of them only"
    )
  return flat


def param_structs(config: QwenConfig) -> Any:
  """Shapes and dtypes of the parameters, for what needs no values."""
  return jax.tree.map(
    lambda shape: jax.ShapeDtypeStruct(shape, config.param_dtype),
    qwen.param_shapes(config),
    is_leaf=lambda node: isinstance(node, tuple),
  )


def load_pretrained(
  directory: str | pathlib.Path,
  *,
  dtype: str = "float32",
  param_dtype: str = "float32",
  shardings: Any = None,
) -> tuple[QwenConfig, qwen.Params]:
  """Loads config.json and the safetensors file(s) next to it.

  Everything is checked before any weight is read. Then each tensor goes
  straight to the devices of its leaf; beside the parameters the host holds one
  tensor, or one piece of a table.

  Args:
    directory: as Hugging Face lays it out.
    dtype: of the computation.
    param_dtype: of the returned parameters, whatever the file's.
    shardings: a jax Sharding for every leaf, or what gives a tree of them for
      the parameters' shapes (`Parallel.shardings`); None leaves all on the
      default device.

  Returns:
    The config and the parameters.

  Raises:
    FileNotFoundError: no such directory, config or weights.
    ValueError: an unsupported config; a broken file; tensors that are missing,
      unknown or misshapen, all in one line; shardings of another tree.
  """
  directory = pathlib.Path(directory)
  config = dataclasses.replace(
    _read_config(directory), dtype=dtype, param_dtype=param_dtype
  )
  headers = files.read_headers(files.weight_files(directory))
  slots = layout.slots(config)
  _check_tensors(headers, slots, directory)
  shapes = flatten_dict(qwen.param_shapes(config))
  if callable(shardings):
    shardings = shardings(param_structs(config))
  flat_shardings = _flat_shardings(shardings, shapes)
  tensors = {path: [] for path in shapes}
  for name, slot in slots.items():
    tensors[slot.path].append((headers[name][0], name, slot))
  leaves = {
    path: _load_leaf(
      shape, jnp.dtype(param_dtype), flat_shardings[path], tensors[path]
    )
    for path, shape in shapes.items()
  }
  return config, unflatten_dict(leaves)


def _check_params(config: QwenConfig, params: qwen.Params) -> None:
  expected = qwen.param_shapes(config)
  shapes = jax.tree.map(jnp.shape, params)
  if shapes != expected:
    raise ValueError(
      f"params do not fit the config: have {shapes}, expected {expected}"
    )


def _fetch(
  params: qwen.Params, name: str, slot: layout.Slot, dtype
) -> Iterator[np.ndarray]:
  """A tensor as the file has it, in pieces; the inverse of `_load_leaf`."""
  leaf = params
  for key in slot.path:
    leaf = leaf[key]
  for _, piece in layout.pieces(slot, _PIECE_VALUES):
    if isinstance(leaf, np.ndarray):
      stop = np.add(piece.start, piece.block)
      value = leaf[tuple(map(slice, piece.start, stop))]
    else:  # compiled once for all layers, where indexing would be anew
      value = np.asarray(lax.dynamic_slice(leaf, piece.start, piece.block))
    if piece.transposed:
      value = value.reshape(piece.shape[::-1]).T
    with np.errstate(over="ignore"):  # told below, with the name
      value = value.reshape(piece.shape).astype(dtype)
    if dtype == np.float16 and not np.isfinite(value).all():
      raise ValueError(f"{name} has values beyond float16, choose bfloat16")
    yield value


def save_pretrained(
  directory: str | pathlib.Path,
  config: QwenConfig,
  params: qwen.Params,
  *,
  dtype: str = "bfloat16",
  tokenizer_from: str | pathlib.Path | None = None,
  max_shard_bytes: int = 5 * 10**9,
) -> None:
  """Writes a directory that `load_pretrained` and transformers load.

  The same parameters give the same bytes. The host holds one tensor, or one
  piece of a table. Weights of an earlier save are removed at the end.

  Args:
    directory: made if it does not exist.
    config: the decoder's shape.
    params: its parameters, every shard of them on this host.
    dtype: of the file's tensors: float32, float16 or bfloat16.
    tokenizer_from: directory to copy the tokenizer's files and
      generation_config.json from.
    max_shard_bytes: above it weights go into several files with an index.

  Raises:
    ValueError: parameters that do not fit the config or the dtype.
  """
  _check_params(config, params)
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  source = pathlib.Path(tokenizer_from) if tokenizer_from else None
  ids = text.special_token_ids(source) if source else {}
  slots = layout.slots(config)
  files.write_weights(
    directory,
    {name: slot.shape for name, slot in slots.items()},
    lambda name: _fetch(params, name, slots[name], jnp.dtype(dtype)),
    dtype=dtype,
    max_shard_bytes=max_shard_bytes,
  )
  raw = config_to_hf(config) | {"torch_dtype": dtype} | ids
  files.write_json(directory / "config.json", raw)
  if source:
    text.copy_files(source, directory)
  else:
    files.write_json(directory / "generation_config.json", {})
