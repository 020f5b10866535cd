"""The book's rules: quality, archive, quarantine, streaks."""

import collections

import hypothesis
from hypothesis import strategies as st

from codea1_jax.book_update import Turnover
from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.types import TestCase

TESTS = range(6)


def case(number):
  return TestCase(f"f({number})", "0")


def event(question_id="q", quarantined=(), **numbers):
  return BookEvent(
    question_id,
    **{name: tuple(map(case, listed)) for name, listed in numbers.items()},
    quarantined=tuple((case(number), reason) for number, reason in quarantined),
  )


def after(book, *steps):
  """The book after steps of one event each."""
  for fields in steps:
    book = book.update([event(**fields)])
  return book


def contents(book, question_id="q"):
  """[(number in the call, frequency, quality)] in book order."""
  return [
    (int(entry.test.call[2:-1]), entry.frequency, entry.quality)
    for entry in book.entries(question_id)
  ]


def archived(book, question_id="q"):
  return [int(t.call[2:-1]) for t in book.archive.get(question_id, ())]


def test_quality_is_what_the_test_has_shown():
  book = after(MistakeBook(), {"newly_failed": [1], "newly_accepted": [2, 2]})
  assert contents(book) == [(1, 1, 1.0), (2, 2, 0.6)]
  assert [entry.last_failed for entry in book.entries("q")] == [1, 1]
  # Acceptance takes nothing off; a failure lifts, for good.
  book = after(book, {"newly_accepted": [1, 3], "newly_failed": [2]})
  assert contents(book) == [(2, 3, 1.0), (1, 2, 1.0), (3, 1, 0.6)]
  book = after(book, {"newly_accepted": [2]})
  assert contents(book)[0] == (2, 4, 1.0)
  # Gone and back in one step: it is remembered. Later it is a new test.
  book = after(book, {"replayed_passed": [1, 1], "newly_accepted": [1]})
  assert contents(book)[-1] == (1, 1, 1.0)
  book = after(book, {"replayed_passed": [1]}, {"newly_accepted": [1]})
  assert contents(book)[-1] == (1, 1, 0.6)


def test_turnover_by_hand():
  book = after(MistakeBook(3, 4), {"newly_failed": [1, 2, 2, 3]})
  _, turnover = book.updated(
    [
      event(replayed_passed=[1, 2], quarantined=[(3, "wrong")]),
      event(newly_failed=[4, 4, 5, 5]),  # beside 2, which has one gain left
      event("r", newly_failed=[1, 1, 6]),
    ]
  )
  # Of five for four places, 2 was failed longest ago.
  assert turnover == Turnover(added=4, resolved=1, evicted=1, withdrawn=1)
  # Of four for a question's three places the last to come is as good as 2.
  book, turnover = book.updated([event(newly_failed=[4])])
  assert turnover == Turnover(added=1, evicted=1) and book.size == 3
  # Resolved and back at once: nothing came, nothing went.
  both = event(replayed_passed=[4], newly_failed=[4])
  assert book.updated([both])[1] == Turnover()
  assert MistakeBook().updated([]) == (MistakeBook(num_updates=1), Turnover())


def test_the_archive_keeps_the_newest_resolved_tests():
  book = after(
    MistakeBook(max_archive=2),
    {"newly_failed": [1, 2, 3, 4]},
    {"replayed_passed": [3]},
    {"replayed_passed": [2, 1]},  # one step's go in by their text
  )
  assert (contents(book), archived(book)) == ([(4, 1, 1.0)], [1, 2])
  # Entering anew takes a test out; so does neither a pass nor a resolved test
  # that comes back in the same step.
  book = after(
    book,
    {"newly_failed": [2, 4], "replayed_passed": [4, 1], "newly_passed": [1]},
  )
  assert contents(book) == [(2, 1, 1.0), (4, 1, 1.0)]
  assert archived(book) == [1]
  assert after(MistakeBook(), *[{"newly_failed": [1]}] * 2).archive == {}
  none_kept = after(
    MistakeBook(), {"newly_failed": [1]}, {"replayed_passed": [1]}
  )
  assert none_kept.archive == {}


def test_an_archived_test_that_is_failed_returns_once():
  book = after(
    MistakeBook(max_archive=4),
    {"newly_failed": [1, 2, 2], "newly_accepted": [3]},
    {"replayed_passed": [1, 3]},
  )
  assert (contents(book), archived(book)) == ([(2, 2, 1.0)], [1, 3])
  # Many failures, one return; what the book holds and what nobody knows stays.
  book = book.update(
    [
      event(replayed_failed=[1, 2, 5], replayed_passed=[1]),
      event(replayed_failed=[1, 3]),
    ]
  )
  assert contents(book) == [(2, 2, 1.0), (1, 1, 1.0), (3, 1, 1.0)]
  assert archived(book) == []
  # As in the paper: one code's failure does not undo another's last pass.
  book = book.update([event(replayed_failed=[1]), event(replayed_passed=[1])])
  assert contents(book) == [(2, 2, 1.0), (3, 1, 1.0)]
  assert archived(book) == [1]
  # New failures add to the return.
  book = after(book, {"replayed_failed": [1], "newly_failed": [1, 1]})
  assert contents(book)[-1] == (1, 3, 1.0)


def test_evicted_tests_are_not_archived():
  book = MistakeBook(max_per_question=1, max_archive=4)
  book = after(book, {"newly_failed": [1]}, {"newly_failed": [2]})
  assert (contents(book), archived(book)) == ([(2, 1, 1.0)], [])
  book = MistakeBook(max_total=1, max_archive=4)
  book = book.update(
    [event("q", newly_failed=[1]), event("r", newly_failed=[1])]
  )
  assert (book.size, book.archive) == (1, {})


def test_quarantined_tests_leave_and_stay_out():
  book = after(
    MistakeBook(max_archive=4),
    {"newly_failed": [1, 2, 3]},
    {"replayed_passed": [2]},
    {"quarantined": [(1, "flaky"), (2, "stale"), (4, "unseen")]},
  )
  assert (contents(book), archived(book)) == ([(3, 1, 1.0)], [])
  names = [1, 2, 4]
  again = after(
    book,
    {"newly_failed": names, "newly_accepted": names, "replayed_failed": names},
    {"quarantined": [(1, "another reason")]},
  )
  assert contents(again) == contents(book)
  assert again.quarantine == {
    "q": ((case(1), "flaky"), (case(2), "stale"), (case(4), "unseen"))
  }
  # It holds in its own step; another answer is another test.
  other = TestCase("f(5)", "1")
  book = again.update(
    [
      event(newly_failed=[5], quarantined=[(5, "z"), (5, "a")]),
      BookEvent("q", newly_failed=(other,)),
    ]
  )
  assert [entry.test for entry in book.entries("q")] == [case(3), other]
  assert book.quarantine["q"][-1] == (case(5), "a")
  # A resolved test that is quarantined is in no archive.
  book = after(book, {"replayed_passed": [3], "quarantined": [(3, "late")]})
  assert archived(book) == []


def test_the_quarantine_forgets_its_oldest():
  book = MistakeBook(max_per_question=2)
  book = after(book, {"quarantined": [(2, "a")]}, {"quarantined": [(1, "b")]})
  # All of a step's stay out in that step, however many.
  more = [(4, "c"), (5, "c"), (3, "c")]
  book = after(book, {"quarantined": more, "newly_failed": [1, 2, 3]})
  assert contents(book) == []
  assert book.quarantine["q"] == ((case(4), "c"), (case(5), "c"))
  book = after(book, {"newly_failed": [2, 5]})
  assert contents(book) == [(2, 1, 1.0)]


def test_streaks_count_steps_that_all_codes_passed():
  book = MistakeBook(max_streaks=3)
  book = book.update([event(newly_passed=[1, 1, 2]), event(newly_passed=[1])])
  assert dict(book.streaks["q"]) == {"f(1)": 1, "f(2)": 1}
  book = book.update([event(newly_passed=[1, 2]), event(newly_failed=[2])])
  assert dict(book.streaks["q"]) == {"f(1)": 2}
  # A step that does not run it leaves it.
  book = book.update([event("r", newly_passed=[1]), event(newly_passed=[3])])
  assert (book.streak("q", "f(1)"), book.streak("q", "f(3)")) == (2, 1)
  assert (book.streak("r", "f(1)"), book.streak("x", "f(1)")) == (1, 0)
  # The longest stay, of equals those that come first as text.
  book = after(book, {"newly_passed": [5, 4, 2, 3]})
  assert dict(book.streaks["q"]) == {"f(1)": 2, "f(3)": 2, "f(2)": 1}
  book = after(book, {"replayed_failed": [1], "newly_passed": [1]})
  assert book.streak("q", "f(1)") == 0
  book = after(book, {"newly_failed": [3, 2]})
  assert "q" not in book.streaks
  assert after(MistakeBook(), {"newly_passed": [1]}).streaks == {}
  many = after(MistakeBook(max_streaks=2), {"newly_passed": range(30)})
  assert dict(many.streaks["q"]) == {"f(0)": 1, "f(1)": 1}


numbers = st.lists(st.sampled_from(TESTS), max_size=4)


def steps_of(questions):
  """Lists of steps, each a list of events of these questions."""
  reasons = st.sampled_from(["flaky", "stale"])
  events = st.builds(
    event,
    st.sampled_from(questions),
    st.lists(st.tuples(st.sampled_from(TESTS), reasons), max_size=1),
    replayed_passed=numbers,
    newly_failed=numbers,
    newly_accepted=numbers,
    newly_passed=numbers,
    replayed_failed=numbers,
  )
  return st.lists(st.lists(events, max_size=4), max_size=6)


bounds = st.fixed_dictionaries(
  {
    "max_per_question": st.integers(1, 4),
    "max_total": st.integers(1, 6),
    "max_archive": st.integers(0, 3),
    "max_streaks": st.integers(0, 3),
  }
)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(steps_of("qr"), bounds)
def test_updates_are_pure_bounded_and_survive_json(steps, bounds):
  book = MistakeBook(**bounds)
  for events in steps:
    before = book.to_json()
    new, turnover = book.updated(events)
    assert min(turnover) >= 0
    gone = turnover.resolved + turnover.evicted + turnover.withdrawn
    assert new.size - book.size == turnover.added - gone
    assert book.to_json() == before
    assert new == book.update(events)
    assert new.size <= book.max_total
    for mapping, limit in (
      (new.questions, book.max_per_question),
      (new.archive, book.max_archive),
      (new.quarantine, book.max_per_question),
      (new.streaks, book.max_streaks),
    ):
      assert all(1 <= len(kept) <= limit for kept in mapping.values())
    for q in "qr":  # a test is in one place, once
      tests = [entry.test for entry in new.entries(q)]
      tests += new.archive.get(q, ())
      tests += [test for test, _ in new.quarantine.get(q, ())]
      assert len(tests) == len(set(tests))
    again = MistakeBook.from_json(new.to_json())
    assert again == new
    assert again.to_json() == new.to_json()
    book = new


def unordered(book):
  """All that must not depend on the order of events."""
  entries = {q: frozenset(own) for q, own in book.questions.items()}
  return entries, book.archive, book.quarantine, book.streaks


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(steps_of("qr"), bounds, st.data())
def test_the_order_of_events_does_not_matter(steps, bounds, data):
  tight = MistakeBook(**bounds)
  one = other = MistakeBook(max_archive=2, max_streaks=2)
  for events in steps:
    shuffled = data.draw(st.permutations(events))
    one, other = one.update(events), other.update(shuffled)
    assert unordered(one) == unordered(other)
    # Evictions of equals go by place, so that only the rest is fixed.
    rest = unordered(tight.update(shuffled))[1:]
    tight = tight.update(events)
    assert unordered(tight)[1:] == rest


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(steps_of("q"))
def test_a_quarantined_test_never_returns(steps):
  book = after(
    MistakeBook(max_archive=99),
    {"newly_failed": [0, 1]},
    {"replayed_passed": [1]},
    {"quarantined": [(0, "flaky"), (1, "stale")]},
  )
  for events in steps:
    book = book.update(events)
    tests = {entry.test for entry in book.entries("q")}
    assert tests.isdisjoint({case(0), case(1)})
    assert {case(0), case(1)}.isdisjoint(book.archive.get("q", ()))


def count(steps):
  """Brute force over one question's tests, one at a time."""
  book, archive, banned, streaks = {}, set(), set(), collections.Counter()
  for events in steps:
    named = {
      field: collections.Counter(
        test for e in events for test in getattr(e, field)
      )
      for field in BookEvent.__dataclass_fields__
      if field not in ("question_id", "quarantined")
    }
    banned |= {test for e in events for test, _ in e.quarantined}
    for test in map(case, TESTS):
      passed, failed, accepted, ran_well, missed = (
        counts[test] for counts in named.values()
      )
      before, quality = book.pop(test, (0, 0.0))
      failed += bool(test in archive and missed)
      now = max(0, before - passed) + failed + accepted
      quality = max(quality, 0.6 * bool(accepted), 1.0 * bool(failed))
      archive -= {test} if now else set()
      archive |= {test} if before and not now else set()
      if now and test not in banned:
        book[test] = (now, quality)
      if missed or named["newly_failed"][test]:
        del streaks[test.call]
      elif ran_well:
        streaks[test.call] += 1
    archive -= banned
  return book, archive, banned, streaks


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(steps_of("q"))
def test_a_book_without_evictions_equals_a_count(steps):
  book = MistakeBook(max_archive=99, max_streaks=99)
  for number in range(len(steps)):
    book = book.update(steps[number])
    entries, archive, banned, streaks = count(steps[: number + 1])
    assert entries == {
      e.test: (e.frequency, e.quality) for e in book.entries("q")
    }
    assert archive == set(book.archive.get("q", ()))
    assert banned == {test for test, _ in book.quarantine.get("q", ())}
    assert streaks == book.streaks.get("q", {})
