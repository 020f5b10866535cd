"""Problems that are there twice, or in a set that policies are judged by."""

import collections
import hashlib
import re
from collections.abc import Iterable

from codea1_jax.anonymize import anonymize
from codea1_jax.datasets.draft import Draft
from codea1_jax.types import Problem

NGRAM = 8  # words
# Share of an evaluation question's n-grams in a problem's question.
THRESHOLD = 0.5
_WORD = re.compile(r"\w+")


class Repeats:
  """The problems so far; says what a further one repeats."""

  def __init__(self):
    self._seen: dict[tuple[str, bytes], str] = {}  # key: digest of the text

  def add(self, problem: Problem) -> dict[str, str]:
    """{in what: the id of the first such problem} for id, question, program."""
    keys = {
      "id": problem.id,
      "question": normalized_text(problem.question),
      "ground truth": normalized_program(problem.ground_truth),
    }
    found = {}
    for what, text in keys.items():
      key = what, _digest(text)
      if key in self._seen:
        found[what] = self._seen[key]
      else:
        self._seen[key] = problem.id
    return found


class Evaluation:
  """The questions of evaluation sets; says which of them a problem is."""

  def __init__(self, drafts: Iterable[Draft]):
    self._texts: dict[str, str] = {}
    self._names: dict[str, str] = {}
    self._sizes: dict[str, int] = {}
    self._ngrams = collections.defaultdict(list)
    for draft in drafts:
      problem = draft.problem
      self._texts.setdefault(normalized_text(problem.question), problem.id)
      if problem.entry_point:
        self._names.setdefault(problem.entry_point.casefold(), problem.id)
      ngrams = _ngrams(problem.question)
      self._sizes[problem.id] = len(ngrams)
      for ngram in ngrams:
        self._ngrams[ngram].append(problem.id)

  def leaks(self, problem: Problem) -> dict[str, str]:
    """{in what: the id there} for text, function name and overlap."""
    text = self._texts.get(normalized_text(problem.question))
    name = self._names.get(problem.entry_point.casefold())
    shared = collections.Counter(
      there
      for ngram in _ngrams(problem.question)
      for there in self._ngrams.get(ngram, ())
    )
    most = max(shared, key=lambda k: shared[k] / self._sizes[k], default="")
    overlaps = most and shared[most] / self._sizes[most] >= THRESHOLD
    found = {"text": text, "function name": name}
    found["overlap"] = most if overlaps else None
    return {what: there for what, there in found.items() if there}


def normalized_text(text: str) -> str:
  """The words alone, in lower case."""
  return " ".join(_WORD.findall(text.casefold()))


def normalized_program(source: str) -> str:
  """The program without comments and docstrings, its names replaced."""
  return anonymize(source, "")


def _digest(text: str) -> bytes:
  data = text.encode("utf-8", "surrogatepass")
  return hashlib.blake2b(data, digest_size=16).digest()


def _ngrams(text: str) -> set[tuple[str, ...]]:
  words = _WORD.findall(text.casefold())
  return set(zip(*(words[k:] for k in range(NGRAM))))
