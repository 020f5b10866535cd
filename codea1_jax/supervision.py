"""Supervised examples for the Test LLM from problems with known faults.

The paper's sft baseline: (question, faulty code) -> golden asserts.
"""

from collections.abc import Sequence

import numpy as np

from codea1_jax import evaluation
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem, Status, TestCase


def draw_faulty(
  problems: Sequence[Problem], each: int, rng: np.random.Generator
) -> list[tuple[Problem, str]]:
  """`each` faulty programs of every problem, drawn with replacement."""
  return [
    (problem, problem.faulty_programs[index])
    for problem in problems
    for index in rng.integers(len(problem.faulty_programs), size=each)
  ]


def golden_suites(
  targets: Sequence[tuple[Problem, str]],
  num_tests: int,
  pool: SandboxPool,
  rng: np.random.Generator,
) -> list[tuple[TestCase, ...]]:
  """K golden tests against each program: those that it fails come first.

  Which ones it fails is found by running it. Both kinds are in random order,
  and where it fails fewer than K, others fill up.

  Args:
    targets: [P] problems with one faulty program each.
    num_tests: K.
    pool: an open sandbox.
    rng: orders the tests.

  Returns:
    [P] of at most K tests.
  """
  jobs = [evaluation.golden_job(problem, code) for problem, code in targets]
  suites = []
  for (problem, _), result in zip(targets, pool.run(jobs)):
    order = rng.permutation(len(problem.golden_tests))
    # Our own failure says nothing of the program.
    unknown = (Status.PASS, Status.INFRASTRUCTURE)
    holds = [result.calls[k].status in unknown for k in order]
    ranked = order[np.argsort(holds, kind="stable")]
    suites.append(tuple(problem.golden_tests[k] for k in ranked[:num_tests]))
  return suites


def completion(tests: Sequence[TestCase]) -> str:
  """The answer that the Test LLM should have written."""
  body = "\n".join(test.source for test in tests)
  return f"```python\n{body}\n```"
