"""UnLeakedTestBench's functions, and the sample of them that mut@k is of."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Sequence

from codea1_jax.datasets import fields, files


@dataclasses.dataclass(frozen=True)
class Function:
  """A function that tests are to be written for."""

  task_id: str
  position: int  # of its row in the file, from 0
  name: str
  code: str
  description: str


def load(path: str | pathlib.Path) -> list[Function]:
  """The rows of a file: a JSON array, JSON lines or parquet.

  Fields: func_name, code, prompt (strings), task_id (a string or a number),
  test_list (strings, which are no oracle and are not used).

  Raises:
    ValueError: "FILE:ROW: field 'x': problem", or no rows.
  """
  functions: list[Function] = []
  seen: set[str] = set()
  for number, row in files.read_rows(path):
    where = f"{path}:{number}"
    task_id = fields.found(where, row, "task_id")
    if isinstance(task_id, bool) or not isinstance(task_id, str | int):
      raise ValueError(
        f"{where}: field 'task_id': must be a string or a number"
      )
    if str(task_id) in seen:
      raise ValueError(f"{where}: field 'task_id': {task_id} is there twice")
    seen.add(str(task_id))
    name = fields.text(where, row, "func_name")
    if not name.isidentifier():
      raise ValueError(f"{where}: field 'func_name': {name!r} is no name")
    fields.texts(where, row, "test_list")
    functions.append(
      Function(
        str(task_id),
        len(functions),
        name,
        fields.text(where, row, "code"),
        fields.text(where, row, "prompt"),
      )
    )
  if not functions:
    raise ValueError(f"{path}: no rows")
  return functions


def load_sample(
  path: str | pathlib.Path, functions: Sequence[Function]
) -> set[str]:
  """Task ids of the functions that a fixed sample names.

  Its names are "task_N" with N the position of a row, from 0, as the published
  program numbers them; they are not the rows' task ids.

  Raises:
    ValueError: not a JSON list of such names, or it names none of the rows.
  """
  try:
    names = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
  except (OSError, ValueError) as error:
    raise ValueError(f"{path}: cannot be read: {error}") from error
  if not isinstance(names, list):
    raise ValueError(f"{path}: must be a list of names such as task_17")
  positions = set()
  for name in names:
    found = re.fullmatch(r"task_(\d+)", name) if isinstance(name, str) else None
    if found is None:
      raise ValueError(f"{path}: {name!r} is no name such as task_17")
    positions.add(int(found[1]))
  chosen = {f.task_id for f in functions if f.position in positions}
  if not chosen:
    raise ValueError(f"{path}: names none of the {len(functions)} rows")
  return chosen
