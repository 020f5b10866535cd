"""Problem files, and which problems a step takes."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from codea1_jax import problems
from codea1_jax.types import Problem, TestCase

ROW = {
  "id": "q1",
  "question": "Double\u2028it.",
  "signature": "def f(x):",
  "entry_point": "f",
  "ground_truth": "def f(x):\n  return 2 * x",
  "golden_tests": ["assert f( 1 )==2", "assert f([1]) == [1, 1], 'twice'"],
  "faulty_programs": ["def f(x):\n  return x"],
  "family": "doubling",
}
PROBLEM = Problem(
  id="q1",
  question="Double\u2028it.",
  signature="def f(x):",
  entry_point="f",
  ground_truth="def f(x):\n  return 2 * x",
  golden_tests=(TestCase("f(1)", "2"), TestCase("f([1])", "[1, 1]")),
  faulty_programs=("def f(x):\n  return x",),
  family="doubling",
)
MINIMAL = {
  k: ROW[k]
  for k in ("id", "question", "signature", "entry_point", "ground_truth")
}


def written(tmp_path, *rows):
  """A problem file of rows, each an object or a raw line."""
  path = tmp_path / "p.jsonl"
  lines = [
    row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
    for row in rows
  ]
  path.write_text("\n".join(lines) + "\n", encoding="utf-8")
  return path


def many(n):
  return tuple(Problem(str(i), "q", "s", "f", "f = 1") for i in range(n))


def test_load_and_save_are_inverse(tmp_path):
  second = {**MINIMAL, "id": "q2"}
  loaded = problems.load_problems(written(tmp_path, ROW, second))
  assert loaded[0] == PROBLEM
  assert loaded[1] == Problem(**second)
  problems.save_problems(tmp_path / "again.jsonl", loaded)
  assert problems.load_problems(str(tmp_path / "again.jsonl")) == loaded


@pytest.mark.parametrize("missing", list(MINIMAL))
def test_a_missing_field_is_named(tmp_path, missing):
  row = {k: v for k, v in MINIMAL.items() if k != missing}
  path = written(tmp_path, {**MINIMAL, "id": "q0"}, row)
  with pytest.raises(ValueError) as error:
    problems.load_problems(path)
  assert str(error.value) == f"{path}:2: field '{missing}': missing"


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"extra": 1}, "field 'extra': unknown"),
    ({"id": 3}, "field 'id': must be a string, is int"),
    ({"question": None}, "field 'question': must be a string, is NoneType"),
    ({"signature": " "}, "field 'signature': empty"),
    ({"entry_point": "a b"}, "field 'entry_point': 'a b' is not a name"),
    ({"entry_point": "def"}, "field 'entry_point': 'def' is not a name"),
    ({"golden_tests": "x"}, "field 'golden_tests': must be a list, is str"),
    (
      {"golden_tests": {"a": "b"}},
      "field 'golden_tests': must be a list, is tuple",
    ),
    (
      {"golden_tests": ["assert f(1) == 1", 3]},
      "field 'golden_tests[1]': must be a string, is int",
    ),
    (
      {"golden_tests": ["assert g(1) == 1"]},
      "field 'golden_tests[0]': not a test of 'f': 'assert g(1) == 1'",
    ),
    ({"golden_tests": ["x = 1\nassert f(x) == 1"]}, "not a test of 'f'"),
    ({"ground_truth": "def f(x)"}, "field 'ground_truth': does not compile"),
    ({"ground_truth": "def g(x): pass"}, "'ground_truth': does not define 'f'"),
    ({"faulty_programs": ["def f(): pass", "1 +"]}, "'faulty_programs[1]'"),
    ({"family": 1}, "field 'family': must be a string"),
  ],
)
def test_a_malformed_field_is_named(tmp_path, change, message):
  path = written(tmp_path, {**MINIMAL, **change})
  with pytest.raises(ValueError) as error:
    problems.load_problems(path)
  assert str(error.value).startswith(f"{path}:1: field '")
  assert message in str(error.value)


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("{", ":2: invalid JSON"),
    ("", ":2: invalid JSON"),
    ("[1]", ":2: not an object"),
    ("3", ":2: not an object"),
    ('{"id": "a", "id": "b"}', ":2: field 'id': given twice"),
    (json.dumps(ROW), ":2: field 'id': 'q1' is already in row 1"),
    ("[" * 100_000, ":2: invalid JSON"),
  ],
)
def test_a_malformed_row_is_named(tmp_path, line, message):
  path = written(tmp_path, ROW, line, {**ROW, "id": "q3"})
  with pytest.raises(ValueError) as error:
    problems.load_problems(path)
  assert str(error.value).startswith(f"{path}{message}")


def test_unreadable_files_are_value_errors(tmp_path):
  with pytest.raises(ValueError, match=r"none.jsonl: cannot be read"):
    problems.load_problems(tmp_path / "none.jsonl")
  empty, binary = tmp_path / "empty.jsonl", tmp_path / "binary.jsonl"
  empty.write_text("")
  with pytest.raises(ValueError, match=r"empty.jsonl: empty file"):
    problems.load_problems(empty)
  binary.write_bytes(b"\xff\xfe")
  with pytest.raises(ValueError, match=r"binary.jsonl: cannot be read"):
    problems.load_problems(binary)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 3))
def test_epochs_are_permutations_across_batch_borders(n, size, seed):
  everything = many(n)
  size = min(size, n)
  taken = [
    problem.id
    for step in range(2 * n)
    for problem in problems.batch(everything, step, size, seed)
  ]
  assert len(taken) == 2 * n * size
  for start in range(0, len(taken), n):
    assert sorted(taken[start : start + n]) == sorted(p.id for p in everything)


def test_batches_depend_on_step_and_seed_only():
  everything = many(50)
  first = problems.batch(everything, 7, 20, 1)
  assert problems.batch(everything, 7, 20, 1) == first
  assert problems.batch(everything, 7, 20, 2) != first
  epochs = [problems.batch(everything, step, 50, 1) for step in range(3)]
  assert len(set(epochs)) == 3
  assert everything not in epochs


def test_impossible_batches_are_refused():
  for size in (0, 4):
    with pytest.raises(ValueError, match=rf"batch size {size} is not in 1..3"):
      problems.batch(many(3), 0, size, 0)
  for step, seed in ((-1, 0), (0, -1)):
    with pytest.raises(ValueError, match="must not be negative"):
      problems.batch(many(3), step, 1, seed)


def test_a_subset_grows_keeps_the_order_and_depends_on_the_seed():
  numbers = tuple(range(50))
  small, large = (problems.subset(numbers, n, 3) for n in (7, 20))
  assert len(small) == 7 and set(small) < set(large)
  assert list(large) == sorted(large)
  assert problems.subset(numbers, 7, 4) != small
  assert problems.subset(numbers, 99, 3) == numbers
