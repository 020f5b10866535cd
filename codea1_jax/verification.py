"""Parsed codes and suites -> typed verdicts, counts and book events.

The ground truth runs on every distinct input of a question; each code then
runs once, on all valid inputs of its own suites and on its question's replayed
tests. No jax: the trainer's devices have nothing to do with it.

Letters: Q questions, M codes a question, N suites a code, K tests a suite.
"""

import ast
import dataclasses
from collections.abc import Sequence

import numpy as np

from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.rewards import SuiteCounts, enters_book
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


@dataclasses.dataclass(frozen=True)
class SuiteOutcome:
  """What became of one suite; the tuples run along `tests`."""

  tests: tuple[TestCase, ...]  # as parsed, with the predicted answers
  oracle: tuple[Verdict, ...]  # of the ground truth
  correct: tuple[bool, ...]  # the prediction is the ground truth's value
  verdicts: tuple[Verdict | None, ...]  # of the code; None: not a valid test
  num_invalid: int
  nonprintable: float = 0.0

  @property
  def valid_tests(self) -> tuple[TestCase, ...]:
    """The distinct accepted tests, with the ground truth's value."""
    return tuple(
      TestCase(test.call, oracle.value)
      for test, oracle, verdict in zip(self.tests, self.oracle, self.verdicts)
      if verdict is not None
    )

  @property
  def failed_tests(self) -> tuple[TestCase, ...]:
    ran = [v for v in self.verdicts if v is not None]
    return tuple(t for t, v in zip(self.valid_tests, ran) if not v.passed)

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


def verify(
  problems: Sequence[Problem],
  codes: Sequence[Sequence[ParsedCode]],
  suites: Sequence[Sequence[Sequence[tuple[ParsedSuite, float]]]],
  replayed: Sequence[Sequence[TestCase]],
  pool: SandboxPool,
) -> list[list[CodeOutcome]]:
  """Runs everything of a step, in two round trips to the sandbox.

  Args:
    problems: [Q].
    codes: [Q][M].
    suites: [Q][M][N] of (suite, its completion's non-printable share).
    replayed: [Q] tests from the book.
    pool: an open sandbox.

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
        code, suites[q][m], oracles[q], replayed[q], results.get((q, m))
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


def _code_outcome(code, suites, oracle, replayed, ran) -> CodeOutcome:
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
      _suite_outcome(suite, share, oracle, verdicts, load)
      for suite, share in suites
    ),
    replayed=tuple(replayed),
    replayed_verdicts=tuple(verdicts.get(t.call, load) for t in replayed),
  )


def _suite_outcome(suite, nonprintable, oracle, verdicts, load) -> SuiteOutcome:
  """Counts as ALGORITHM.md says: a wrong answer is valid input and invalid."""
  seen, judged, correct = set(), [], []
  num_invalid = suite.num_unparsed
  for test in suite.tests:
    truth = oracle[test.call]
    accepted = truth.passed and test.call not in seen
    right = truth.passed and same_value(test.expected, truth.value)
    seen.add(test.call)
    judged.append(verdicts.get(test.call, load) if accepted else None)
    correct.append(right)
    num_invalid += not (accepted and right)
  return SuiteOutcome(
    tests=suite.tests,
    oracle=tuple(oracle[t.call] for t in suite.tests),
    correct=tuple(correct),
    verdicts=tuple(judged),
    num_invalid=num_invalid,
    nonprintable=nonprintable,
  )


def same_value(left: str, right: str) -> bool:
  """Whether two literals are equal in Python's sense; lists are no tuples."""
  if left == right:
    return True
  try:
    return ast.literal_eval(left) == ast.literal_eval(right)
  except (ValueError, SyntaxError, MemoryError, RecursionError):
    return False


def count(
  problems: Sequence[Problem],
  outcomes: Sequence[Sequence[CodeOutcome]],
  book: MistakeBook,
) -> SuiteCounts:
  """Outcomes [Q][M] with N suites each -> arrays for the rewards."""
  known = [{e.test.call for e in book.entries(p.id)} for p in problems]

  def per_code(value):
    return np.array(
      [[value(q, c) for c in row] for q, row in enumerate(outcomes)]
    )

  def per_suite(value):
    return per_code(lambda q, c: [value(q, c, s) for s in c.suites])

  return SuiteCounts(
    code_valid=per_code(lambda q, c: c.load.passed),
    num_valid=per_suite(lambda q, c, s: len(s.valid_tests)),
    num_invalid=per_suite(lambda q, c, s: s.num_invalid),
    num_passed=per_suite(
      lambda q, c, s: len(s.valid_tests) - len(s.failed_tests)
    ),
    num_failed=per_suite(lambda q, c, s: len(s.failed_tests)),
    num_new_failed=per_suite(
      lambda q, c, s: sum(t.call not in known[q] for t in s.failed_tests)
    ),
    replayed_total=per_code(lambda q, c: len(c.replayed)),
    replayed_passed=per_code(
      lambda q, c: sum(v.passed for v in c.replayed_verdicts)
    ),
    nonprintable=per_suite(lambda q, c, s: s.nonprintable),
    masked=per_suite(lambda q, c, s: c.masked or s.masked),
  )


def book_events(
  problems: Sequence[Problem],
  outcomes: Sequence[Sequence[CodeOutcome]],
  preset: str,
) -> list[BookEvent]:
  """What valid codes did, one event a code; masked ones stay out."""
  events = []
  for problem, row in zip(problems, outcomes):
    for code in row:
      if not code.load.passed or code.masked:
        continue
      passed = tuple(
        test
        for test, verdict in zip(code.replayed, code.replayed_verdicts)
        if verdict.passed
      )
      failed: dict[TestCase, None] = {}  # a test counts once a code
      for suite in code.suites:
        if not suite.masked:
          ran = [v for v in suite.verdicts if v is not None]
          takes = enters_book(preset, np.array([not v.passed for v in ran]))
          failed.update(
            (t, None) for t, take in zip(suite.valid_tests, takes) if take
          )
      if passed or failed:
        events.append(BookEvent(problem.id, passed, tuple(failed)))
  return events
