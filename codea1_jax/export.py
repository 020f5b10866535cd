"""What a run learned to test, as a problem file that others can train on."""

import collections
import dataclasses
import os
from collections.abc import Iterable, Sequence

from codea1_jax import dumps
from codea1_jax.mistake_book import MistakeBook
from codea1_jax.types import Problem, Status, TestCase


def validated_tests(
  path: str | os.PathLike,
) -> dict[str, list[TestCase]]:
  """The Test LLM's tests of a rollout dump that the ground truth accepted.

  Args:
    path: the dump of a workdir.

  Returns:
    question id -> distinct tests in the order written, each with the ground
    truth's value.

  Raises:
    OSError, ValueError: no such file, or not a dump.
  """
  found: dict[str, dict[TestCase, None]] = collections.defaultdict(dict)
  for row in dumps.read_dump(path):
    try:
      for code in row["codes"]:
        for suite in code["suites"]:
          for test in suite["tests"]:
            if test["oracle_status"] == Status.PASS and test["verdict"]:
              case = TestCase(test["call"], test["oracle"])
              found[row["problem"]["id"]][case] = None
    except (KeyError, TypeError) as error:
      raise ValueError(f"{path}: no rollout record: {error!r}") from error
  return {name: list(tests) for name, tests in found.items()}


def with_tests(
  problems: Sequence[Problem],
  book: MistakeBook,
  written: dict[str, list[TestCase]],
  most: int,
) -> list[Problem]:
  """Problems whose golden tests are a run's own, at most `most` each.

  The book's come first, most frequent first: they have broken codes. A problem
  without any test is left out. Its old golden tests are gone.
  """
  top = book.top_k(most)
  exported = []
  for problem in problems:
    tests: Iterable[TestCase] = [e.test for e in top.get(problem.id, ())]
    tests = list(dict.fromkeys([*tests, *written.get(problem.id, [])]))
    if tests:
      exported.append(
        dataclasses.replace(problem, golden_tests=tuple(tests[:most]))
      )
  return exported
