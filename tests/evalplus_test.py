"""EvalPlus rows: their functions and strict tests."""

import evalplus_rows
import pytest
from dataset_rows import EVALPLUS, written

from codea1_jax import evalplus
from codea1_jax.sandbox import SandboxPool

_FILE = "rows.parquet"
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


def test_rows_of_a_file(tmp_path):
  path = written(tmp_path, EVALPLUS, name=_FILE)
  assert evalplus.load_rows(path) == [EVALPLUS]


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
  path = written(tmp_path, EVALPLUS, EVALPLUS | change, name=_FILE)
  with pytest.raises(ValueError) as error:
    evalplus.load_rows(path)
  assert str(error.value).startswith(f"{path}{message}")


def test_a_field_of_another_type_is_named(tmp_path):
  path = written(tmp_path, EVALPLUS | {"problem": 3}, name=_FILE)
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
