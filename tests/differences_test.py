"""Where we leave the published program's ways: both ways, and why ours.

The naive side of each test is written here as that program works: asserts as
text, executed one after the other in the namespace of the code.
"""

import re
import subprocess
import sys

import pytest

from codea1_jax import counting, parsing, verification
from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.sandbox import Job, Limits, SandboxPool
from codea1_jax.types import Problem, Status, TestCase

SQUARE = "def f(x):\n  return x * x"
FAULTY = "def f(x):\n  return x + x"
PROBLEM = Problem("square", "Square x.", "def f(x):", "f", SQUARE)


@pytest.fixture(scope="module")
def pool():
  limits = Limits(call_cpu_s=0.3)
  with SandboxPool(
    workers=1, limits=limits, allow_weak_isolation=True
  ) as opened:
    yield opened


def naive_passes(program, asserts):
  """Which asserts hold, all in one namespace."""
  namespace, passes = {}, []
  exec(program, namespace)
  for source in asserts:
    try:
      exec(source, namespace)
      passes.append(True)
    except Exception:
      passes.append(False)
  return passes


def judge(program, lines, pool):
  """The outcome of one suite against one program, our way."""
  suite = parsing.parse_suite("\n".join(lines), "f", 8)
  code = parsing.extract_code(program, "f")
  ((outcome,),) = verification.verify(
    [PROBLEM], [[code]], [[[(suite, 0.0)]]], [()], pool
  )
  return outcome.suites[0]


def test_operators_other_than_equality(pool):
  """There the ground truth's value replaces the predicted one, whatever the
  operator: a right claim turns into one that the ground truth itself fails."""
  claim = "assert f(3) != 6"
  assert naive_passes(SQUARE, [claim]) == [True]
  corrected = re.sub(r"\S+$", "9", claim)  # the ground truth's value
  assert naive_passes(SQUARE, [corrected]) == [False]
  ours = judge(SQUARE, [claim, "assert f(3) == 9"], pool)
  assert [t.source for t in ours.valid_tests] == ["assert f(3) == 9"]
  assert ours.num_invalid == 1 and not ours.failed_tests


def test_escapes_survive_in_stored_tests(pool):
  """There a stored text is unescaped once more when it is read back."""
  program = "def f(x):\n  return len(x)"
  test = parsing.parse_test(r"assert f('a\nb\\') == 4", "f")
  unescaped = test.source.encode().decode("unicode_escape")
  with pytest.raises(SyntaxError):
    compile(unescaped, "<test>", "exec")
  book = MistakeBook().update([BookEvent("q", newly_failed=(test,))])
  (ours,) = MistakeBook.from_json(book.to_json()).replay("q", 8)
  (result,) = pool.run([Job(program, "f", (ours.call,), (ours.expected,))])
  assert result.calls[0].passed


def test_names_left_in_a_shared_namespace(pool):
  """There a suite can replace the function that its later tests call."""
  lines = ["f = lambda x: x * x", "assert f(3) == 9"]
  assert naive_passes(FAULTY, lines) == [True, True]
  ours = judge(FAULTY, lines, pool)
  assert [t.call for t in ours.failed_tests] == ["f(3)"]
  # And a test may read what the code left there: no input of its own.
  assert naive_passes(SQUARE + "\nleft = 3", ["assert f(left) == 9"]) == [True]
  ours = judge(SQUARE + "\nleft = 3", ["assert f(left) == 9"], pool)
  assert ours.num_invalid == 1 and not ours.valid_tests


def test_one_hanging_test_loses_only_itself(pool):
  """There one time limit holds for a group: what hangs takes all with it."""
  program = "def f(x):\n  while x == 7: pass\n  return x * x"
  calls = ("f(2)", "f(7)", "f(3)")
  answers = ("4", "49", "9")
  group = program + "".join(
    f"\nassert {call} == {answer}" for call, answer in zip(calls, answers)
  )
  with pytest.raises(subprocess.TimeoutExpired):
    subprocess.run([sys.executable, "-c", group], timeout=2)
  (result,) = pool.run([Job(program, "f", calls, answers)])
  statuses = [verdict.status for verdict in result.calls]
  assert statuses == [Status.PASS, Status.TIMEOUT, Status.PASS]


def test_a_code_without_its_function_is_invalid(pool):
  """There it counts as valid, so that its tester is paid for every test."""
  program = "def g(x):\n  return x"
  assert naive_passes(program, ["assert f(3) == 9"]) == [False]
  code = parsing.extract_code(program, "f")
  suite = parsing.parse_suite("assert f(3) == 9", "f", 8)
  outcomes = verification.verify(
    [PROBLEM], [[code]], [[[(suite, 0.0)]]], [(TestCase("f(1)", "1"),)], pool
  )
  counts = counting.count([PROBLEM], outcomes, MistakeBook())
  assert not counts.code_valid.any()
  assert not counting.book_events([PROBLEM], outcomes, "paper")
