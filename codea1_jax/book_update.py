"""What a step does to the Mistake Book, question by question.

`mistake_book.MistakeBook` holds the value; here stand the rules by which one
question's page changes, and the records that go in. All of it is pure.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from codea1_jax.rewards import COMPOSITE_DIFFICULTY, COMPOSITE_VALIDITY
from codea1_jax.types import TestCase

# Preset `composite`'s scores of a test that a code failed, and of one that is
# only known to be valid; other presets take none of these.
FAILED_QUALITY = COMPOSITE_VALIDITY + COMPOSITE_DIFFICULTY
ACCEPTED_QUALITY = COMPOSITE_VALIDITY


@dataclasses.dataclass(frozen=True, slots=True)
class BookEntry:
  """One test in the book."""

  test: TestCase
  frequency: int  # gains minus passes in replay; at least 1
  last_failed: int  # number of the update that last added to the frequency
  quality: float = FAILED_QUALITY  # never falls while the test is in the book


@dataclasses.dataclass(frozen=True)
class BookEvent:
  """What the valid codes of one question did in one step.

  A test stands as often as codes passed (or failed) it.
  """

  question_id: str
  replayed_passed: tuple[TestCase, ...] = ()
  newly_failed: tuple[TestCase, ...] = ()
  newly_accepted: tuple[TestCase, ...] = ()  # enter although the code passed
  newly_passed: tuple[TestCase, ...] = ()  # of suites; they count for streaks
  replayed_failed: tuple[TestCase, ...] = ()  # brings archived tests back
  quarantined: tuple[tuple[TestCase, str], ...] = ()  # (test, reason)


@dataclasses.dataclass(frozen=True)
class Page:
  """All that the book holds of one question."""

  entries: tuple[BookEntry, ...] = ()
  archive: tuple[TestCase, ...] = ()  # resolved tests, the newest last
  quarantine: tuple[tuple[TestCase, str], ...] = ()  # the newest last
  streaks: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Turnover(NamedTuple):
  """How many tests an update brings into the book and takes out of it.

  A test that is resolved and enters again in one update is in none of these;
  one that enters and finds no room is added and evicted.
  """

  added: int = 0
  resolved: int = 0  # as often passed in replay as it had gained
  evicted: int = 0  # for want of room
  withdrawn: int = 0  # into quarantine

  @classmethod
  def total(cls, parts: "Iterable[Turnover]") -> "Turnover":
    return cls(*map(sum, zip(cls(), *parts)))


def by_question(events: Iterable[BookEvent]) -> dict[str, list[BookEvent]]:
  """Question id -> its events, in their order."""
  found: dict[str, list[BookEvent]] = collections.defaultdict(list)
  for event in events:
    found[event.question_id].append(event)
  return found


def update_page(
  page: Page,
  events: Sequence[BookEvent],
  number: int,
  *,
  max_entries: int,
  max_archive: int,
  max_streaks: int,
) -> tuple[Page, Turnover]:
  """One question's page after a step; `MistakeBook.updated` says the rules.

  Args:
    page: the page before.
    events: at least one, all of this question.
    number: of this update, from 1.
    max_entries: bounds the entries, and the quarantine.
    max_archive: bounds the archive.
    max_streaks: bounds the streaks.

  Returns:
    The new page, and what came and went.
  """
  event = _merged(events)
  quarantine = _quarantine(page.quarantine, event.quarantined)
  by_test = _after_gains(
    page, _after_passes(page.entries, event), event, number
  )
  for test in quarantine:
    by_test.pop(test, None)
  gone = by_test.keys() | quarantine.keys()  # from the archive
  before = {entry.test for entry in page.entries}
  resolved = before - gone
  archive = [test for test in page.archive if test not in gone]
  # By text, as the book's order depends on the order of earlier events.
  archive += sorted(resolved, key=_by_text)
  entries = _bounded(tuple(by_test.values()), max_entries)
  turnover = Turnover(
    added=len(by_test.keys() - before),
    resolved=len(resolved),
    evicted=len(by_test) - len(entries),
    withdrawn=len(before & quarantine.keys()),
  )
  return Page(
    entries,
    _newest(archive, max_archive),
    _newest(tuple(quarantine.items()), max_entries),
    _streaks(page.streaks, event, max_streaks),
  ), turnover


def bound_total(questions: dict[str, tuple[BookEntry, ...]], limit: int) -> int:
  """Evicts from `questions`, in place, until `limit` entries are left.

  Returns:
    How many were evicted.
  """
  if sum(map(len, questions.values())) <= limit:
    return 0
  # In order of question ids, so that the order of the dict plays no part.
  question_ids = sorted(questions)
  ends = np.cumsum([len(questions[q]) for q in question_ids])
  entries = [entry for q in question_ids for entry in questions[q]]
  last_failed = np.array([entry.last_failed for entry in entries])
  frequency = np.array([entry.frequency for entry in entries])
  evicted = np.lexsort((last_failed, frequency))[: ends[-1] - limit]  # stable
  kept = np.ones(len(entries), bool)
  kept[evicted] = False
  for index in np.unique(np.searchsorted(ends, evicted, side="right")):
    question_id = question_ids[index]
    own = questions[question_id]
    mask = kept[ends[index] - len(own) : ends[index]]
    store(questions, question_id, tuple(itertools.compress(own, mask)))
  return len(evicted)


def store(mapping: dict, question_id: str, value) -> None:
  """Sets what a question has; a question without any is left out."""
  if value:
    mapping[question_id] = value
  else:
    mapping.pop(question_id, None)


def by_frequency(entry: BookEntry) -> int:
  """Sort key: most frequent first."""
  return -entry.frequency


def _by_text(test: TestCase) -> tuple[str, str]:
  """Sort key: an order of tests that no event decides."""
  return (test.call, test.expected)


def _merged(events: Sequence[BookEvent]) -> BookEvent:
  """One event that holds all of a question's."""
  if len(events) == 1:
    return events[0]
  names = [field.name for field in dataclasses.fields(BookEvent)[1:]]
  joined = (
    tuple(itertools.chain(*[getattr(event, name) for event in events]))
    for name in names
  )
  return BookEvent(events[0].question_id, *joined)


def _after_passes(
  entries: Sequence[BookEntry], event: BookEvent
) -> dict[TestCase, BookEntry]:
  """Test -> entry, the most frequent first, after the replayed passes."""
  by_test = {entry.test: entry for entry in sorted(entries, key=by_frequency)}
  for test in event.replayed_passed:
    entry = by_test.get(test)
    if entry is None:
      continue
    if entry.frequency == 1:
      del by_test[test]
    else:
      by_test[test] = dataclasses.replace(entry, frequency=entry.frequency - 1)
  return by_test


def _after_gains(
  page: Page,
  by_test: dict[TestCase, BookEntry],
  event: BookEvent,
  number: int,
) -> dict[TestCase, BookEntry]:
  """`by_test` and what gains: returning, failed, then accepted tests."""
  by_test = dict(by_test)
  # A test that is resolved and comes back in one step keeps its quality.
  qualities = {entry.test: entry.quality for entry in page.entries}
  archived = set(page.archive)
  # Many codes may fail an archived test: it returns once.
  returning = {test for test in event.replayed_failed if test in archived}
  for tests, quality in (
    (sorted(returning, key=_by_text), FAILED_QUALITY),
    (event.newly_failed, FAILED_QUALITY),
    (event.newly_accepted, ACCEPTED_QUALITY),
  ):
    for test, gain in collections.Counter(tests).items():
      entry = by_test.get(test)
      frequency = entry.frequency + gain if entry else gain
      best = max(quality, entry.quality if entry else qualities.get(test, 0.0))
      by_test[test] = BookEntry(test, frequency, number, best)
  return by_test


def _quarantine(
  before: Sequence[tuple[TestCase, str]],
  named: Sequence[tuple[TestCase, str]],
) -> dict[TestCase, str]:
  """Test -> reason: the first one given, of one step's the least text."""
  reasons = dict(before)
  for test, reason in sorted(named, key=lambda n: (_by_text(n[0]), n[1])):
    reasons.setdefault(test, reason)
  return reasons


def _streaks(
  before: Mapping[str, int], event: BookEvent, limit: int
) -> dict[str, int]:
  """Call -> streak after a step: the longest `limit`, ties in text order."""
  if not limit:
    return {}
  failed = {t.call for t in (*event.newly_failed, *event.replayed_failed)}
  after = {call: n for call, n in before.items() if call not in failed}
  for call in {test.call for test in event.newly_passed} - failed:
    after[call] = after.get(call, 0) + 1
  ranked = sorted(after.items(), key=lambda item: (-item[1], item[0]))
  return dict(ranked[:limit])


def _bounded(entries: Sequence[BookEntry], limit: int) -> tuple[BookEntry, ...]:
  """At most `limit` entries in their order, the least frequent left out."""
  if len(entries) <= limit:
    return tuple(entries)
  ranked = sorted(
    range(len(entries)),
    key=lambda i: (entries[i].frequency, entries[i].last_failed, i),
  )
  kept = sorted(ranked[len(entries) - limit :])
  return tuple(entries[i] for i in kept)


def _newest(items: Sequence, limit: int) -> tuple:
  """The last `limit` of `items`."""
  return tuple(items[max(0, len(items) - limit) :])
