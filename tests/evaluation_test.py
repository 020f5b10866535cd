"""Held-out scores by hand-made completions in the real sandbox."""

import pytest

from codea1_jax import evaluation
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Completion, Problem, TestCase

ABSOLUTE = Problem(
  id="abs",
  question="Return the absolute value of x.",
  signature="def f(x):",
  entry_point="f",
  ground_truth="def f(x):\n    return abs(x)",
  golden_tests=(TestCase("f(1)", "1"), TestCase("f(-1)", "1")),
  faulty_programs=("def f(x):\n    return x", "def f(x):\n    return -x"),
)


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, allow_weak_isolation=True) as opened:
    yield opened


def completion(text):
  return Completion(f"```python\n{text}\n```", (), (), True)


def test_golden_pass_is_the_share_of_tests(pool):
  row = [
    completion("def f(x):\n    return abs(x)"),
    completion("def f(x):\n    return x"),
    completion("def g(x):\n    return x"),
  ]
  shares = evaluation.golden_pass([ABSOLUTE], [row], pool)
  assert shares == [[1.0, 0.5, 0.0]]
  assert evaluation.pass_rate(shares) == pytest.approx(1 / 3)


def test_pass_rate_leaves_out_what_did_not_run():
  assert evaluation.pass_rate([[1.0, None], [0.0]]) == 0.5


def test_attack_scores(pool):
  targets = evaluation.attack_targets([ABSOLUTE], 2)
  assert [program for _, program in targets] == list(ABSOLUTE.faulty_programs)
  rows = [
    # Kills `return x` with a right answer; one wrong answer beside it.
    [completion("assert f(-2) == 2\nassert f(3) == 4")],
    # Right about `return -x` only in its input: the answer is wrong.
    [completion("assert f(5) == -5\nassert f(0) == 0")],
  ]
  scores = evaluation.attack_scores(targets, rows, 2, pool)
  assert scores == {"validity": 0.5, "kill_rate": 0.5, "attack_rate": 1.0}
