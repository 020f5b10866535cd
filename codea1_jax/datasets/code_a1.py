"""Code-A1: the published program's training and validation files."""

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping, Set
from typing import Any

from codea1_jax import evalplus, parsing
from codea1_jax.datasets import asserts, fields, whole_test
from codea1_jax.datasets.draft import (
  Draft,
  Found,
  blank,
  functions,
  signature,
)

NAME = "code_a1"
_QUESTIONS = ("clean_description", "description")
_TESTS = ("GT_test", "test")
_EVALPLUS = ("humanevalplus", "mbppplus")
_CPU_S, _EVALPLUS_CPU_S = 10.0, 60.0  # one of the latter takes 19
_LONG_CALL = 500  # characters; policies are to read and write golden tests
_MOST_CALLS = 64  # of some 1,000 inputs


def recognizes(names: Set[str]) -> bool:
  """Whether a row with these fields is of this format."""
  return "GT_code" in names


def draft(where: str, row: Mapping[str, Any]) -> Draft:
  """A row -> Draft. Fields: description or clean_description, GT_code, GT_test
  (a list of programs that assert) or test (one that defines `check`, with
  problem and data_source), and extra_info with question_id and, where the row
  has `test`, function_name.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  name = fields.text(where, row, "extra_info.question_id")
  question = fields.text(where, row, fields.one_of(where, row, _QUESTIONS))
  code = fields.text(where, row, "GT_code")
  if fields.one_of(where, row, _TESTS) == "test":
    return _evalplus_draft(where, row, name)
  tests = row["GT_test"]
  tests = [tests] if isinstance(tests, str) else tests
  tests = fields.texts(where, {"GT_test": tests}, "GT_test")
  defined = functions(code)
  told = row["extra_info"].get("function_name")
  names = [told] if told in defined else list(defined)
  entry_point = asserts.most_called(names, tests) if names else ""
  found, left_out = asserts.find_calls(tests, entry_point)
  _, error = parsing.parse_source(code)
  return Draft(
    where,
    blank(name, question, entry_point),
    (code,),
    found,
    functools.partial(whole_test.job, tests, _CPU_S),
    "" if names or error else "no function at top level",
    left_out,
  )


def _evalplus_draft(where: str, row: Mapping[str, Any], name: str) -> Draft:
  for field in ("description", "problem", "test", "extra_info.function_name"):
    fields.text(where, row, field)
  source = fields.text(where, row, "data_source")
  if source not in _EVALPLUS:
    raise ValueError(
      f"{where}: field 'data_source': {source!r} is none of"
      f" {', '.join(_EVALPLUS)}"
    )
  try:
    entry_point = evalplus.entry_point(row)
    calls = tuple(itertools.islice(_calls(row, entry_point), _MOST_CALLS))
    evalplus.strict_test(row)
  except parsing.PARSER_ERRORS as error:
    question = row["description"]
    reason = f"test is no program that asserts: {error}"
    return Draft(where, blank(name, question, ""), reason=reason)
  program = evalplus.ground_truth(row)
  question, heading = _heading(row, program, entry_point)
  return Draft(
    where,
    blank(name, question, entry_point, heading),
    (program,) if entry_point in functions(program) else (),
    tuple(map(Found, dict.fromkeys(calls))),
    functools.partial(_strict_job, row),
  )


def _strict_job(row: Mapping[str, Any], program: str):
  return evalplus.strict_job(row, program, _EVALPLUS_CPU_S)


def _heading(
  row: Mapping[str, Any], program: str, entry_point: str
) -> tuple[str, str]:
  """Question and signature; HumanEval's with what stands above the function."""
  function = functions(program).get(entry_point)
  if function is None:
    return row["description"], ""
  docstring = ast.get_docstring(function)
  if row["data_source"] != "humanevalplus" or not docstring:
    return row["description"], signature(function)
  # Imports, and helpers that the docstring speaks of.
  above = "\n".join(program.splitlines()[: function.lineno - 1]).strip()
  return docstring, f"{above}\n\n\n{signature(function)}".lstrip()


def _calls(row: Mapping[str, Any], name: str) -> Iterator[str]:
  """Calls of the function, normalized, with the test's inputs that are short
  literals."""
  for arguments in evalplus.inputs(ast.parse(row["test"])):
    text = ", ".join(map(ast.unparse, arguments))
    test = parsing.parse_test(f"assert {name}({text}) == None", name)
    if test is not None and len(test.call) <= _LONG_CALL:
      yield test.call
