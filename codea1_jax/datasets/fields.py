"""Fields of a row, checked: every error names file, row and field."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

_MOST_DIGITS = 4_000


def text(where: str, row: Any, name: str, *, may_be_empty: bool = False) -> str:
  """A string that says something.

  Args:
    where: "FILE:ROW", which opens the error.
    row: the row, or a mapping inside it.
    name: its field; dots lead into mappings: "extra_info.question_id".
    may_be_empty: or one that says nothing.

  Returns:
    The string as it stands.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  value = found(where, row, name)
  if not isinstance(value, str):
    raise _wrong(where, name, "a string", value)
  if not value.strip() and not may_be_empty:
    raise ValueError(f"{where}: field {name!r}: empty")
  return value


def items(where: str, row: Any, name: str) -> list[Any]:
  """A list, maybe empty. Raises as `text` does."""
  value = found(where, row, name)
  if not isinstance(value, list):
    raise _wrong(where, name, "a list", value)
  return value


def texts(where: str, row: Any, name: str) -> list[str]:
  """A list of strings, maybe empty. Raises as `text` does."""
  values = items(where, row, name)
  for place, value in enumerate(values):
    if not isinstance(value, str):
      raise _wrong(where, f"{name}[{place}]", "a string", value)
  return values


def mapping(where: str, row: Any, name: str) -> Mapping[str, Any]:
  """An object. Raises as `text` does."""
  value = found(where, row, name)
  if not isinstance(value, Mapping):
    raise _wrong(where, name, "an object", value)
  return value


def decoded(where: str, row: Any, name: str) -> Any:
  """What the JSON in a string says. Raises as `text` does."""
  return from_json(where, name, text(where, row, name))


def from_json(where: str, name: str, value: str | bytes) -> Any:
  """What JSON text says; an error names the field that it stood in."""
  try:
    return json.loads(value, parse_int=_integer)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{where}: field {name!r}: not JSON: {error}") from error


def _integer(digits: str) -> int | float:
  """A number, or NaN in place of one that Python does not read by default."""
  return int(digits) if len(digits) <= _MOST_DIGITS else math.nan


def found(where: str, row: Any, name: str) -> Any:
  """The field's value, which is there and not null."""
  value, parts = row, name.split(".")
  for place, part in enumerate(parts):
    if place and value is not None and not isinstance(value, Mapping):
      raise _wrong(where, ".".join(parts[:place]), "an object", value)
    value = value.get(part) if isinstance(value, Mapping) else None
  if value is None:
    raise ValueError(f"{where}: field {name!r}: missing")
  return value


def has(row: Any, name: str) -> bool:
  """Whether the field is there and not null."""
  return isinstance(row, Mapping) and row.get(name) is not None


def one_of(where: str, row: Any, names: Sequence[str]) -> str:
  """The first of some fields that the row has."""
  for name in names:
    if has(row, name):
      return name
  raise ValueError(f"{where}: field {' or '.join(map(repr, names))}: missing")


def _wrong(where: str, name: str, wanted: str, value: Any) -> ValueError:
  kind = type(value).__name__
  return ValueError(f"{where}: field {name!r}: must be {wanted}, is {kind}")
