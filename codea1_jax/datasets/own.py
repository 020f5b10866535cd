"""The project's own problem files, see problems.py."""

import functools
from collections.abc import Mapping, Set
from typing import Any

from codea1_jax import problems
from codea1_jax.datasets import whole_test
from codea1_jax.datasets.draft import Draft, Found

NAME = "own"
_CPU_S = 10.0


def recognizes(names: Set[str]) -> bool:
  """Whether a row with these fields is of this format."""
  return {"entry_point", "ground_truth"} <= names


def draft(where: str, row: Mapping[str, Any]) -> Draft:
  """A row -> Draft; fields as `problems.load_problems` wants them.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  problem = problems.from_fields(where, row)
  tests = problem.golden_tests
  sources = [test.source for test in tests]
  return Draft(
    where,
    problem,
    (problem.ground_truth,),
    tuple(Found(test.call, test.expected) for test in tests),
    functools.partial(whole_test.job, sources, _CPU_S),
    may_lack_tests=not tests,
  )
