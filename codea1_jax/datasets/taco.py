"""TACO, and APPS, whose rows it shares: JSON inside strings."""

import functools
from collections.abc import Mapping, Set
from typing import Any

from codea1_jax.datasets import fields, json_calls, whole_test
from codea1_jax.datasets.draft import Draft, blank

NAME = "taco"


def recognizes(names: Set[str]) -> bool:
  """Whether a row with these fields is of this format."""
  return {"solutions", "input_output"} <= names


def draft(where: str, row: Mapping[str, Any]) -> Draft:
  """A row -> Draft. Fields: question (a string), solutions (JSON of a list of
  programs) and input_output (JSON of inputs, outputs and fn_name); an empty
  string stands for none. Rows have no id: their place in the file is it.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  question = fields.text(where, row, "question")
  solutions = _decoded(where, row, "solutions", [])
  tests = _decoded(where, row, "input_output", {})
  number = where.rpartition(":")[2]
  problem = blank(f"{NAME}/{number}", question, "")
  programs = fields.texts(where, {"solutions": solutions}, "solutions")
  inside = {"input_output": tests}
  fields.mapping(where, inside, "input_output")
  if not tests:
    return Draft(where, problem, reason="no tests")
  cases = _cases(where, inside)
  if not fields.has(tests, "fn_name"):
    return Draft(where, problem, reason="reads standard input: no function")
  name = fields.text(where, inside, "input_output.fn_name")
  programs = [json_calls.as_function(p, name) for p in programs]
  found = json_calls.find_calls(name, cases)
  return Draft(
    where,
    blank(problem.id, question, name),
    tuple(filter(None, programs)),
    found,
    functools.partial(
      whole_test.job, [json_calls.test_source(name, cases)], json_calls.CPU_S
    ),
    left_out=json_calls.left_out(cases, found),
  )


def _decoded(where: str, row: Mapping[str, Any], name: str, empty: Any) -> Any:
  """What the JSON in a string says, or what stands there without a string."""
  value = fields.found(where, row, name)
  if not isinstance(value, str):
    return value
  return fields.from_json(where, name, value) if value.strip() else empty


def _cases(where: str, tests: Mapping[str, Any]) -> list[json_calls.Case]:
  """Arguments and answers that count; a call's inputs may be no list."""
  name = "input_output"
  inputs = fields.items(where, tests, f"{name}.inputs")
  outputs = fields.items(where, tests, f"{name}.outputs")
  if len(inputs) != len(outputs):
    raise ValueError(
      f"{where}: field {name!r}: {len(inputs)} inputs, {len(outputs)} outputs"
    )
  cases = []
  for arguments, answer in zip(inputs, outputs):
    if isinstance(arguments, list):
      # An answer may be the only item of a list.
      answers = [answer, *answer[:1]] if isinstance(answer, list) else [answer]
      cases.append(
        ([*map(_with_numbers, arguments)], [*map(_with_numbers, answers)])
      )
  return cases


def _with_numbers(value: Any) -> Any:
  """A dict with the numbers that JSON made strings of, as published."""
  if not isinstance(value, dict):
    return value
  try:
    return {int(key): item for key, item in value.items()}
  except ValueError:
    return value
