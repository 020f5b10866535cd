"""EvalPlus rows: their functions, and strict tests through the sandbox."""

import evalplus_rows
import pytest

from codea1_jax import evalplus
from codea1_jax.sandbox import SandboxPool

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


def test_a_test_without_assertions_is_flagged():
  row = _row("assertion(f(*inp), exp, 0)")
  row["test"] = row["test"].replace("assert ", "_ = ")
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
