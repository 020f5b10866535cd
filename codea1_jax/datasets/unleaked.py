"""UnLeakedTestBench: functions, and tests that are no oracle."""

from collections.abc import Mapping, Set
from typing import Any

from codea1_jax.datasets import asserts, fields
from codea1_jax.datasets.draft import Draft, Found, blank, functions

NAME = "unleaked"


def recognizes(names: Set[str]) -> bool:
  """Whether a row with these fields is of this format."""
  return {"func_name", "test_list"} <= names


def draft(where: str, row: Mapping[str, Any]) -> Draft:
  """A row -> Draft. Fields: func_name, code, prompt (strings), task_id (a
  string or a number) and test_list (asserts).

  The tests' answers are often wrong, so that only their calls are taken.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  name = fields.text(where, row, "func_name")
  code = fields.text(where, row, "code")
  prompt = fields.text(where, row, "prompt")
  number = fields.found(where, row, "task_id")
  if not isinstance(number, str | int):
    raise ValueError(f"{where}: field 'task_id': must be a string or a number")
  tests = fields.texts(where, row, "test_list")
  found, left_out = asserts.find_calls(tests, name)
  return Draft(
    where,
    blank(f"{NAME}/{number}", prompt, name),
    (code,) if name in functions(code) else (),
    tuple(Found(test.call) for test in found),
    left_out=left_out,
  )
