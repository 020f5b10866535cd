"""Verdict counting through the real parser, sandbox and judge."""

import json
import pathlib

import numpy as np
import pytest

from codea1_jax import counting, parsing, rewards, verification
from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem, Status, TestCase, Verdict

FIXTURES = (
  pathlib.Path(__file__).parents[2]
  / "shared"
  / "fixtures"
  / "reference_fixtures.json"
)
MAX_OF = Problem(
  id="max",
  question="Return the largest number of xs, None of an empty list.",
  signature="def max_of(xs):",
  entry_point="max_of",
  ground_truth="def max_of(xs):\n    return max(xs) if xs else None",
)
WRONG = "def max_of(xs):\n    return max(xs)"


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, allow_weak_isolation=True) as opened:
    yield opened


def verify(problem, program, suites, replayed, pool):
  """One code's outcome against suites given as lists of assert lines."""
  parsed = [
    (parsing.parse_suite("\n".join(s), problem.entry_point, 8), 0.0)
    for s in suites
  ]
  code = parsing.extract_code(program, problem.entry_point)
  outcomes = verification.verify(
    [problem], [[code]], [[parsed]], [replayed], pool
  )
  return outcomes


def test_counts_by_hand(pool):
  suite = [
    "assert max_of([1, 2]) == 2",  # passes
    "assert max_of([]) == None",  # the code raises
    "assert max_of([3]) == 4",  # wrong answer: valid input, and invalid
    "assert max_of([1, 2]) == 2",  # repeats
    "assert max_of(5) == 5",  # the ground truth raises
    "assert max_of(",  # does not parse
  ]
  replayed = (TestCase("max_of([])", "None"), TestCase("max_of([7])", "7"))
  outcomes = verify(MAX_OF, WRONG, [suite], replayed, pool)
  suite = outcomes[0][0].suites[0]
  assert [t.source for t in suite.valid_tests] == [
    "assert max_of([1, 2]) == 2",
    "assert max_of([]) == None",
    "assert max_of([3]) == 3",
  ]
  assert [t.call for t in suite.failed_tests] == ["max_of([])"]
  assert suite.num_invalid == 4
  statuses = [v.status for v in outcomes[0][0].replayed_verdicts]
  assert statuses == [Status.ERROR, Status.PASS]
  book = MistakeBook().update(
    [BookEvent("max", newly_failed=(TestCase("max_of([])", "None"),))]
  )
  counts = counting.count([MAX_OF], outcomes, book)
  assert counts.num_valid.tolist() == [[[3]]]
  assert counts.num_passed.tolist() == [[[2]]]
  assert counts.num_failed.tolist() == [[[1]]]
  assert counts.num_new_failed.tolist() == [[[0]]]  # the book knows it
  assert counts.replayed_passed.tolist() == [[1]]
  assert not counts.masked.any()


def test_code_that_does_not_load_is_invalid_and_stays_out_of_the_book(pool):
  suite = ["assert max_of([1]) == 1"]
  outcomes = verify(MAX_OF, "def max_of(xs:", [suite], (), pool)
  assert outcomes[0][0].load.status is Status.INVALID
  counts = counting.count([MAX_OF], outcomes, MistakeBook())
  assert not counts.code_valid.any()
  assert not counting.book_events([MAX_OF], outcomes, "paper")


def test_book_events_count_a_test_once_a_code(pool):
  suite = ["assert max_of([]) == None"]
  outcomes = verify(
    MAX_OF, WRONG, [suite, suite], (TestCase("max_of([7])", "7"),), pool
  )
  (event,) = counting.book_events([MAX_OF], outcomes, "paper")
  assert event.question_id == "max"
  assert [t.call for t in event.newly_failed] == ["max_of([])"]
  assert [t.call for t in event.replayed_passed] == ["max_of([7])"]


def test_infrastructure_failure_masks_the_suite():
  broken = Verdict(Status.INFRASTRUCTURE)
  fine = Verdict(Status.PASS, "1")
  test = TestCase("f(1)", "1")

  def suite(verdict):
    return verification.SuiteOutcome((test,), (fine,), (True,), (verdict,), 0)

  code = verification.CodeOutcome(fine, (suite(broken), suite(fine)), (), ())
  problem = Problem("q", "", "def f(x):", "f", "def f(x): return x")
  counts = counting.count([problem], [[code]], MistakeBook())
  assert counts.masked.tolist() == [[[True, False]]]
  got = rewards.compute("paper", counts, alpha=0.5, tests_per_suite=1)
  assert got.test_mask.tolist() == [[[False, True]]]
  assert got.code.tolist() == [[1.0]]  # the mean over the suite that ran


def test_same_value_is_pythons_equality():
  assert verification.same_value("1", "1.0")
  assert verification.same_value("{1: 2, 3: 4}", "{3: 4, 1: 2}")
  assert not verification.same_value("[1]", "(1,)")
  assert not verification.same_value("1", "2")


@pytest.mark.skipif(not FIXTURES.exists(), reason="needs ../shared")
def test_evaluation_fixture(pool):
  cases = json.loads(FIXTURES.read_text())["evaluation"]
  for case in cases:
    name = case["function"]
    problem = Problem("q", "", f"def {name}():", name, case["ground_truth"])
    replayed = tuple(parsing.parse_test(t, name) for t in case["replayed"])
    suites = [
      (parsing.parse_suite("\n".join(s), name, None), 0.0)
      for s in case["suites"]
    ]
    code = parsing.extract_code(case["candidate"], name)
    outcomes = verification.verify(
      [problem], [[code]], [[suites]], [replayed], pool
    )
    counts = counting.count([problem], outcomes, MistakeBook())
    got = rewards.compute(
      "paper", counts, alpha=case["alpha"], tests_per_suite=8
    )
    assert outcomes[0][0].load.passed == case["code_is_valid"]
    for n, expected in enumerate(case["suite_results"]):
      suite = outcomes[0][0].suites[n]
      assert [t.source for t in suite.valid_tests] == expected["valid_tests"]
      assert [t.source for t in suite.failed_tests] == (
        expected["failing_tests"]
      )
      assert suite.num_invalid == expected["num_invalid"]
      np.testing.assert_allclose(
        got.test[0, 0, n], expected["test_reward"], atol=1e-5
      )
      np.testing.assert_allclose(
        got.code_per_suite[0, 0, n], expected["code_reward"], atol=1e-5
      )
    np.testing.assert_allclose(got.code[0, 0], case["code_reward"], atol=1e-5)
