"""The Mistake Book at the size of the paper's run: 9,688 questions."""

import gc
import tracemalloc

from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.types import TestCase


def realistic(question, number):
  call = (
    f"solve_{question}([{question}, {number}, 'abc', None], limit={number})"
  )
  return TestCase(call, f"{{'count': {question}, 'rest': [{number}, 2, 3]}}")


def test_the_book_of_the_papers_run_is_small_and_shared():
  gc.collect()
  tracemalloc.start()
  book = MistakeBook().update(
    [
      BookEvent(
        f"question/{q}", newly_failed=tuple(realistic(q, n) for n in range(8))
      )
      for q in range(9688)
    ]
  )
  gc.collect()
  taken, _ = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert book.size == 77_504
  assert taken < 100e6
  touched = {f"question/{q}" for q in range(1000, 1256)}
  after = book.update(
    [BookEvent(q, newly_failed=(realistic(1, 99),)) for q in touched]
  )
  assert len(touched) == 256
  for question_id, entries in book.questions.items():
    now = after.questions[question_id]
    assert (now is entries) == (question_id not in touched)
    assert all(a is b for a, b in zip(entries, now, strict=False))
