"""EvalPlus rows (HumanEval+, MBPP+): their function, ground truth and test.

A row's test is a program that defines `check`. `strict` mends what lets wrong
answers pass or right ones fail (EVALUATION.md); the test is otherwise as it was
published, and runs apart from the candidate (`SandboxPool.check`, with numpy).

To train on rows, `to_problems` makes problems of them: the question, the ground
truth, and golden tests from the first of the test's inputs.
"""

import ast
import copy
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codea1_jax import parsing
from codea1_jax.sandbox import CheckJob, Job, JobResult, SandboxPool
from codea1_jax.types import Problem, TestCase

_FIELDS = ("description", "problem", "GT_code", "test", "data_source")
_EXTRA = ("question_id", "function_name")
_LONG_LINE = 2_000  # characters; such lines hold inputs and results
_LONG_CALL = 500  # characters; policies are to read and write golden tests
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


def to_problems(
  rows: Sequence[Mapping[str, Any]], pool: SandboxPool, num_tests: int
) -> tuple[list[Problem], dict[str, str]]:
  """Rows as problems to train on, and those that cannot be one.

  A golden test asks for the very value that the ground truth returns, where the
  row's own test may let close floats or another order pass.

  Args:
    rows: as `load_rows` returns them.
    pool: an open sandbox, with limits that a run's sandbox has too.
    num_tests: the most golden tests a problem: those of the first inputs that
      are short literals. Inputs on which the ground truth fails, or returns
      something else each time, are left out.

  Returns:
    The problems in the order of the rows, and {question_id: why it is none}.

  Raises:
    ValueError: a row's ground truth or test is no program that defines its
      function; names the row.
  """
  jobs = [_oracle_job(row, num_tests) for row in rows]
  headings = [_heading(row) for row in rows]
  made, dropped = [], {}
  for row, job, heading, result in zip(
    rows, jobs, headings, pool.oracle(jobs), strict=True
  ):
    name = row["extra_info"]["question_id"]
    tests = _golden_tests(job, result)
    if tests:
      made.append(Problem(name, *heading, job.entry_point, job.program, tests))
    else:
      dropped[name] = _why_no_test(result)
  return made, dropped


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
  inputs = _inputs(ast.parse(row["test"]))
  if not inputs:
    name = row["extra_info"]["question_id"]
    raise ValueError(f"{name}: the test asserts nothing and has no inputs")
  texts = (f"[{', '.join(map(ast.unparse, call))}]" for call in inputs)
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


def _oracle_job(row: Mapping[str, Any], num_tests: int) -> Job:
  """The ground truth on the first of its test's inputs."""
  try:
    calls = tuple(itertools.islice(_calls(row), num_tests))
    return Job(ground_truth(row), entry_point(row), calls)
  except parsing.PARSER_ERRORS as error:
    where = row["extra_info"]["question_id"]
    raise ValueError(
      f"{where}: field 'test': does not compile: {error}"
    ) from error


def _heading(row: Mapping[str, Any]) -> tuple[str, str]:
  """Question and signature; HumanEval's with what stands above the function."""
  name = entry_point(row)
  source = ground_truth(row)
  error = parsing.code_error(source, name)
  functions = [
    node
    for node in ast.parse("" if error else source).body
    if isinstance(node, ast.FunctionDef) and node.name == name
  ]
  if not functions:
    where = row["extra_info"]["question_id"]
    raise ValueError(
      f"{where}: field 'GT_code': {error or f'{name!r} is no function'}"
    )
  function = functions[-1]
  bare = copy.copy(function)
  bare.body = []
  signature = ast.unparse(bare)
  docstring = ast.get_docstring(function)
  if row["data_source"] != "humanevalplus" or not docstring:
    return row["description"].strip(), signature
  # Imports, and helpers that the docstring speaks of.
  above = "\n".join(source.splitlines()[: function.lineno - 1])
  return docstring, f"{above.strip()}\n\n\n{signature}".lstrip()


def _calls(row: Mapping[str, Any]) -> Iterator[str]:
  """Calls of the function, normalized, with the test's inputs that are short
  literals."""
  name = entry_point(row)
  for arguments in _inputs(ast.parse(row["test"])):
    text = ", ".join(map(ast.unparse, arguments))
    test = parsing.parse_test(f"assert {name}({text}) == None", name)
    if test is not None and len(test.call) <= _LONG_CALL:
      yield test.call


def _inputs(test: ast.Module) -> list[list[ast.expr]]:
  """The arguments of each call: what `check` assigns to `inputs`."""
  for function in test.body:
    if isinstance(function, ast.FunctionDef) and function.name == "check":
      for statement in function.body:
        match statement:
          case ast.Assign(
            targets=[ast.Name(id="inputs")], value=ast.List(elts=inputs)
          ):
            return [i.elts for i in inputs if isinstance(i, ast.List)]
  return []


def _golden_tests(job: Job, result: JobResult) -> tuple[TestCase, ...]:
  """Tests of the calls that gave a value which a literal can write."""
  tests = [
    parsing.parse_test(f"assert {call} == {verdict.value}", job.entry_point)
    for call, verdict in zip(job.calls, result.calls, strict=True)
    if verdict.passed
  ]
  return tuple(dict.fromkeys(test for test in tests if test is not None))


def _why_no_test(result: JobResult) -> str:
  """Why no call of a ground truth makes a golden test."""
  for verdict in (result.load, *result.calls):
    if not verdict.passed:
      return f"{verdict.status} {verdict.detail}".rstrip()
  return "no short literals go in and come out"
