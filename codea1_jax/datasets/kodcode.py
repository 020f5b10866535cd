"""KodCode: a solution and tests for pytest, both written by a model."""

import functools
from collections.abc import Mapping, Set
from typing import Any

from codea1_jax import parsing
from codea1_jax.datasets import asserts, fields, whole_test
from codea1_jax.datasets.draft import Draft, blank, functions

NAME = "kodcode"
_TESTS = ("test_code", "test")  # the field's name in two of its releases
_CPU_S = 10.0


def recognizes(names: Set[str]) -> bool:
  """Whether a row with these fields is of this format."""
  return "solution" in names and any(name in names for name in _TESTS)


def draft(where: str, row: Mapping[str, Any]) -> Draft:
  """A row -> Draft. Fields: question_id, question, solution, test_code or test
  (strings), and test_info (a list of functions, or null).

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  name = fields.text(where, row, "question_id")
  question = fields.text(where, row, "question")
  solution = fields.text(where, row, "solution")
  tests = fields.text(where, row, fields.one_of(where, row, _TESTS))
  defined = functions(solution)
  told = [known for known in _told(where, row) if known in defined]
  names = list(dict.fromkeys([*told, *defined]))
  entry_point = asserts.most_called(names, [tests]) if names else ""
  found, left_out = asserts.find_calls([tests], entry_point)
  _, error = parsing.parse_source(solution)
  reason = "" if names or error else "no function at top level"
  return Draft(
    where,
    blank(name, question, entry_point),
    (solution,),
    found,
    functools.partial(whole_test.job, [tests], _CPU_S),
    reason,
    left_out,
  )


def _told(where: str, row: Mapping[str, Any]) -> list[str]:
  """Names of the functions that the row speaks of, the main one first."""
  if not fields.has(row, "test_info"):
    return []
  infos = fields.items(where, row, "test_info")
  return [
    fields.text(f"{where}: field 'test_info[{place}]'", info, "function_name")
    for place, info in enumerate(infos)
  ]
