"""Outcomes -> the arrays that rewards read, and the events that the book reads.

Letters: Q questions, M codes a question, N suites a code.
"""

from collections.abc import Sequence

import numpy as np

from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.rewards import SuiteCounts, enters_book
from codea1_jax.types import Problem
from codea1_jax.verification import CodeOutcome, Quarantined


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
  quarantined: Sequence[Quarantined] = (),
) -> list[BookEvent]:
  """What valid codes did, one event a code; masked ones stay out.

  Args:
    problems: [Q].
    outcomes: [Q][M].
    preset: the rewards' preset, which says what enters the book.
    quarantined: [Q] what `recheck` found, or ().
  """
  events = [
    BookEvent(problem.id, quarantined=found)
    for problem, found in zip(problems, quarantined)
    if found
  ]
  for problem, row in zip(problems, outcomes):
    for code in row:
      if code.load.passed and not code.masked:
        events.append(_book_event(problem.id, code, preset))
  return events


def _book_event(question_id: str, code: CodeOutcome, preset: str) -> BookEvent:
  """One valid code's event: a test counts once, however many suites have it."""
  replayed = list(zip(code.replayed, code.replayed_verdicts))
  suites = [suite for suite in code.suites if not suite.masked]
  # A stale test that breaks a code again ends its streak, and is a mistake.
  failed = tuple(
    dict.fromkeys(
      t for s in suites for t in (*s.failed_tests, *s.failed_stale_tests)
    )
  )
  passed = tuple(dict.fromkeys(t for s in suites for t in s.passed_tests))
  takes_passed = enters_book(preset, np.array(False))
  return BookEvent(
    question_id,
    replayed_passed=tuple(test for test, v in replayed if v.passed),
    replayed_failed=tuple(test for test, v in replayed if not v.passed),
    newly_failed=failed,
    newly_passed=passed,
    newly_accepted=passed if takes_passed else (),
  )
