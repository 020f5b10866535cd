"""A row on its way to be a problem: read, and not yet run."""

import ast
import copy
import dataclasses
from collections.abc import Callable, Mapping

from codea1_jax import parsing
from codea1_jax.sandbox import CheckJob
from codea1_jax.types import Problem


@dataclasses.dataclass(frozen=True)
class Found:
  """A call of the function in a row's tests."""

  call: str  # as in TestCase
  expected: str | None = None  # the row's literal; None: whatever is returned


@dataclasses.dataclass(frozen=True)
class Draft:
  """What a format makes of a row, all formats alike.

  The ground truth is the first of `programs` that passes `whole_test`. A golden
  test asks for what it returns on a call in `found`.
  """

  where: str  # "FILE:ROW"
  problem: Problem  # but for ground truth and golden tests
  programs: tuple[str, ...] = ()  # that may be the ground truth, best first
  found: tuple[Found, ...] = ()
  # The row's own tests, each and all, on a program; None: it has none to trust.
  whole_test: Callable[[str], CheckJob] | None = None
  reason: str = ""  # why it is no problem, whatever its tests say
  left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
  may_lack_tests: bool = False


def blank(name: str, question: str, entry_point: str, signature: str = ""):
  """The problem of a draft; no signature: that of the ground truth."""
  return Problem(name, question.strip(), signature, entry_point, "")


def functions(program: str) -> dict[str, ast.FunctionDef]:
  """The functions at top level by name, the last of a name; of no program none.

  In the order in which they first stand there.
  """
  tree, _ = parsing.parse_source(program)
  body = tree.body if tree else ()
  return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def signature(function: ast.FunctionDef) -> str:
  """The function's lines up to the colon, with its decorators."""
  bare = copy.copy(function)
  bare.body = []
  return ast.unparse(bare)
