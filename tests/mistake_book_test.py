"""The Mistake Book."""

import copy
import json
import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from codea1_jax import parsing
from codea1_jax.mistake_book import BookEntry, BookEvent, MistakeBook
from codea1_jax.types import TestCase

FIXTURES = (
  pathlib.Path(__file__).parents[2]
  / "shared"
  / "fixtures"
  / "reference_fixtures.json"
)


def case(number):
  return TestCase(f"f({number})", "0")


def event(question_id="q", passed=(), failed=()):
  return BookEvent(
    question_id, tuple(map(case, passed)), tuple(map(case, failed))
  )


def contents(book, question_id="q"):
  """[(number in the call, frequency)] in book order."""
  return [
    (int(entry.test.call[2:-1]), entry.frequency)
    for entry in book.entries(question_id)
  ]


def replayed(book, k, sampler="frequency", **draw):
  return [int(test.call[2:-1]) for test in book.replay("q", k, sampler, **draw)]


@pytest.mark.skipif(
  not FIXTURES.exists(), reason="the paper's fixtures are not in this checkout"
)
def test_sequences_match_the_published_program():
  sequences = json.loads(FIXTURES.read_text())["mistake_book"]
  assert [len(steps) for steps in sequences] == [8, 7, 9, 8, 9, 10, 6]
  for steps in sequences:
    book = MistakeBook()
    for step in steps:
      question_id = step["question_id"]
      tests = book.replay(question_id, 8)
      assert [test.source for test in tests] == step["replayed"]
      passed, failed = (
        tuple(parsing.parse_test(source, "f") for source in step[name])
        for name in ("replayed_passed", "newly_failed")
      )
      book = book.update([BookEvent(question_id, passed, failed)])
      found = {
        question: [[entry.test.source, entry.frequency] for entry in entries]
        for question, entries in book.questions.items()
      }
      # Theirs keeps questions that ran empty; ours does not grow by them.
      assert found == {q: tests for q, tests in step["after"].items() if tests}


def test_passes_act_before_failures_and_a_returned_test_goes_last():
  book = MistakeBook().update([event(failed=[1, 2, 2, 3])])
  assert contents(book) == [(1, 1), (2, 2), (3, 1)]
  book = book.update([event(passed=[1, 1, 2], failed=[1, 3])])
  # Sorted by frequency first (2, 1, 3); 1 is resolved and comes back.
  assert contents(book) == [(2, 1), (3, 2), (1, 1)]
  # The order of a question's events does not matter.
  one, other = event(passed=[2]), event(failed=[2])
  assert book.update([one, other]) == book.update([other, one])
  assert contents(book.update([other, one])) == [(3, 2), (1, 1), (2, 1)]


def test_resolved_tests_and_empty_questions_leave():
  book = MistakeBook().update([event(failed=[1]), event("r", failed=[1])])
  book = book.update([event(passed=[1, 1, 9])])
  assert (list(book.questions), book.size) == (["r"], 1)
  assert book.replay("q", 8) == ()
  assert book.entries("never seen") == ()


def test_samplers():
  book = MistakeBook().update([event(failed=[1, 1, 1, 2, 3, 3])])
  book = book.update([event(failed=[4, 2])])
  assert replayed(book, 3) == [1, 3, 2]
  assert replayed(book, 9) == [1, 3, 2, 4]
  assert replayed(book, 3, "recent") == [2, 4, 1]
  assert replayed(book, 0) == []
  with pytest.raises(ValueError, match="'best'; known: frequency, recent"):
    book.replay("q", 3, "best")
  with pytest.raises(ValueError, match="k is -1"):
    book.replay("q", -1)


def test_the_quality_sampler_draws_in_proportion():
  book = MistakeBook().update(
    [
      BookEvent("q", newly_failed=(case(1),), newly_accepted=(case(2),)),
      BookEvent("q", newly_accepted=(case(2),)),
    ]
  )
  firsts, both = [], set()
  for seed in range(4000):
    firsts += replayed(book, 1, "quality", seed=(seed,))
    both.add(tuple(replayed(book, 2, "quality", seed=(seed,))))
  # Qualities 1.0 and 0.6: 1 / 1.6, whatever the frequencies 1 and 2.
  assert firsts.count(1) / 4000 == pytest.approx(0.625, abs=0.02)
  assert both == {(1, 2), (2, 1)}  # without replacement

  book = MistakeBook().update(
    [event(name, failed=range(20)) for name in ("q", "r")]
  )
  drawn = replayed(book, 20, "quality", seed=(3, 4))
  assert sorted(drawn) == list(range(20)) != drawn
  assert drawn == replayed(book, 20, "quality", seed=(3, 4))
  assert drawn != replayed(book, 20, "quality", seed=(3, 5))
  others = book.replay("r", 20, "quality", seed=(3, 4))
  assert drawn != [int(test.call[2:-1]) for test in others]


def test_refresh_draws_from_the_archive():
  book = MistakeBook(max_archive=3).update([event(failed=[1, 2, 3, 3, 4, 5])])
  book = book.update([event(passed=[1, 2, 4])])
  assert contents(book) == [(3, 2), (5, 1)]
  drawn = [replayed(book, 3, refresh=1, seed=(n,)) for n in range(3000)]
  assert {tuple(tests[:2]) for tests in drawn} == {(3, 5)}
  for number in (1, 2, 4):  # uniform over the archive
    share = sum(tests[2] == number for tests in drawn) / 3000
    assert share == pytest.approx(1 / 3, abs=0.03)
  # One place is left to the book; two archived tests, both different.
  assert replayed(book, 3, refresh=2, seed=(0,))[0] == 3
  assert len(set(replayed(book, 3, refresh=2, seed=(0,)))) == 3
  # The archive is too small, the book is too short: nothing fills up.
  assert sorted(replayed(book, 4, refresh=4, seed=(0,))) == [1, 2, 3, 4]
  assert len(replayed(book, 9, refresh=1, seed=(0,))) == 3
  # Without an archive the book has all the places.
  assert book.replay("none", 3, refresh=3, seed=(0,)) == ()
  bare = MistakeBook().update([event(failed=[1, 2])])
  assert replayed(bare, 2, refresh=2, seed=(0,)) == [1, 2]


def test_replay_refuses_a_draw_it_cannot_make():
  book = MistakeBook().update([event(failed=[1])])
  for sampler, refresh in (("quality", 0), ("frequency", 1), ("recent", 1)):
    with pytest.raises(ValueError, match=f"'{sampler}' with.*needs a seed"):
      book.replay("q", 2, sampler, refresh=refresh)
  for refresh in (-1, 3):
    with pytest.raises(ValueError, match=rf"refresh is {refresh}.*k = 2\]"):
      book.replay("q", 2, seed=(1,), refresh=refresh)


def test_top_k_takes_the_most_frequent_of_every_question():
  book = MistakeBook().update(
    [event(failed=[1, 2, 2, 3]), event("r", failed=[4])]
  )
  best = BookEntry(case(2), 2, 1)
  assert book.top_k(1) == {"q": (best,), "r": (BookEntry(case(4), 1, 1),)}
  assert book.top_k(2)["q"] == (best, BookEntry(case(1), 1, 1))
  assert len(book.top_k(9)["q"]) == 3
  assert book.top_k(0) == {"q": (), "r": ()}
  with pytest.raises(ValueError, match="n is -1"):
    book.top_k(-1)


def test_the_least_frequent_then_the_longest_unfailed_is_evicted():
  book = MistakeBook(max_per_question=3)
  book = book.update([event(failed=[1, 1, 2, 3])])
  book = book.update([event(failed=[2]), event(passed=[2])])
  assert contents(book) == [(1, 2), (3, 1), (2, 1)]
  book = book.update([event(failed=[4])])  # 3 failed last in the first step
  assert contents(book) == [(1, 2), (2, 1), (4, 1)]

  # Position alone would evict 5, which stands first but failed again since.
  book = MistakeBook(max_per_question=2)
  book = book.update([event(failed=[5, 6])])
  book = book.update([event(failed=[5])])
  book = book.update([event(passed=[5], failed=[7])])
  assert contents(book) == [(5, 1), (7, 1)]


def test_the_total_bound_spans_questions():
  book = MistakeBook(max_total=3)
  book = book.update([event("b", failed=[1]), event("a", failed=[1, 1])])
  book = book.update([event("c", failed=[1, 2])])
  assert {q: contents(book, q) for q in book.questions} == {
    "a": [(1, 2)],
    "c": [(1, 1), (2, 1)],
  }
  # A frequency outweighs age; the question's id and the place decide last.
  book = MistakeBook(max_total=2).update([event("b", failed=[1, 1])])
  book = book.update([event("a", failed=[1])])
  book = book.update([event("d", failed=[1]), event("c", failed=[1, 2])])
  assert {q: contents(book, q) for q in book.questions} == {
    "b": [(1, 2)],
    "d": [(1, 1)],
  }


def test_the_book_cannot_be_changed():
  book = MistakeBook().update([event(failed=[1])])
  with pytest.raises(TypeError):
    book.questions["q"] = ()
  outer = {"q": book.entries("q")}
  made = MistakeBook(questions=outer)
  outer.clear()
  assert made.size == 1
  calls = {"f(1)": 2}
  made = MistakeBook(streaks={"q": calls})
  calls.clear()
  assert made.streak("q", "f(1)") == 2
  with pytest.raises(TypeError):
    made.streaks["q"]["f(1)"] = 3
  with pytest.raises(ValueError, match="max_total is 0"):
    MistakeBook(max_total=0)
  for name in ("max_archive", "max_streaks"):
    with pytest.raises(ValueError, match=f"{name} is -1, must be at least 0"):
      MistakeBook(**{name: -1})


def test_update_shares_untouched_questions():
  book = MistakeBook().update([event("a", failed=[1]), event("b", failed=[1])])
  after = book.update([event("a", failed=[2])])
  assert after.questions["b"] is book.questions["b"]


def test_from_json_reads_a_book_of_the_first_version():
  text = (
    '{"max_per_question": 9, "max_total": 70, "num_updates": 3,'
    ' "questions": {"q": [["f(1)", "0", 2, 3]]}}'
  )
  assert MistakeBook.from_json(text) == MistakeBook(
    9, 70, 3, {"q": (BookEntry(case(1), 2, 3, 1.0),)}
  )


@pytest.mark.parametrize(
  "text",
  [
    *("", "[]", "{}", '{"questions": {"q": [[1]]}}', '{"questions": 3}'),
    "[" * 100_000,
    '{"questions": {"q": ["abcd"]}}',
    '{"questions": {"q": [["f(1)", "0", "1", 1]]}}',
    '{"questions": {"q": [["f(1)", "0", 1, 1, 1.0, 1]]}}',
    *(
      f'{{"questions": {{}}, {more}}}'
      for more in (
        '"max_archive": "1"',
        '"max_archives": 1',
        '"archive": {"q": [["f(1)"]]}',
        '"archive": []',
        '"archive": {"q": ["ab"]}',
        '"quarantine": {"q": [["f(1)", "0"]]}',
        '"quarantine": {"q": [["f(1)", "0", 1]]}',
        '"streaks": {"q": {"f(1)": "1"}}',
        '"streaks": {"q": 1}',
        '"streaks": 1',
      )
    ),
  ],
  ids=lambda text: text[:60],
)
def test_from_json_refuses_what_is_no_book(text):
  with pytest.raises(ValueError, match="not a mistake book"):
    MistakeBook.from_json(text)


numbers = st.lists(st.integers(0, 6), max_size=6)
steps = st.lists(
  st.lists(
    st.builds(event, st.sampled_from("abc"), numbers, numbers), max_size=3
  ),
  max_size=6,
)


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(steps, st.integers(1, 4), st.integers(1, 8))
def test_updates_are_pure_bounded_and_survive_json(steps, per_question, total):
  book = MistakeBook(max_per_question=per_question, max_total=total)
  for events in steps:
    before, events_before = book.to_json(), copy.deepcopy(events)
    after = book.update(events)
    assert book.to_json() == before
    assert events == events_before
    assert after == book.update(events)
    assert after.size <= total
    for entries in after.questions.values():
      assert 1 <= len(entries) <= per_question
      assert len({entry.test for entry in entries}) == len(entries)
      assert min(entry.frequency for entry in entries) >= 1
    again = MistakeBook.from_json(after.to_json())
    assert again == after
    assert again.to_json() == after.to_json()
    for sampler in ("frequency", "recent"):
      full = after.replay("a", 99, sampler)
      assert set(full) == {entry.test for entry in after.entries("a")}
      assert after.replay("a", 2, sampler) == full[:2]
    book = after


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(steps)
def test_unbounded_frequencies_add_up(steps):
  book = MistakeBook()
  for events in steps:
    frequencies = {
      (q, e.test): e.frequency for q, es in book.questions.items() for e in es
    }
    for e in events:
      for test in e.replayed_passed:
        key = (e.question_id, test)
        frequencies[key] = max(0, frequencies.get(key, 0) - 1)
    for e in events:
      for test in e.newly_failed:
        key = (e.question_id, test)
        frequencies[key] = frequencies.get(key, 0) + 1
    book = book.update(events)
    assert {k: v for k, v in frequencies.items() if v} == {
      (q, e.test): e.frequency for q, es in book.questions.items() for e in es
    }
