"""Best of n codes by suites whose answers may be wrong; supervised suites."""

import numpy as np
import pytest

from codea1_jax import collaboration, parsing, supervision
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem, TestCase

DOUBLE = Problem(
  id="double",
  question="Return twice x.",
  signature="def double(x):",
  entry_point="double",
  ground_truth="def double(x):\n  return 2 * x",
  golden_tests=tuple(
    TestCase(f"double({x})", str(2 * x)) for x in (0, 1, 2, 5, -3)
  ),
  faulty_programs=("def double(x):\n  return x * x",),
)


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=1, allow_weak_isolation=True) as opened:
    yield opened


def codes(*sources):
  return [parsing.extract_code(source, "double") for source in sources]


def suite(*lines):
  return parsing.parse_suite("\n".join(lines), "double", None)


def test_the_code_that_passes_most_tests_is_chosen(pool):
  broken = "def double(x:"
  square, right = "def double(x): return x * x", DOUBLE.ground_truth
  suites = [
    suite("assert double(0) == 0", "assert double(2) == 4"),  # both pass
    suite("assert double(3) == 6", "assert double(3) == 9"),  # one each
    suite("assert double(5) == 10"),
  ]
  choose = collaboration.best_codes
  rows = [codes(broken, square, right), codes(right, square), codes(broken)]
  assert choose([DOUBLE] * 3, rows, [suites] * 3, pool) == [2, 0, 0]
  # Without the last suite they are equal, and the first one wins.
  assert choose([DOUBLE], [codes(square, right)], [suites[:2]], pool) == [0]


def test_a_test_counts_once_however_many_suites_have_it(pool):
  square, right = "def double(x): return x * x", DOUBLE.ground_truth
  wrong = suite("assert double(3) == 9")
  suites = [wrong, wrong, wrong, suite("assert double(4) == 8"),
            suite("assert double(6) == 12")]  # fmt: skip
  (best,) = collaboration.best_codes(
    [DOUBLE], [codes(square, right)], [suites], pool
  )
  assert best == 1


def test_golden_suites_begin_with_what_the_program_fails(pool):
  rng = np.random.default_rng(0)
  targets = supervision.draw_faulty([DOUBLE], 3, rng)
  assert targets == [(DOUBLE, DOUBLE.faulty_programs[0])] * 3
  suites = supervision.golden_suites(targets, 4, pool, rng)
  failing = {"double(1)", "double(5)", "double(-3)"}  # x * x != 2 * x
  for tests in suites:
    assert {t.call for t in tests[:3]} == failing and len(tests) == 4
    assert tests[3].call in ("double(0)", "double(2)")
  assert len(set(suites)) > 1  # not always in one order
  text = supervision.completion(suites[0])
  assert parsing.parse_suite(text, "double", 4).tests == suites[0]
