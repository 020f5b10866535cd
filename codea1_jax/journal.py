"""Results of many tasks on disk as they come, so that a stop loses nothing."""

import json
import os
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

from codea1_jax import jsonl


class Journal:
  """A JSONL file with a line a task; `rows` is what it holds, by task id."""

  def __init__(self, path: str | os.PathLike):
    self._path = pathlib.Path(path)
    self._lock = threading.Lock()
    self._path.parent.mkdir(parents=True, exist_ok=True)
    self.rows: dict[str, dict[str, Any]] = {}
    if self._path.exists():
      self.rows = {row["task_id"]: row for row in jsonl.read_jsonl(self._path)}
      # A line that a kill cut short must not take the next one with it.
      part = self._path.with_name(self._path.name + ".part")
      part.write_text("".join(map(_line, self.rows.values())))
      part.replace(self._path)

  def add(self, task_id: str, row: Mapping[str, Any]) -> None:
    """Appends a task's row; from any thread."""
    with self._lock:
      self.rows[task_id] = {"task_id": task_id, **row}
      with open(self._path, "a", encoding="utf-8") as file:
        file.write(_line(self.rows[task_id]))


def claim(directory: str | os.PathLike, settings: Mapping[str, Any]) -> None:
  """Writes down what a directory's results are of, or checks that it says so.

  Raises:
    ValueError: it holds the results of other settings; names those.
  """
  path = pathlib.Path(directory) / "settings.json"
  mine = json.loads(json.dumps(settings))
  if not path.exists():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(mine, indent=2) + "\n", encoding="utf-8")
    return
  try:
    theirs = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise ValueError(f"{path} is not JSON: {error}") from error
  differing = [
    f"{name}: {theirs.get(name)} there, {mine.get(name)} here"
    for name in sorted(theirs.keys() | mine.keys())
    if theirs.get(name) != mine.get(name)
  ]
  if differing:
    raise ValueError(
      f"{directory} holds other results ({'; '.join(differing)}): choose"
      " another --out"
    )


def _line(row: Mapping[str, Any]) -> str:
  return json.dumps(row) + "\n"
