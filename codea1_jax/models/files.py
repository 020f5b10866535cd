"""Files of a model directory: JSON, and weights in safetensors.

Writing streams one tensor after another into a file, where the safetensors
package wants all of a file's tensors in memory, twice.
Format: https://huggingface.co/docs/safetensors/index#format
"""

import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import safetensors

Shape = tuple[int, ...]
# A tensor's values in order, in chunks of any size.
Chunks = Callable[[str], Iterable[np.ndarray]]

FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # bytes
_CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = re.compile(
  r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json|\.part)?"
)


def read_json(path: pathlib.Path) -> dict[str, Any]:
  if not path.is_file():
    raise FileNotFoundError(f"{path} does not exist")
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise ValueError(f"{path} is not valid JSON: {error}") from None
  if not isinstance(value, dict):
    raise ValueError(f"{path} holds {type(value).__name__}, expected an object")
  return value


def write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
  text = json.dumps(value, indent=2, sort_keys=True)
  path.write_text(text + "\n", encoding="utf-8")


def weight_files(directory: pathlib.Path) -> list[pathlib.Path]:
  """The one file, or the shards that the index lists."""
  single, index = directory / _SINGLE, directory / _INDEX
  if single.is_file():
    return [single]
  if not index.is_file():
    raise FileNotFoundError(
      f"{directory} has neither {single.name} nor {index.name}"
    )
  names = sorted(set(read_json(index).get("weight_map", {}).values()))
  lost = [name for name in names if not (directory / name).is_file()]
  if lost or not names:
    raise FileNotFoundError(
      f"{index} lists files that are not there: {', '.join(lost) or 'none'}"
    )
  return [directory / name for name in names]


def _open(path: pathlib.Path):
  """Opens a safetensors file; a broken or truncated one is a ValueError."""
  try:
    return safetensors.safe_open(path, framework="numpy")
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(f"cannot read {path}: {error}") from None


def read_headers(
  paths: Iterable[pathlib.Path],
) -> dict[str, tuple[pathlib.Path, Shape, str]]:
  """File, shape and dtype code of every tensor; reads none of their data."""
  found = {}
  for path in paths:
    with _open(path) as handle:
      for name in handle.keys():  # noqa: SIM118 - not a mapping
        piece = handle.get_slice(name)
        found[name] = path, tuple(piece.get_shape()), piece.get_dtype()
  return found


def read_rows(
  path: pathlib.Path, name: str, start: int, stop: int
) -> np.ndarray:
  """Copies rows of a tensor from a file, which is mapped for that long only.

  Kept open, the pages it was read from would count as this process's memory.
  """
  with _open(path) as handle:
    return handle.get_slice(name)[start:stop]


def _plan(sizes: Mapping[str, int], max_shard_bytes: int) -> list[list[str]]:
  """Tensors by shard, in order; one above the limit has a shard to itself."""
  shards, filled = [[]], 0
  for name, size in sizes.items():
    if shards[-1] and filled + size > max_shard_bytes:
      shards.append([])
      filled = 0
    shards[-1].append(name)
    filled += size
  return shards


def _header(sizes: Mapping[str, int], shapes, code: str) -> bytes:
  """Length and JSON of a file's tensors, padded so that data is aligned."""
  content: dict[str, Any] = {"__metadata__": {"format": "pt"}}
  offset = 0
  for name, size in sizes.items():
    content[name] = {
      "dtype": code,
      "shape": shapes[name],
      "data_offsets": [offset, offset + size],
    }
    offset += size
  text = json.dumps(content, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  return len(text).to_bytes(8, "little") + text


def _write(path: pathlib.Path, header: bytes, arrays: Iterator[np.ndarray]):
  with path.open("wb") as file:
    file.write(header)
    for array in arrays:
      file.write(np.ascontiguousarray(array).view(np.uint8).data)


def _shard_names(count: int) -> list[str]:
  if count == 1:
    return [_SINGLE]
  return [
    f"model-{number:05d}-of-{count:05d}.safetensors"
    for number in range(1, count + 1)
  ]


def _replace(directory: pathlib.Path, parts, names: list[str]) -> None:
  """Gives the written weights their names, then removes an earlier save's."""
  for part, name in zip(parts, names, strict=True):
    os.replace(part, directory / name)
  for path in directory.iterdir():
    if _WEIGHTS.fullmatch(path.name) and path.name not in names:
      path.unlink()


def write_weights(
  directory: pathlib.Path,
  shapes: Mapping[str, Shape],
  chunks: Chunks,
  *,
  dtype: str,
  max_shard_bytes: int,
) -> None:
  """Writes model.safetensors, or shards and their index.

  Weights that an earlier save left there are replaced once all are written; a
  write that fails leaves them as they were.

  Args:
    directory: exists.
    shapes: of the tensors, by name.
    chunks: gives a tensor's values, in `dtype`.
    dtype: float32, float16 or bfloat16.
    max_shard_bytes: above it tensors go to the next file.

  Raises:
    ValueError: a dtype of another name, or no room in a shard.
  """
  if dtype not in _CODES or max_shard_bytes < 1:
    raise ValueError(
      f"cannot save weights as dtype {dtype!r}, max_shard_bytes"
      f" {max_shard_bytes}: expected one of {', '.join(_CODES)}, and a"
      " positive size"
    )
  code = _CODES[dtype]
  sizes = {
    name: FLOATS[code] * int(np.prod(shapes[name])) for name in sorted(shapes)
  }
  shards = _plan(sizes, max_shard_bytes)
  names = _shard_names(len(shards))
  parts = [directory / f"{name}.part" for name in names]
  try:
    for part, shard in zip(parts, shards, strict=True):
      header = _header({name: sizes[name] for name in shard}, shapes, code)
      _write(part, header, (a for name in shard for a in chunks(name)))
  except BaseException:
    for part in parts:
      part.unlink(missing_ok=True)
    raise
  _replace(directory, parts, names)
  if len(shards) > 1:
    files = zip(names, shards, strict=True)
    weight_map = {name: file for file, shard in files for name in shard}
    total = {"total_size": sum(sizes.values())}
    index = {"metadata": total, "weight_map": weight_map}
    write_json(directory / _INDEX, index)
