"""Parsed codes and suites -> typed verdicts.

The ground truth runs on every distinct input of a question and on its replayed
tests; each code then runs once, on all valid inputs of its own suites and on
the replayed tests that still hold. No jax: the trainer's devices have nothing
to do with it.

Letters: Q questions, M codes a question, N suites a code, K tests a suite.
"""

import ast
import dataclasses
import functools
from collections.abc import Callable, Sequence

from codea1_jax.sandbox import Job, SandboxPool
from codea1_jax.types import (
  ParsedCode,
  ParsedSuite,
  Problem,
  Status,
  TestCase,
  Verdict,
)

INFRASTRUCTURE = Status.INFRASTRUCTURE

# (problem, tests of a suite with the ground truth's values) -> for each test
# why it does not count, or "".
Reject = Callable[[Problem, Sequence[TestCase]], Sequence[str]]
# A question's tests that its ground truth contradicts, with the reasons.
Quarantined = tuple[tuple[TestCase, str], ...]


@dataclasses.dataclass(frozen=True)
class SuiteOutcome:
  """What became of one suite; the tuples run along `tests`."""

  tests: tuple[TestCase, ...]  # as parsed, with the predicted answers
  oracle: tuple[Verdict, ...]  # of the ground truth
  correct: tuple[bool, ...]  # the prediction is the ground truth's value
  verdicts: tuple[Verdict | None, ...]  # of the code; None: it did not run
  num_invalid: int
  nonprintable: float = 0.0
  rejected: tuple[str, ...] = ()  # the rule of quality.py, or ""; (): no rules

  @property
  def valid_tests(self) -> tuple[TestCase, ...]:
    """The distinct accepted tests, with the ground truth's value."""
    return tuple(test for test, _ in self._judged(""))

  @property
  def failed_tests(self) -> tuple[TestCase, ...]:
    return tuple(test for test, v in self._judged("") if not v.passed)

  @property
  def passed_tests(self) -> tuple[TestCase, ...]:
    return tuple(test for test, v in self._judged("") if v.passed)

  @property
  def failed_stale_tests(self) -> tuple[TestCase, ...]:
    """Rejected because every code passed them for long; this one does not."""
    return tuple(test for test, v in self._judged("stale") if not v.passed)

  @property
  def num_rejected(self) -> int:
    return sum(map(bool, self.rejected))

  def _judged(self, rule: str) -> list[tuple[TestCase, Verdict]]:
    """Tests with the ground truth's value, and verdicts; of one rule ("" for
    the tests that no rule rejects)."""
    rejected = self.rejected or ("",) * len(self.tests)
    rows = zip(self.tests, self.oracle, self.verdicts, rejected)
    return [
      (TestCase(test.call, oracle.value), verdict)
      for test, oracle, verdict, why in rows
      if verdict is not None and why == rule
    ]

  @property
  def masked(self) -> bool:
    outcomes = (*self.oracle, *(v for v in self.verdicts if v))
    return any(v.status is INFRASTRUCTURE for v in outcomes)


@dataclasses.dataclass(frozen=True)
class CodeOutcome:
  """One code with its suites and its question's replayed tests."""

  load: Verdict
  suites: tuple[SuiteOutcome, ...]
  replayed: tuple[TestCase, ...]
  replayed_verdicts: tuple[Verdict, ...]

  @property
  def masked(self) -> bool:
    outcomes = (self.load, *self.replayed_verdicts)
    return any(v.status is INFRASTRUCTURE for v in outcomes)


def recheck(
  problems: Sequence[Problem],
  replayed: Sequence[Sequence[TestCase]],
  pool: SandboxPool,
) -> tuple[list[tuple[TestCase, ...]], list[Quarantined]]:
  """The book's tests that the ground truths still satisfy, and the others.

  A ground truth's results are cached, so that this costs something once a
  test only. What infrastructure kept from running is in neither.

  Args:
    problems: [Q].
    replayed: [Q] tests from the book.
    pool: an open sandbox.

  Returns:
    [Q] tests to replay, and [Q] of (test, why it goes to quarantine).
  """
  results = pool.oracle(
    [
      Job(p.ground_truth, p.entry_point, tuple(t.call for t in tests))
      for p, tests in zip(problems, replayed)
    ]
  )
  kept, contradicted = [], []
  for tests, result in zip(replayed, results):
    reasons = [
      (test, _contradiction(test, truth))
      for test, truth in zip(tests, result.calls)
      if truth.status is not INFRASTRUCTURE
    ]
    kept.append(tuple(test for test, why in reasons if not why))
    contradicted.append(tuple((test, why) for test, why in reasons if why))
  return kept, contradicted


def _contradiction(test: TestCase, truth: Verdict) -> str:
  """Why the ground truth does not satisfy a test; "" where it does."""
  if not truth.passed:
    return f"the ground truth ends with {truth.status} {truth.detail}".rstrip()
  if not same_value(test.expected, truth.value):
    return f"the ground truth returns {truth.value[:200]}"
  return ""


def verify(
  problems: Sequence[Problem],
  codes: Sequence[Sequence[ParsedCode]],
  suites: Sequence[Sequence[Sequence[tuple[ParsedSuite, float]]]],
  replayed: Sequence[Sequence[TestCase]],
  pool: SandboxPool,
  reject: Reject | None = None,
) -> list[list[CodeOutcome]]:
  """Runs everything of a step, in two round trips to the sandbox.

  Args:
    problems: [Q].
    codes: [Q][M].
    suites: [Q][M][N] of (suite, its completion's non-printable share).
    replayed: [Q] tests from the book.
    pool: an open sandbox.
    reject: the quality filter, see quality.py; None lets every test count.

  Returns:
    [Q][M] outcomes.
  """
  oracles = _oracles(problems, suites, pool)
  places, jobs = [], []
  for q, problem in enumerate(problems):
    for m, code in enumerate(codes[q]):
      calls = _calls_to_run(suites[q][m], oracles[q], replayed[q])
      if not code.error:
        places.append((q, m))
        jobs.append(
          Job(
            code.source,
            problem.entry_point,
            tuple(calls),
            tuple(calls.values()),
          )
        )
  results = dict(zip(places, zip(jobs, pool.run(jobs))))
  return [
    [
      _code_outcome(
        code,
        suites[q][m],
        oracles[q],
        replayed[q],
        results.get((q, m)),
        functools.partial(reject, problems[q]) if reject else _accept_all,
      )
      for m, code in enumerate(codes[q])
    ]
    for q in range(len(problems))
  ]


def _oracles(problems, suites, pool) -> list[dict[str, Verdict]]:
  """For each question: call -> the ground truth's verdict and value."""
  calls = [
    tuple(
      dict.fromkeys(
        test.call for code in row for suite, _ in code for test in suite.tests
      )
    )
    for row in suites
  ]
  results = pool.oracle(
    [Job(p.ground_truth, p.entry_point, c) for p, c in zip(problems, calls)]
  )
  return [dict(zip(c, r.calls)) for c, r in zip(calls, results)]


def _calls_to_run(suites, oracle, replayed) -> dict[str, str]:
  """call -> expected value, of all that one code has to face."""
  calls = {test.call: test.expected for test in replayed}
  for suite, _ in suites:
    for test in suite.tests:
      if oracle[test.call].passed:
        calls[test.call] = oracle[test.call].value
  return calls


def _accept_all(tests: Sequence[TestCase]) -> list[str]:
  return [""] * len(tests)


def _code_outcome(code, suites, oracle, replayed, ran, reject) -> CodeOutcome:
  if ran is None:
    load = Verdict(Status.INVALID, detail=code.error)
    verdicts = {}
  else:
    job, result = ran
    load = result.load
    verdicts = dict(zip(job.calls, result.calls))
  return CodeOutcome(
    load=load,
    suites=tuple(
      _suite_outcome(suite, share, oracle, verdicts, load, reject)
      for suite, share in suites
    ),
    replayed=tuple(replayed),
    replayed_verdicts=tuple(verdicts.get(t.call, load) for t in replayed),
  )


def _suite_outcome(
  suite, nonprintable, oracle, verdicts, load, reject
) -> SuiteOutcome:
  """Counts as ALGORITHM.md says: a wrong answer is valid input and invalid."""
  seen, judged, correct, rejected = set(), [], [], []
  num_invalid = suite.num_unparsed
  answered = [
    TestCase(test.call, oracle[test.call].value or test.expected)
    for test in suite.tests
  ]
  for test, why_not in zip(suite.tests, reject(answered)):
    truth = oracle[test.call]
    accepted = truth.passed and test.call not in seen
    right = truth.passed and same_value(test.expected, truth.value)
    seen.add(test.call)
    judged.append(verdicts.get(test.call, load) if accepted else None)
    correct.append(right)
    rejected.append(why_not if accepted else "")
    num_invalid += not (accepted and right and not why_not)
  return SuiteOutcome(
    tests=suite.tests,
    oracle=tuple(oracle[t.call] for t in suite.tests),
    correct=tuple(correct),
    verdicts=tuple(judged),
    num_invalid=num_invalid,
    nonprintable=nonprintable,
    rejected=tuple(rejected),
  )


def same_value(left: str, right: str) -> bool:
  """Whether two literals are equal in Python's sense; lists are no tuples."""
  if left == right:
    return True
  try:
    return ast.literal_eval(left) == ast.literal_eval(right)
  except (ValueError, SyntaxError, MemoryError, RecursionError):
    return False
