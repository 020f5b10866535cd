"""JSONL files: one object a line, each with its "step"."""

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np


class JsonlWriter:
  """Appends one line a step to `path`; every line reaches the disk.

  The file is opened for each line, so that a killed run loses no step and
  nobody has to close anything. A line that an earlier run was killed in the
  middle of is dropped when the writer is made.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    writes: bool = True,
  ):
    self.path = pathlib.Path(path)
    self._writes = writes  # of several hosts one does
    if writes:
      self.path.parent.mkdir(parents=True, exist_ok=True)
      _drop_torn_line(self.path)

  def write(self, step: int, values: Mapping[str, Any]) -> None:
    """Appends the line of a step."""
    if not self._writes:
      return
    text = line(step, values)
    with open(self.path, "a", encoding="utf-8") as f:
      f.write(text)

  def truncate_after(self, step: int) -> None:
    """Drops the lines of later steps: what a resumed run does once more."""
    if not self._writes or not self.path.exists():
      return
    kept = self.path.with_name(self.path.name + ".tmp")
    with open(self.path, "rb") as old, open(kept, "wb") as new:
      new.writelines(x for x in old if json.loads(x)["step"] <= step)
    os.replace(kept, self.path)


def read_jsonl(path: str | os.PathLike) -> list[dict]:
  """Reads a JSONL file; a last line cut short by a kill is left out.

  Args:
    path: the file, one JSON object a line; blank lines are skipped.

  Returns:
    The objects, in the file's order.

  Raises:
    ValueError: a line before the last is no JSON object.
  """
  rows = []
  with open(path, encoding="utf-8") as f:
    for number, text in enumerate(f, 1):
      if not text.strip():
        continue
      try:
        rows.append(parse(text, f"{path}:{number}"))
      except ValueError:
        if text.endswith("\n"):
          raise
  return rows


def line(step: int, values: Mapping[str, Any]) -> str:
  """{"step": step, **values} as one line; NaN is written as the text "nan"."""
  row = {"step": int(step), **values}
  try:  # what is plain already, which a dump's many tokens are, costs little
    text = json.dumps(row, allow_nan=False)
  except (TypeError, ValueError):
    text = json.dumps(_plain(row), allow_nan=False)
  return text + "\n"


def parse(text: str | bytes, place: str) -> dict:
  """The object of one line; `place` begins the ValueError where it is none."""
  try:
    row = json.loads(text)
  except ValueError as e:
    raise ValueError(f"{place}: not JSON: {e}") from e
  if not isinstance(row, dict):
    raise ValueError(f"{place}: expected an object, got {type(row).__name__}")
  return row


def _plain(value: Any) -> Any:
  """Arrays and scalars of numpy and jax as JSON data; nan and inf as text."""
  if value is None or isinstance(value, str | bool | int):
    return value
  if isinstance(value, Mapping):
    return {str(k): _plain(v) for k, v in value.items()}
  if isinstance(value, list | tuple):
    return [_plain(v) for v in value]
  if isinstance(value, float):
    return value if math.isfinite(value) else str(value)
  array = np.asarray(value)
  if array.dtype == object:
    raise ValueError(f"a metric is no number: {type(value).__name__}")
  return _plain(array.tolist())


def _drop_torn_line(path: pathlib.Path) -> None:
  """Cuts the file after its last newline; cheap where it ends with one."""
  if not path.exists() or path.stat().st_size == 0:
    return
  with open(path, "rb+") as f:
    f.seek(-1, os.SEEK_END)
    if f.read(1) == b"\n":
      return
    f.seek(0)
    f.truncate(sum(len(x) for x in f if x.endswith(b"\n")))
