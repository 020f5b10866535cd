"""EvalPlus rows (HumanEval+, MBPP+): their function, ground truth and test.

A row's test is a program that defines `check`. `strict` mends what lets wrong
answers pass or right ones fail (EVALUATION.md); the test is otherwise as it was
published, and runs apart from the candidate (`SandboxPool.check`, with numpy).
"""

import ast
from collections.abc import Mapping
from typing import Any

from codea1_jax.sandbox import CheckJob

_LONG_LINE = 2_000  # characters; such lines hold inputs and results
_POLYNOMIAL = "_poly(*candidate(*inp), inp) <= 0.0001"
_MENDED_POLYNOMIAL = "abs(_poly(*inp, candidate(*inp))) <= 0.0001"
# numpy broadcasts: [1.0] and 5.0 are all close to [].
_SAME_SHAPE = """

def _strict(close):
  def allclose(out, exp, *arguments, **keywords):
    return np.shape(out) == np.shape(exp) and close(
      out, exp, *arguments, **keywords
    )
  return allclose

if "np" in globals():
  np = __import__("types").SimpleNamespace(**vars(np))
  np.allclose = _strict(np.allclose)
"""


def entry_point(row: Mapping[str, Any]) -> str:
  """The function that the test calls with *inp.

  `extra_info` names another one in some MBPP rows; where the test calls its
  parameter, as in HumanEval, it is right.
  """
  known = row["extra_info"]["function_name"]
  for node in ast.walk(_skeleton(row["test"])):
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
      continue
    if "*inp" in map(ast.unparse, node.args):
      return known if node.func.id == "candidate" else node.func.id
  return known


def ground_truth(row: Mapping[str, Any]) -> str:
  """The row's own solution as a program."""
  # An MBPP row's problem is not Python, and its solution is whole.
  before = row["problem"] if row["data_source"] == "humanevalplus" else ""
  return before + row["GT_code"]


def strict_test(row: Mapping[str, Any]) -> str:
  """The row's test, mended.

  Raises:
    ValueError: the test never asserts anything, so that any answer passes.
  """
  asserts = [
    node
    for node in ast.walk(_skeleton(row["test"]))
    if isinstance(node, ast.Assert)
  ]
  if not asserts:
    name = row["extra_info"]["question_id"]
    raise ValueError(f"{name}: the test asserts nothing")
  test = row["test"].replace(_POLYNOMIAL, _MENDED_POLYNOMIAL)
  return test + _SAME_SHAPE


def strict_job(
  row: Mapping[str, Any], program: str, cpu_s: float = 10.0
) -> CheckJob:
  """A program under its row's strict test."""
  return CheckJob(program, entry_point(row), strict_test(row), cpu_s)


def _skeleton(test: str) -> ast.Module:
  """The syntax tree without the long literals, which take most of the time."""
  lines = [
    line
    if len(line) <= _LONG_LINE
    else line[: len(line) - len(line.lstrip())] + "pass"
    for line in test.split("\n")
  ]
  return ast.parse("\n".join(lines))
