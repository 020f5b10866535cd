"""The Mistake Book: tests that broke earlier codes, kept to be replayed.

An immutable value of the training state (Code-A1, arXiv 2603.15611):
question -> tests, each with how often codes of that question failed it.
Beside them stand, all bounded: an archive of resolved tests, a quarantine of
tests that may not enter, and the streaks of tests that all codes pass.
"""

import dataclasses
import json
import types
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codea1_jax.book_update import (
  BookEntry,
  BookEvent,
  Page,
  Turnover,
  bound_total,
  by_frequency,
  by_question,
  store,
  update_page,
)
from codea1_jax.types import TestCase

SAMPLERS = ("frequency", "recent", "quality")
_BOUNDS = {  # field -> the least value that it may have
  "max_per_question": 1,
  "max_total": 1,
  "max_archive": 0,
  "max_streaks": 0,
}
_MALFORMED = (
  ValueError,
  TypeError,
  KeyError,
  AttributeError,
  RecursionError,
)


@dataclasses.dataclass(frozen=True)
class MistakeBook:
  """question id -> entries in book order; equal frequencies replay in it."""

  max_per_question: int = 64  # entries; and tests in quarantine
  max_total: int = 100_000  # entries
  num_updates: int = 0
  questions: Mapping[str, tuple[BookEntry, ...]] = dataclasses.field(
    default_factory=dict
  )
  max_archive: int = 0  # resolved tests kept for a question
  max_streaks: int = 0  # calls tracked for a question
  archive: Mapping[str, tuple[TestCase, ...]] = dataclasses.field(
    default_factory=dict
  )  # the newest last
  quarantine: Mapping[str, tuple[tuple[TestCase, str], ...]] = (
    dataclasses.field(default_factory=dict)
  )  # (test, reason), the newest last
  streaks: Mapping[str, Mapping[str, int]] = dataclasses.field(
    default_factory=dict
  )  # question id -> call -> steps; see `updated`

  def __post_init__(self):
    for name, least in _BOUNDS.items():
      if getattr(self, name) < least:
        raise ValueError(
          f"{name} is {getattr(self, name)}, must be at least {least}"
        )
    for name in ("questions", "archive", "quarantine"):
      object.__setattr__(self, name, _frozen(getattr(self, name)))
    inner = {
      question_id: calls if isinstance(calls, _Frozen) else _frozen(calls)
      for question_id, calls in self.streaks.items()
    }
    object.__setattr__(self, "streaks", _frozen(inner))

  @property
  def size(self) -> int:
    """Tests in the book, over all questions."""
    return sum(len(entries) for entries in self.questions.values())

  def entries(self, question_id: str) -> tuple[BookEntry, ...]:
    """The entries of one question in book order; () where it has none."""
    return self.questions.get(question_id, ())

  def streak(self, question_id: str, call: str) -> int:
    """Steps in a row in which all codes that ran a call passed; 0: none."""
    return self.streaks.get(question_id, {}).get(call, 0)

  def top_k(self, n: int) -> dict[str, tuple[BookEntry, ...]]:
    """The most frequent tests of every question, for evaluation and export.

    Args:
      n: the most entries to take of a question.

    Returns:
      question id -> at most n entries, the most frequent first, of equals the
      one that stands earlier.

    Raises:
      ValueError: for a negative n.
    """
    if n < 0:
      raise ValueError(f"n is {n}, must not be negative")
    return {
      question_id: tuple(sorted(entries, key=by_frequency)[:n])
      for question_id, entries in self.questions.items()
    }

  def replay(
    self,
    question_id: str,
    k: int,
    sampler: str = "frequency",
    *,
    seed: Sequence[int] = (),
    refresh: int = 0,
  ) -> tuple[TestCase, ...]:
    """The tests that codes of a question must face again.

    A pure function of the book and the arguments: what it draws, it draws from
    numpy's default generator of (*seed, crc32 of the question id).

    Args:
      question_id: the question.
      k: R, the most tests to return.
      sampler: "frequency" takes the most frequent (the paper), "recent" those
        failed last; either way ties keep the earlier one first. "quality"
        draws without replacement, in proportion to the stored quality.
      seed: non-negative integers; needed for "quality" and for a refresh.
      refresh: how many of the k places go to tests drawn uniformly from the
        archive, as far as it holds so many. A book that is short of entries
        leaves its own places empty.

    Returns:
      At most k tests, foremost first; those from the archive come last.

    Raises:
      ValueError: for an unknown sampler, a negative k, a refresh that is not
        in [0, k], or where a seed is missing or negative.
    """
    _check_replay(k, sampler, seed, refresh)
    archive = self.archive.get(question_id, ())
    num_drawn = min(refresh, len(archive))
    # SeedSequence drops trailing zeros, so that the hash must stand last.
    crc = zlib.crc32(question_id.encode("utf-8", "surrogatepass"))
    rng = np.random.default_rng([*seed, crc]) if seed else None
    ranked = _ranked(self.entries(question_id), sampler, rng)
    tests = [entry.test for entry in ranked[: k - num_drawn]]
    if num_drawn:
      places = rng.permutation(len(archive))[:num_drawn]
      tests += [archive[place] for place in places]
    return tuple(tests)

  def update(self, events: Sequence[BookEvent]) -> "MistakeBook":
    """The book after a step, see `updated`."""
    return self.updated(events)[0]

  def updated(
    self, events: Sequence[BookEvent]
  ) -> tuple["MistakeBook", Turnover]:
    """The book after a step, and what came and went.

    For each question with an event, as the paper's published program does:
    its entries are put in order of frequency (ties stay); each replayed pass
    takes 1 off a test, which is resolved at 0 and leaves, and passes of a test
    that is not in the book do nothing; then each new failure adds 1, and a test
    that is not there (any more) enters at the end with 1. All passes of a
    question act before all its failures.

    What the paper's program does not have:
    * Between the two, a test that stood in the archive before the step and that
      a replay failed returns with 1, however many codes failed it. Replayed
      failures change nothing of tests that are in the book, as in the paper.
    * After the failures, each accepted test gains 1 just as a failed one does:
      `last_failed` is the update that last added to a test, because evictions
      and "recent" ask for its age, not for the verdict.
    * The quality of a test that gains is 1.0 for a failure, 0.6 for an
      acceptance, or what it was where that is more.
    * A quarantined test (same call and answer) leaves book and archive and does
      not enter, from this step on, while its reason is kept: the oldest reasons
      go when there are more than max_per_question. The first reason stays.
    * Resolved tests that did not come back go to the archive, the oldest leave
      it first; a test that enters the book leaves it too. Evicted tests do not
      go there: they are not resolved.
    * A call's streak grows by 1 where some code newly passed it and none failed
      it, newly or in replay; a failure removes it, and a step that did not run
      it leaves it. The longest are kept.

    Last, the bounds: the least frequent go first, among equals the one whose
    last failure is oldest.

    The order of events does not matter to frequencies, qualities, archive,
    quarantine and streaks. It does to the order of tests that enter together,
    and so to which of two is evicted that equal each other in all the above.

    Args:
      events: what the valid codes did; several may name one question.

    Returns:
      The new book, which shares the entries of untouched questions, and counts.
    """
    number, turnovers = self.num_updates + 1, []
    questions, archive = dict(self.questions), dict(self.archive)
    quarantine, streaks = dict(self.quarantine), dict(self.streaks)
    for question_id, own in by_question(events).items():
      page, turnover = update_page(
        self._page(question_id),
        own,
        number,
        max_entries=self.max_per_question,
        max_archive=self.max_archive,
        max_streaks=self.max_streaks,
      )
      turnovers.append(turnover)
      store(questions, question_id, page.entries)
      store(archive, question_id, page.archive)
      store(quarantine, question_id, page.quarantine)
      store(streaks, question_id, page.streaks)
    turnovers.append(Turnover(evicted=bound_total(questions, self.max_total)))
    book = dataclasses.replace(
      self,
      num_updates=number,
      questions=questions,
      archive=archive,
      quarantine=quarantine,
      streaks=streaks,
    )
    return book, Turnover.total(turnovers)

  def to_json(self) -> str:
    """The whole book as one JSON text; `from_json` is its exact inverse."""
    fields = {name: getattr(self, name) for name in ("num_updates", *_BOUNDS)}
    for name, as_row in (
      ("questions", _entry_row),
      ("archive", _test_row),
      ("quarantine", lambda named: [*_test_row(named[0]), named[1]]),
    ):
      fields[name] = {
        question_id: [as_row(item) for item in items]
        for question_id, items in getattr(self, name).items()
      }
    fields["streaks"] = {q: dict(calls) for q, calls in self.streaks.items()}
    return json.dumps(fields)

  @classmethod
  def from_json(cls, text: str) -> "MistakeBook":
    """The book that `to_json` wrote; ValueError where `text` is not one.

    Fields that a text of an earlier version lacks have their defaults.
    """
    try:
      fields = json.loads(text)
      fields["questions"]  # the one that every version wrote
      for name, read in (
        ("questions", _read_entry),
        ("archive", lambda row: TestCase(*_checked(row, str, str))),
        ("quarantine", _read_quarantined),
      ):
        fields[name] = {
          question_id: tuple(map(read, rows))
          for question_id, rows in fields.get(name, {}).items()
        }
      for calls in fields.get("streaks", {}).values():
        _checked(list(calls.values()), *[int] * len(calls))
      return cls(**fields)
    except _MALFORMED as e:
      raise ValueError(f"not a mistake book: {type(e).__name__}: {e}") from e

  def _page(self, question_id: str) -> Page:
    return Page(
      self.entries(question_id),
      self.archive.get(question_id, ()),
      self.quarantine.get(question_id, ()),
      self.streaks.get(question_id, {}),
    )


_Frozen = types.MappingProxyType


def _frozen(mapping: Mapping) -> Mapping:
  """A read-only copy."""
  return _Frozen(dict(mapping))


def _check_replay(k: int, sampler: str, seed: Sequence[int], refresh: int):
  """What `replay` raises of itself."""
  if sampler not in SAMPLERS:
    raise ValueError(
      f"unknown sampler {sampler!r}; known: {', '.join(SAMPLERS)}"
    )
  if k < 0:
    raise ValueError(f"k is {k}, must not be negative")
  if not 0 <= refresh <= k:
    raise ValueError(f"refresh is {refresh}, must be in [0, k = {k}]")
  if not seed and (sampler == "quality" or refresh):
    raise ValueError(
      f"sampler {sampler!r} with refresh {refresh} draws: needs a seed"
    )


def _ranked(
  entries: Sequence[BookEntry], sampler: str, rng: np.random.Generator | None
) -> list[BookEntry]:
  """All entries, those that the sampler takes first at the front."""
  if sampler == "frequency":
    return sorted(entries, key=by_frequency)
  if sampler == "recent":
    return sorted(entries, key=lambda entry: -entry.last_failed)
  # Exponential clocks of these rates ring in the order of successive draws
  # without replacement, in proportion to the rates.
  qualities = np.array([entry.quality for entry in entries])
  clocks = rng.exponential(size=len(entries)) / qualities
  return [entries[i] for i in np.argsort(clocks, kind="stable")]


def _test_row(test: TestCase) -> list[str]:
  return [test.call, test.expected]


def _entry_row(e: BookEntry) -> list:
  return [*_test_row(e.test), e.frequency, e.last_failed, e.quality]


def _read_entry(row: Any) -> BookEntry:
  """An entry; rows of the first version end before the quality."""
  kinds = (str, str, int, int, int | float)
  call, expected, *rest = _checked(row, *kinds[: max(4, len(row))])
  return BookEntry(TestCase(call, expected), *rest)


def _read_quarantined(row: Any) -> tuple[TestCase, str]:
  call, expected, reason = _checked(row, str, str, str)
  return TestCase(call, expected), reason


def _checked(row: Any, *kinds: Any) -> list:
  """`row`, where it is a list of values of these kinds; else ValueError."""
  right = isinstance(row, list) and len(row) == len(kinds)
  if not (right and all(map(isinstance, row, kinds))):
    raise ValueError(f"malformed row {row!r}")
  return row
