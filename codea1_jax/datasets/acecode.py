"""AceCode-87K: asserts, and what models answered; no reference solution."""

import functools
from collections.abc import Mapping, Set
from typing import Any

from codea1_jax import parsing
from codea1_jax.datasets import asserts, fields, whole_test
from codea1_jax.datasets.draft import Draft, blank, functions

NAME = "acecode"
_CPU_S = 10.0


def recognizes(names: Set[str]) -> bool:
  """Whether a row with these fields is of this format."""
  return {"inferences", "test_cases"} <= names


def draft(where: str, row: Mapping[str, Any]) -> Draft:
  """A row -> Draft. Fields: id, question (strings), test_cases (asserts) and
  inferences (objects with completion, a string, and pass_rate, a number).

  The ground truth is to be an inference that passes all tests; those with the
  best pass rate come first.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  name = fields.text(where, row, "id")
  question = fields.text(where, row, "question")
  tests = fields.texts(where, row, "test_cases")
  programs = _programs(where, row)
  names = list(dict.fromkeys(n for p in programs for n in functions(p)))
  entry_point = asserts.most_called(names, tests) if names else ""
  found, left_out = asserts.find_calls(tests, entry_point)
  return Draft(
    where,
    blank(name, question, entry_point),
    tuple(p for p in programs if entry_point in functions(p)),
    found,
    functools.partial(whole_test.job, tests, _CPU_S),
    left_out=left_out,
  )


def _programs(where: str, row: Mapping[str, Any]) -> list[str]:
  """The programs in the inferences, those of the best pass rate first."""
  rated = []
  for place, answer in enumerate(fields.items(where, row, "inferences")):
    here = f"{where}: field 'inferences[{place}]'"
    completion = fields.found(here, answer, "completion")
    rate = fields.found(here, answer, "pass_rate")
    if not isinstance(completion, str) or not isinstance(rate, int | float):
      raise ValueError(
        f"{here}: completion must be a string, pass_rate a number"
      )
    rated.append((rate, parsing.extract_code_text(completion)))
  rated.sort(key=lambda pair: -pair[0])
  return list(dict.fromkeys(program for _, program in rated))
