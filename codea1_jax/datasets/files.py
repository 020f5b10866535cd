"""Rows of a file, one after the other: JSON lines, a JSON array, parquet."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

_PARQUET = b"PAR1"  # the first bytes of such a file
_BATCH = 64  # rows of a parquet file in memory at once


def read_rows(path: str | pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
  """Number, from 1, and fields of each row; only some are in memory at once.

  A file that opens with a bracket is one JSON array, whatever its name, and is
  read whole. Blank lines are skipped; they count.

  Args:
    path: the file.

  Raises:
    ValueError: "FILE: problem" or "FILE:ROW: problem".
  """
  path = pathlib.Path(path)
  try:
    with open(path, "rb") as file:
      start = file.read(4096)
  except OSError as error:
    raise ValueError(f"{path}: cannot be read: {error}") from error
  if not start.strip():
    raise ValueError(f"{path}: empty file")
  if start.startswith(_PARQUET) or path.suffix == ".parquet":
    rows = _parquet_rows(path)
  elif start.lstrip()[:1] == b"[":
    rows = _array_rows(path)
  else:
    rows = _line_rows(path)
  for number, row in rows:
    if not isinstance(row, dict):
      kind = type(row).__name__
      raise ValueError(f"{path}:{number}: must be an object, is {kind}")
    yield number, row


def _line_rows(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
  with open(path, "rb") as file:  # in bytes, only \n ends a line
    for number, line in enumerate(file, start=1):
      if line.strip():
        yield number, _json(f"{path}:{number}", line)


def _array_rows(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
  yield from enumerate(_json(str(path), path.read_bytes()), start=1)


def _json(where: str, data: bytes) -> Any:
  try:
    return json.loads(data)
  except (ValueError, RecursionError) as error:  # also what is no UTF-8
    raise ValueError(f"{where}: not JSON: {error}") from error


def _parquet_rows(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise ValueError(f"{path}: to read parquet, install pyarrow") from error
  number = 0
  try:
    with parquet.ParquetFile(path) as file:
      for batch in file.iter_batches(_BATCH):
        for row in batch.to_pylist():
          number += 1
          yield number, row
  except (OSError, pyarrow.ArrowException) as error:
    raise ValueError(f"{path}: cannot be read: {error}") from error
