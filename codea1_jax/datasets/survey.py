"""A whole file checked: what becomes of each row, in words and as problems."""

import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from codea1_jax import problems
from codea1_jax.datasets.draft import Draft
from codea1_jax.datasets.making import Made, Sandboxes, make_problems
from codea1_jax.datasets.overlap import NGRAM, THRESHOLD, Evaluation, Repeats
from codea1_jax.datasets.recognizing import read_drafts
from codea1_jax.types import Problem

_CHUNK = 64  # rows run side by side

Progress = Callable[[Iterable[Draft], int], Iterable[Draft]]


@dataclasses.dataclass(frozen=True)
class Survey:
  """What became of a file's rows, and what there is to say of its problems."""

  path: str
  format: str
  made: tuple[Made, ...]  # their problems are written, and not kept here
  problems: int
  golden_tests: int
  written: int
  repeats: tuple[tuple[str, dict[str, str]], ...]
  leaks: tuple[tuple[str, dict[str, str]], ...]


def survey(
  path: str,
  name: str,
  sandboxes: Sandboxes,
  num_tests: int,
  write: Callable[[Problem], None],
  evaluation: Evaluation | None = None,
  clean: bool = False,
  progress: Progress = lambda drafts, _: drafts,
) -> Survey:
  """Makes problems of a file's rows, and looks for repeated and leaked ones.

  Args:
    path: the file.
    name: of its format; empty: recognized.
    sandboxes: see `make_problems`.
    num_tests: the most golden tests a problem.
    write: takes each problem, but those of an id that was there before.
    evaluation: the questions that must not leak.
    clean: whether to keep all repeated and leaked ones from `write`.
    progress: wraps the rows, of which it is told the number.

  Raises:
    ValueError: the file or a row is malformed: "FILE:ROW: field 'x': problem".
  """
  evaluation = evaluation or Evaluation(())
  seen, made, repeats, leaks = Repeats(), [], [], []
  count = tests = written = 0
  name, results = _make_all(path, name, sandboxes, num_tests, progress)
  for result in results:
    problem = result.problem
    if problem is not None:
      repeated, leaked = seen.add(problem), evaluation.leaks(problem)
      repeats += [(problem.id, repeated)] if repeated else []
      leaks += [(problem.id, leaked)] if leaked else []
      count, tests = count + 1, tests + len(problem.golden_tests)
      if "id" not in repeated and not (clean and (repeated or leaked)):
        write(problem)
        written += 1
    made.append(_small(result))
  return Survey(
    path,
    name,
    tuple(made),
    count,
    tests,
    written,
    tuple(repeats),
    tuple(leaks),
  )


def _make_all(
  path: str | os.PathLike,
  name: str,
  sandboxes: Sandboxes,
  num_tests: int,
  progress: Progress,
) -> tuple[str, Iterator[Made]]:
  """A file's format, and what becomes of each of its rows.

  Every row is read once before any is run, so that a malformed one is known at
  once; no more than some rows are in memory. Arguments as of `survey`.

  Raises:
    ValueError: the file or a row is malformed: "FILE:ROW: field 'x': problem".
  """
  name, drafts = read_drafts(path, name)
  rows = sum(1 for _ in drafts)
  _, drafts = read_drafts(path, name)
  drafts = iter(progress(drafts, rows))
  chunks = iter(lambda: list(itertools.islice(drafts, _CHUNK)), [])
  return name, (
    result
    for chunk in chunks
    for result in make_problems(chunk, sandboxes, num_tests)
  )


def lines(report: Survey) -> Iterator[str]:
  """The report: every drop and its reason, what was left out, then counts."""
  drops = [result for result in report.made if result.reason]
  for result in drops:
    detail = f": {result.detail}" if result.detail else ""
    yield f"dropped {_place(result)}: {result.reason}{detail}"
  for result in report.made:
    if result.left_out and not result.reason:
      what = ", ".join(f"{n} {why}" for why, n in result.left_out.items())
      yield f"left out of {_place(result)}: {what}"
  for title, found in (("repeated", report.repeats), ("leaked", report.leaks)):
    for problem, there in found:
      what = ", ".join(f"{what} of {of}" for what, of in there.items())
      yield f"{title} {problem}: {what}"
  yield from _counts(report, drops)


def _counts(report: Survey, drops: Sequence[Made]) -> Iterator[str]:
  rows = len(report.made)
  yield f"{report.path}: format {report.format}, {rows} rows"
  ran = [result.passes for result in report.made if result.passes is not None]
  if ran:
    share = 100 * sum(ran) / len(ran)
    yield f"{sum(ran)} of {len(ran)} ({share:.1f} %) pass their own tests"
  tests = f"{report.golden_tests} golden tests"
  yield f"{report.problems} problems with {tests}, {len(drops)} rows dropped:"
  reasons = collections.Counter(result.reason for result in drops)
  yield from (f"  {n} {reason}" for reason, n in reasons.most_common())
  yield f"repeated: {_by_kind(report.repeats)}"
  yield (
    f"leaked: {_by_kind(report.leaks)} (overlap: {THRESHOLD:.0%} of an"
    f" evaluation question's {NGRAM}-grams of words)"
  )


def _by_kind(found: Sequence[tuple[str, dict[str, str]]]) -> str:
  kinds = collections.Counter(kind for _, there in found for kind in there)
  each = ", ".join(f"{n} by {kind}" for kind, n in kinds.items())
  return f"{len(found)} problems" + (f", {each}" if each else "")


def _place(result: Made) -> str:
  return f"{result.draft.where} {result.draft.problem.id}"


def _small(result: Made) -> Made:
  """A result without what takes room."""
  problem = dataclasses.replace(result.draft.problem, question="")
  draft = dataclasses.replace(
    result.draft, problem=problem, programs=(), found=(), whole_test=None
  )
  return dataclasses.replace(result, draft=draft, problem=None)


@contextlib.contextmanager
def writer(path: str) -> Iterator[Callable[[Problem], None]]:
  """A function that writes problems; the file is there at the end, whole.

  Args:
    path: the file; where empty, nothing is written.
  """
  if not path:
    yield lambda problem: None
    return
  part = pathlib.Path(f"{path}.part")
  part.parent.mkdir(parents=True, exist_ok=True)
  try:
    with open(part, "w", encoding="utf-8") as file:
      yield lambda problem: file.write(problems.to_line(problem))
    part.replace(path)
  finally:
    part.unlink(missing_ok=True)
