"""The Mistake Book: tests that broke earlier codes, kept to be replayed.

An immutable value of the training state (Code-A1, arXiv 2603.15611):
question -> tests, each with how often codes of that question failed it.
"""

import collections
import dataclasses
import heapq
import json
import types
from collections.abc import Mapping, Sequence

from codea1_jax.types import TestCase

SAMPLERS = ("frequency", "recent")


@dataclasses.dataclass(frozen=True)
class BookEntry:
  """One test in the book."""

  test: TestCase
  frequency: int  # failures minus passes in replay; at least 1
  last_failed: int  # number of the update that last counted a failure


@dataclasses.dataclass(frozen=True)
class BookEvent:
  """What the valid codes of one question did in one step.

  A test stands as often as codes passed (or failed) it.
  """

  question_id: str
  replayed_passed: tuple[TestCase, ...] = ()
  newly_failed: tuple[TestCase, ...] = ()


@dataclasses.dataclass(frozen=True)
class MistakeBook:
  """question id -> entries in book order; equal frequencies replay in it."""

  max_per_question: int = 64
  max_total: int = 100_000
  num_updates: int = 0
  questions: Mapping[str, tuple[BookEntry, ...]] = dataclasses.field(
    default_factory=dict
  )

  def __post_init__(self):
    for name in ("max_per_question", "max_total"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
    frozen = types.MappingProxyType(dict(self.questions))
    object.__setattr__(self, "questions", frozen)

  @property
  def size(self) -> int:
    """Tests in the book, over all questions."""
    return sum(len(entries) for entries in self.questions.values())

  def entries(self, question_id: str) -> tuple[BookEntry, ...]:
    """The entries of one question in book order; () where it has none."""
    return self.questions.get(question_id, ())

  def replay(
    self, question_id: str, k: int, sampler: str = "frequency"
  ) -> tuple[TestCase, ...]:
    """The tests that codes of a question must face again.

    Args:
      question_id: the question.
      k: R, the most tests to return.
      sampler: "frequency" takes the most frequent (the paper), "recent" those
        failed last; either way ties keep the earlier one first.

    Returns:
      At most k tests, foremost first.

    Raises:
      ValueError: for an unknown sampler or a negative k.
    """
    if sampler not in SAMPLERS:
      raise ValueError(
        f"unknown sampler {sampler!r}; known: {', '.join(SAMPLERS)}"
      )
    if k < 0:
      raise ValueError(f"k is {k}, must not be negative")
    key = _by_frequency if sampler == "frequency" else _by_recency
    ranked = sorted(self.entries(question_id), key=key)
    return tuple(entry.test for entry in ranked[:k])

  def update(self, events: Sequence[BookEvent]) -> "MistakeBook":
    """The book after a step.

    For each question with an event, as the paper's published program does:
    its entries are put in order of frequency (ties stay); each replayed pass
    takes 1 off a test, which is gone at 0 and passes of a test that is not in
    the book do nothing; then each new failure adds 1, and a test that is not
    there (any more) enters at the end with 1. All passes of a question act
    before all its failures, so the order of events does not matter to the
    frequencies. Last, the bounds: the least frequent go first, among equals the
    one whose last failure is oldest.

    Args:
      events: what the valid codes did; several may name one question.

    Returns:
      The new book. It shares the entries of untouched questions.
    """
    number = self.num_updates + 1
    passed: dict[str, list[TestCase]] = collections.defaultdict(list)
    failed: dict[str, list[TestCase]] = collections.defaultdict(list)
    for event in events:
      passed[event.question_id] += event.replayed_passed
      failed[event.question_id] += event.newly_failed
    questions = dict(self.questions)
    for question_id in passed:
      entries = _update_question(
        self.entries(question_id),
        passed[question_id],
        failed[question_id],
        number,
      )
      _store(questions, question_id, _bounded(entries, self.max_per_question))
    _bound_total(questions, self.max_total)
    return dataclasses.replace(self, num_updates=number, questions=questions)

  def to_json(self) -> str:
    """The whole book as one JSON text; `from_json` is its exact inverse."""
    return json.dumps(
      {
        "max_per_question": self.max_per_question,
        "max_total": self.max_total,
        "num_updates": self.num_updates,
        "questions": {
          question_id: [
            [e.test.call, e.test.expected, e.frequency, e.last_failed]
            for e in entries
          ]
          for question_id, entries in self.questions.items()
        },
      }
    )

  @classmethod
  def from_json(cls, text: str) -> "MistakeBook":
    """The book that `to_json` wrote; ValueError where `text` is not one."""
    try:
      fields = json.loads(text)
      questions = {
        question_id: tuple(
          BookEntry(TestCase(call, expected), frequency, last_failed)
          for call, expected, frequency, last_failed in rows
        )
        for question_id, rows in fields.pop("questions").items()
      }
      return cls(questions=questions, **fields)
    except (ValueError, TypeError, KeyError, AttributeError) as e:
      raise ValueError(f"not a mistake book: {type(e).__name__}: {e}") from e


def _by_frequency(entry: BookEntry) -> int:
  """Sort key: most frequent first."""
  return -entry.frequency


def _by_recency(entry: BookEntry) -> int:
  """Sort key: last failed first."""
  return -entry.last_failed


def _update_question(
  entries: Sequence[BookEntry],
  passed: Sequence[TestCase],
  failed: Sequence[TestCase],
  number: int,
) -> tuple[BookEntry, ...]:
  """Entries of one question after its passes, then its failures."""
  by_test = {entry.test: entry for entry in sorted(entries, key=_by_frequency)}
  for test in passed:
    entry = by_test.get(test)
    if entry is None:
      continue
    if entry.frequency == 1:
      del by_test[test]
    else:
      by_test[test] = dataclasses.replace(entry, frequency=entry.frequency - 1)
  for test in failed:
    before = by_test[test].frequency if test in by_test else 0
    by_test[test] = BookEntry(test, before + 1, number)
  return tuple(by_test.values())


def _bounded(entries: Sequence[BookEntry], limit: int) -> tuple[BookEntry, ...]:
  """At most `limit` entries in their order, the least frequent left out."""
  ranked = sorted(
    range(len(entries)),
    key=lambda i: (entries[i].frequency, entries[i].last_failed, i),
  )
  kept = sorted(ranked[max(0, len(entries) - limit) :])
  return tuple(entries[i] for i in kept)


def _bound_total(
  questions: dict[str, tuple[BookEntry, ...]], limit: int
) -> None:
  """Evicts from `questions`, in place, until `limit` entries are left."""
  excess = sum(map(len, questions.values())) - limit
  if excess <= 0:
    return
  # Question and position break ties, so that dict order plays no part.
  ranked = (
    (entry.frequency, entry.last_failed, question_id, position)
    for question_id, entries in questions.items()
    for position, entry in enumerate(entries)
  )
  evicted: dict[str, set[int]] = collections.defaultdict(set)
  for _, _, question_id, position in heapq.nsmallest(excess, ranked):
    evicted[question_id].add(position)
  for question_id, positions in evicted.items():
    kept = tuple(
      entry
      for position, entry in enumerate(questions[question_id])
      if position not in positions
    )
    _store(questions, question_id, kept)


def _store(
  questions: dict[str, tuple[BookEntry, ...]],
  question_id: str,
  entries: tuple[BookEntry, ...],
) -> None:
  """Sets the entries of a question; a question without any is left out."""
  if entries:
    questions[question_id] = entries
  else:
    questions.pop(question_id, None)
