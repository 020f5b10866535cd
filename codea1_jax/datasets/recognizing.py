"""Which format a file is of: its first row's fields say so."""

import pathlib
from collections.abc import Iterator
from types import ModuleType

from codea1_jax.datasets import (
  acecode,
  code_a1,
  files,
  kodcode,
  livecodebench,
  own,
  taco,
  unleaked,
)
from codea1_jax.datasets.draft import Draft

_MODULES = (own, code_a1, kodcode, acecode, taco, livecodebench, unleaked)
FORMATS = {module.NAME: module for module in _MODULES}


def read_drafts(
  path: str | pathlib.Path, name: str = ""
) -> tuple[str, Iterator[Draft]]:
  """The format of a file, and its rows read one after the other.

  Args:
    path: the file, see `files.read_rows`.
    name: of FORMATS; where empty, the fields of the first row say it.

  Returns:
    The format's name, and the drafts. Reading these raises ValueError at the
    first malformed row: "FILE:ROW: field 'x': problem".

  Raises:
    ValueError: the file cannot be read, or is of no format.
  """
  number, first = next(files.read_rows(path), (0, {}))
  if not number:
    raise ValueError(f"{path}: no rows")
  if name and name not in FORMATS:
    raise ValueError(f"format {name!r} is none of {', '.join(FORMATS)}")
  module = FORMATS[name] if name else _recognize(f"{path}:{number}", first)
  rows = files.read_rows(path)
  return module.NAME, (module.draft(f"{path}:{n}", row) for n, row in rows)


def _recognize(where: str, row: dict) -> ModuleType:
  found = [m for m in _MODULES if m.recognizes(row.keys())]
  if len(found) != 1:
    names = [m.NAME for m in found]
    raise ValueError(
      f"{where}: fields {', '.join(row)} are those of"
      f" {' and of '.join(names) or 'no known format'}; --format= says which of"
      f" {', '.join(FORMATS)} it is"
    )
  return found[0]
