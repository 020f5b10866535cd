"""Test-time collaboration: of n codes, the one that passes most tests.

The Test LLM's suites stand in for an oracle that a user does not have, so that
answers count as predicted, right or wrong (Code-A1, arXiv 2603.15611).
"""

from collections.abc import Sequence

from codea1_jax.sandbox import Job, SandboxPool
from codea1_jax.types import ParsedCode, ParsedSuite, Problem, TestCase


def best_codes(
  problems: Sequence[Problem],
  codes: Sequence[Sequence[ParsedCode]],
  suites: Sequence[Sequence[ParsedSuite]],
  pool: SandboxPool,
) -> list[int]:
  """The code of each problem that passes most of the problem's tests.

  Args:
    problems: [P].
    codes: [P][n].
    suites: [P], all suites that were written for the problem's codes. A test
      counts once, however many suites have it; two answers to one input are
      two tests.
    pool: an open sandbox.

  Returns:
    [P] indices in 0..n-1; the first of equals, 0 where no code runs.
  """
  jobs, places = [], []
  for p, problem in enumerate(problems):
    tests = _distinct_tests(suites[p])
    for n, code in enumerate(codes[p]):
      if not code.error:
        places.append((p, n))
        jobs.append(_job(problem, code, tests))
  passed = [[-1] * len(row) for row in codes]
  for (p, n), result in zip(places, pool.run(jobs)):
    if result.load.passed:
      passed[p][n] = sum(verdict.passed for verdict in result.calls)
  return [row.index(max(row)) for row in passed]


def _distinct_tests(suites: Sequence[ParsedSuite]) -> tuple[TestCase, ...]:
  return tuple(dict.fromkeys(test for suite in suites for test in suite.tests))


def _job(problem: Problem, code: ParsedCode, tests) -> Job:
  return Job(
    code.source,
    problem.entry_point,
    tuple(test.call for test in tests),
    tuple(test.expected for test in tests),
  )
