"""EvalPlus rows: their functions, strict tests, and problems to train on."""

import os
import pathlib
import subprocess
import sys

import evalplus_rows
import pytest

from codea1_jax import evalplus, problems
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem, TestCase

_NAMES = {
  "HumanEval/0": "has_close_elements",
  "HumanEval/15": "string_sequence",
  "HumanEval/32": "find_zero",
  "MBPP/6": "differ_At_One_Bit_Pos",
  "MBPP/9": "find_Rotations",
  "MBPP/56": "check",
  "MBPP/123": "amicable_numbers_sum",
}
# Quick ones of every kind of test: results written out, a reference in the
# test, a polynomial, sets, the function called `check`, a helper's name wrong.
_QUICK = (
  *("HumanEval/0", "HumanEval/14", "HumanEval/32", "HumanEval/100"),
  *("MBPP/2", "MBPP/6", "MBPP/9", "MBPP/56", "MBPP/88"),
)


@pytest.fixture(scope="module")
def rows():
  return {row["extra_info"]["question_id"]: row for row in evalplus_rows.load()}


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(numpy=True) as made:
    yield made


def _row(assertion, source="mbppplus", name="f", results="[1.0]"):
  test = f"""
import numpy as np
def assertion(out, exp, atol):
  if out != exp and atol != 0:
    assert np.allclose(out, exp, rtol=1e-07, atol=atol)
  else:
    assert out == exp

def check({name}):
    inputs = [[1]]
    results = {results}
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        {assertion}
"""
  return {
    "data_source": source,
    "description": "What it does.",
    "problem": "def f(x):\n",
    "GT_code": "  return x",
    "test": test,
    "extra_info": {"function_name": "named", "question_id": "MBPP/0"},
  }


def test_the_function_is_what_the_test_calls():
  called = _row("assertion(f(*inp), exp, 0)")
  assert evalplus.entry_point(called) == "f"
  parameter = _row("assertion(candidate(*inp), g(*inp), 0)", name="candidate")
  assert evalplus.entry_point(parameter) == "named"


def test_an_mbpp_problem_is_no_part_of_its_program():
  row = _row("pass")
  assert evalplus.ground_truth(row) == "  return x"
  row["data_source"] = "humanevalplus"
  assert evalplus.ground_truth(row) == "def f(x):\n  return x"


def test_a_test_without_assertions_wants_the_ground_truths_values(pool):
  """As MBPP/737, where a constant passes."""
  row = _row("assertion(f(*inp), exp, 0)") | {"GT_code": "def f(x): return [x]"}
  assert evalplus.asserts_something(row)
  row["test"] = row["test"].replace("assert ", "_ = ")
  assert not evalplus.asserts_something(row)
  jobs = [
    evalplus.strict_job(row, f"def f(x): return {value}")
    for value in ("[x]", "[x + 0]", "5", "None", "[2]", "x")
  ]
  passed = [result.verdict.passed for result in pool.check(jobs)]
  assert passed == [True, True, False, False, False, False]
  row["test"] = row["test"].replace("inputs = [[1]]", "inputs = made()")
  with pytest.raises(ValueError, match="MBPP/0: the test asserts nothing"):
    evalplus.strict_test(row)


@pytest.mark.parametrize(
  ("expected", "answer", "passes"),
  [
    ("[[]]", "[1.0]", False),  # numpy would broadcast both of these
    ("[[]]", "5.0", False),
    ("[[]]", "[]", True),
    ("[[1.0, 2.0]]", "[1.0, 2.0 + 1e-9]", True),
    ("[[1.0, 2.0]]", "[1.0, 2.1]", False),
    ("[3.0]", "3", True),
  ],
)
def test_close_needs_the_same_shape(pool, expected, answer, passes):
  row = _row("assertion(f(*inp), exp, 1e-6)", results=expected)
  job = evalplus.strict_job(row, f"def f(x): return {answer}")
  (result,) = pool.check([job])
  assert result.verdict.passed == passes, result


def test_functions_of_real_rows(rows):
  found = {name: evalplus.entry_point(rows[name]) for name in _NAMES}
  assert found == _NAMES


def _constant(row):
  return f"def {evalplus.entry_point(row)}(*_): return 'no such value'"


def test_quick_ground_truths_pass_and_constants_fail(pool, rows):
  chosen = [rows[name] for name in _QUICK]
  jobs = [
    evalplus.strict_job(row, program(row))
    for program in (evalplus.ground_truth, _constant)
    for row in chosen
  ]
  passed = [result.verdict.passed for result in pool.check(jobs)]
  assert passed == [True] * len(chosen) + [False] * len(chosen)


@pytest.mark.slow
def test_all_ground_truths_pass_and_constants_fail(pool, rows):
  """Prints the CPU seconds beside those of the same programs unprotected."""
  rows = list(rows.values())
  truths = [
    evalplus.strict_job(row, evalplus.ground_truth(row), 60.0) for row in rows
  ]
  results = pool.check(truths)
  failed = {
    row["extra_info"]["question_id"]: result.verdict
    for row, result in zip(rows, results)
    if not result.verdict.passed
  }
  assert not failed
  constants = [evalplus.strict_job(row, _constant(row)) for row in rows]
  assert not any(result.verdict.passed for result in pool.check(constants))
  ours = sum(result.cpu_s for result in results)
  plain = sum(evalplus_rows.cpu_seconds(job) for job in truths)
  print(f"{len(rows)} ground truths: {ours:.1f} CPU s, unprotected {plain:.1f}")
  assert ours < 2 * plain


# On rows as they come from a file: HumanEval's function stands in two fields.
_HELPER = "import math\n\n\ndef half(x: float):\n    return x / 2\n\n\n"
_HALVE = {
  "prompt": [{"role": "user", "content": "Halve it."}],
  "data_source": "humanevalplus",
  "description": "the helper's description",
  "problem": f'''{_HELPER}def halve(xs: list, *, up=False) -> list:
    """ Halve it.
    >>> halve([2])
    [1.0]
    """
''',
  "GT_code": """    if xs and xs[0] < 0:
        raise ValueError(xs)
    return [half(x) for x in xs]
""",
  "test": f"""
def other():
  inputs = [[9]]  # not these
def check(candidate):
  inputs = [[[2, 4]], [[-1]], [[inf]], [[2,4]], [[{"1," * 300}]], [[]], [[3]]]
  for i, inp in enumerate(inputs):
    assert candidate(*inp) == [half(x) for x in inp[0]]
""",
  "extra_info": {"function_name": "halve", "question_id": "HumanEval/900"},
}

_NAMED = "def named(x): return x"


def test_a_row_becomes_a_problem(pool):
  """Raises, no literal, the same once more, too long: none is a golden test."""
  made, dropped = evalplus.to_problems([_HALVE], pool, 5)
  assert not dropped
  assert made == [
    Problem(
      id="HumanEval/900",
      question="Halve it.\n>>> halve([2])\n[1.0]",
      signature=f"{_HELPER}def halve(xs: list, *, up=False) -> list:",
      entry_point="halve",
      ground_truth=_HALVE["problem"] + _HALVE["GT_code"],
      golden_tests=(
        TestCase("halve([2, 4])", "[1.0, 2.0]"),
        TestCase("halve([])", "[]"),
        TestCase("halve([3])", "[1.5]"),
      ),
    )
  ]
  (few,), _ = evalplus.to_problems([_HALVE], pool, 1)
  assert few.golden_tests == made[0].golden_tests[:1]


def test_an_mbpp_row_becomes_a_problem(pool):
  row = _row("assertion(f(*inp), exp, 0)") | {
    "GT_code": "def f(): pass\ndef f(x):\n  'Other.'\n  return x ** 0.5"
  }
  (made,), _ = evalplus.to_problems([row], pool, 4)
  assert made.question == "What it does."
  assert made.signature == "def f(x):"
  assert made.golden_tests == (TestCase("f(1)", "1.0"),)


@pytest.mark.parametrize(
  ("body", "reason"),
  [
    ("raise KeyError(x)", "error KeyError: 1"),
    ("return object()", "error"),
    ("return max(iter(int, 1))", "timeout"),
    ("import random; return random.random()", "invalid not deterministic"),
    ("return x\nraise OSError('no')", "error OSError: no"),
  ],
)
def test_a_row_without_a_golden_test_is_left_out(pool, body, reason):
  row = _row("assertion(f(*inp), exp, 0)") | {"GT_code": f"def f(x): {body}"}
  made, dropped = evalplus.to_problems([row], pool, 4)
  assert not made
  assert list(dropped) == ["MBPP/0"]
  assert dropped["MBPP/0"].startswith(reason)


def test_a_row_without_literal_inputs_is_left_out(pool):
  row = _row("pass")
  row["test"] = row["test"].replace("[[1]]", "[[np.inf], [int]]")
  made, dropped = evalplus.to_problems([row | {"GT_code": _NAMED}], pool, 4)
  assert not made
  assert dropped == {"MBPP/0": "no short literals go in and come out"}


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"GT_code": "def f(x)"}, "MBPP/0: field 'GT_code': does not compile"),
    ({"GT_code": "g = 1"}, "MBPP/0: field 'GT_code': does not define 'named'"),
    ({"GT_code": "named = abs"}, "field 'GT_code': 'named' is no function"),
    ({"test": "def check(f)"}, "MBPP/0: field 'test': does not compile"),
  ],
)
def test_a_row_that_is_no_program_is_named(pool, change, message):
  with pytest.raises(ValueError) as error:
    evalplus.to_problems([_row("pass") | change], pool, 4)
  assert message in str(error.value)


def _written(tmp_path, *rows):
  """A parquet file of the rows."""
  pyarrow = pytest.importorskip("pyarrow", reason="rows need pyarrow")
  from pyarrow import parquet

  path = tmp_path / "rows.parquet"
  parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
  return path


def test_rows_of_a_file(tmp_path):
  assert evalplus.load_rows(_written(tmp_path, _HALVE)) == [_HALVE]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"test": None}, ":2: field 'test': missing, must be a string"),
    ({"GT_code": " "}, ":2: field 'GT_code': empty"),
    ({"extra_info": None}, ":2: field 'question_id': missing"),
    ({"prompt": []}, ":2: field 'prompt': must be a list of messages"),
    (
      {"prompt": [{"role": "user", "content": None}]},
      ":2: field 'prompt': field 'content': missing",
    ),
    ({}, ":2: field 'question_id': 'HumanEval/900' is already in row 1"),
  ],
)
def test_a_malformed_row_is_named(tmp_path, change, message):
  path = _written(tmp_path, _HALVE, _HALVE | change)
  with pytest.raises(ValueError) as error:
    evalplus.load_rows(path)
  assert str(error.value).startswith(f"{path}{message}")


def test_a_field_of_another_type_is_named(tmp_path):
  path = _written(tmp_path, _HALVE | {"problem": 3})
  with pytest.raises(ValueError, match=":1: field 'problem': is int, must be"):
    evalplus.load_rows(path)


def test_a_file_that_is_no_parquet_is_named(tmp_path):
  pytest.importorskip("pyarrow", reason="rows need pyarrow")
  path = tmp_path / "rows.parquet"
  for text in ("", "{}"):
    path.write_text(text)
    with pytest.raises(ValueError, match=r"rows\.parquet: cannot be read"):
      evalplus.load_rows(path)
  with pytest.raises(ValueError, match=r"none\.parquet: cannot be read"):
    evalplus.load_rows(tmp_path / "none.parquet")


def _make_problems(tmp_path, path, *arguments):
  """The command as a user types it."""
  return subprocess.run(
    [
      *(sys.executable, "-m", "experiments.make_problems"),
      *(f"--evalplus={path}", f"--out={tmp_path / 'out'}", *arguments),
    ],
    cwd=pathlib.Path(__file__).parents[1],
    env=os.environ | {"XLA_FLAGS": ""},
    capture_output=True,
    text=True,
    timeout=120,
  )


def test_the_command_splits_rows_into_two_files(tmp_path):
  named = [{"function_name": "halve", "question_id": str(n)} for n in range(4)]
  rows = [_HALVE | {"extra_info": extra} for extra in named]
  rows[3]["GT_code"] = "    return object()\n"
  path = _written(tmp_path, *rows)
  done = _make_problems(tmp_path, path, "--heldout=1", "--tests=1")
  assert done.returncode == 0, done.stderr
  assert "left out: 3: error" in done.stdout
  train, heldout = (
    problems.load_problems(tmp_path / "out" / f"{name}.jsonl")
    for name in ("train", "heldout")
  )
  assert (len(train), len(heldout)) == (2, 1)
  assert {p.id for p in train + heldout} == {"0", "1", "2"}
  assert all(len(p.golden_tests) == 1 for p in train + heldout)
  done = _make_problems(tmp_path, path, "--heldout=3")
  assert done.returncode == 2
  assert done.stderr.count("\n") == 1
  assert "3 problems, --heldout=3 leaves none to train on" in done.stderr


def test_real_rows_become_problems(pool, rows):
  chosen = [rows[name] for name in _NAMES]
  made, dropped = evalplus.to_problems(chosen, pool, 4)
  assert not dropped
  assert [p.id for p in made] == list(_NAMES)
  assert [p.entry_point for p in made] == list(_NAMES.values())
  assert all(len(p.golden_tests) == 4 for p in made)
  helped = made[list(_NAMES).index("HumanEval/32")]
  assert helped.question.startswith("xs are coefficients of a polynomial.")
  assert "def poly(xs: list, x: float):" in helped.signature
  assert made[0].golden_tests[1] == TestCase(
    "has_close_elements([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.05)", "False"
  )
