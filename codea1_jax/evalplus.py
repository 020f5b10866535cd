"""EvalPlus rows (HumanEval+, MBPP+): their function, ground truth and test.

A row's test is a program that defines `check`. `strict` mends what lets wrong
answers pass or right ones fail (EVALUATION.md); the test is otherwise as it was
published, and runs apart from the candidate (`SandboxPool.check`, with numpy).

`datasets` makes problems of such rows, to train on.
"""

import ast
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from codea1_jax.sandbox import CheckJob

_FIELDS = ("description", "problem", "GT_code", "test", "data_source")
_EXTRA = ("question_id", "function_name")
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


def load_rows(path: str | pathlib.Path) -> list[dict[str, Any]]:
  """Rows of a parquet file in the schema of Code-A1's published validation set.

  Args:
    path: the file. Fields: description, problem, GT_code, test, data_source
      (strings), prompt (chat messages) and extra_info with question_id and
      function_name.

  Returns:
    The rows in the order of the file.

  Raises:
    ValueError: "file:row: field 'x': problem" for anything malformed.
  """
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise ValueError(f"{path}: to read parquet, install pyarrow") from error
  try:
    rows = parquet.read_table(path).to_pylist()
  except (OSError, pyarrow.ArrowException) as error:
    raise ValueError(f"{path}: cannot be read: {error}") from error
  seen: dict[str, int] = {}
  for number, row in enumerate(rows, start=1):
    where = f"{path}:{number}"
    _check_strings(where, row, _FIELDS)
    _check_strings(where, row.get("extra_info"), _EXTRA)
    _check_prompt(where, row.get("prompt"))
    name = row["extra_info"]["question_id"]
    if name in seen:
      raise ValueError(
        f"{where}: field 'question_id': {name!r} is already in row {seen[name]}"
      )
    seen[name] = number
  return rows


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


def asserts_something(row: Mapping[str, Any]) -> bool:
  """Whether the row's test can fail at all."""
  nodes = ast.walk(_skeleton(row["test"]))
  return any(isinstance(node, ast.Assert) for node in nodes)


def strict_test(row: Mapping[str, Any]) -> str:
  """The row's test, mended; where it asserts nothing, another of its inputs,
  which wants what the ground truth returns.

  Raises:
    ValueError: the test asserts nothing and has no inputs.
  """
  if not asserts_something(row):
    return _test_of_inputs(row)
  test = row["test"].replace(_POLYNOMIAL, _MENDED_POLYNOMIAL)
  return test + _SAME_SHAPE


def strict_job(
  row: Mapping[str, Any], program: str, cpu_s: float = 10.0
) -> CheckJob:
  """A program under its row's strict test."""
  return CheckJob(program, entry_point(row), strict_test(row), cpu_s)


def _test_of_inputs(row: Mapping[str, Any]) -> str:
  calls = inputs(ast.parse(row["test"]))
  if not calls:
    name = row["extra_info"]["question_id"]
    raise ValueError(f"{name}: the test asserts nothing and has no inputs")
  texts = (f"[{', '.join(map(ast.unparse, call))}]" for call in calls)
  return f"""
import copy
_truth = {{"__name__": "truth"}}
exec({ground_truth(row)!r}, _truth)

def check(candidate):
  for inp in [{", ".join(texts)}]:
    wanted = _truth[{entry_point(row)!r}](*copy.deepcopy(inp))
    assert candidate(*inp) == wanted
"""


def _skeleton(test: str) -> ast.Module:
  """The syntax tree without the long literals, which take most of the time."""
  lines = [
    line
    if len(line) <= _LONG_LINE
    else line[: len(line) - len(line.lstrip())] + "pass"
    for line in test.split("\n")
  ]
  return ast.parse("\n".join(lines))


def _check_strings(where: str, fields: Any, names: Sequence[str]) -> None:
  """ValueError where one of `names` is missing, no string or empty."""
  for name in names:
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if not isinstance(value, str):
      found = "missing" if value is None else f"is {type(value).__name__}"
      raise ValueError(f"{where}: field {name!r}: {found}, must be a string")
    if not value.strip():
      raise ValueError(f"{where}: field {name!r}: empty")


def _check_prompt(where: str, prompt: Any) -> None:
  """ValueError where the chat is none."""
  if not isinstance(prompt, list) or not prompt:
    raise ValueError(f"{where}: field 'prompt': must be a list of messages")
  for message in prompt:
    _check_strings(f"{where}: field 'prompt'", message, ("role", "content"))


def inputs(test: ast.Module) -> list[list[ast.expr]]:
  """The arguments of each call: what `check` assigns to `inputs`."""
  for function in test.body:
    if isinstance(function, ast.FunctionDef) and function.name == "check":
      for statement in function.body:
        match statement:
          case ast.Assign(
            targets=[ast.Name(id="inputs")], value=ast.List(elts=found)
          ):
            return [
              i.elts for i in found if isinstance(i, ast.List | ast.Tuple)
            ]
  return []
