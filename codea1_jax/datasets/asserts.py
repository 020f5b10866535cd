"""Tests that are Python source -> the calls in them, and what they expect.

Whatever is misread here does no harm: the ground truth's own value is what a
golden test asks for, and where the row wants another one the test is left out.
"""

import ast
import collections
import copy
from collections.abc import Iterator, Sequence

from codea1_jax import parsing
from codea1_jax.datasets.draft import Found

_MOST_NODES = 2_000  # of a value that a name may stand for

Names = dict[str, ast.expr]


def find_calls(
  sources: Sequence[str], entry_point: str
) -> tuple[tuple[Found, ...], dict[str, int]]:
  """Calls of a function with literal arguments, wherever they stand in tests.

  Names that were given a literal, or such a call, are read as what they stand
  for. A call that is found twice counts once, with the first answer wanted.

  Args:
    sources: programs; what does not compile has no calls.
    entry_point: the function's name.

  Returns:
    The calls in order, and {what was left out: how many}.
  """
  reader = _Reader(entry_point)
  for source in sources:
    tree, _ = parsing.parse_source(source)
    if tree is not None:
      reader.read(tree.body, {})
  found = tuple(Found(*pair) for pair in reader.calls.items())
  return found, {name: n for name, n in reader.left_out.items() if n}


def most_called(names: Sequence[str], sources: Sequence[str]) -> str:
  """The one of `names` that is called the most; the first of equals."""
  return max(names, key=lambda name: len(find_calls(sources, name)[0]))


class _Reader:
  """Walks statements in order and collects what calls they make."""

  def __init__(self, entry_point: str):
    self._entry_point = entry_point
    self.calls: dict[str, str | None] = {}  # call -> literal wanted
    self.left_out: collections.Counter[str] = collections.Counter()

  def read(self, body: Sequence[ast.stmt], names: Names) -> None:
    for statement in body:
      self._read_one(statement, names)

  def _read_one(self, statement: ast.stmt, names: Names) -> None:
    inner = list(_bodies(statement))
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
      names = dict(names)  # of its own scope
    if not inner:
      statement = _Substitute(names).visit(copy.deepcopy(statement))
    if isinstance(statement, ast.Assert):
      self._read_assert(statement)
    for node in ast.walk(statement) if not inner else _heads(statement):
      if isinstance(node, ast.Call) and (call := self._literal_call(node)):
        self.calls.setdefault(call, None)
    for body in inner:
      self.read(body, names)
    match statement:
      case ast.Assign(targets=[ast.Name(id=name)], value=value):
        _rebind(names, name, value, bool(self._literal_call(value)))

  def _read_assert(self, statement: ast.Assert) -> None:
    test = parsing.parse_test(ast.unparse(statement), self._entry_point)
    if test is None:
      self.left_out["asserts of another shape"] += 1
    elif self.calls.get(test.call) is None:
      self.calls[test.call] = test.expected

  def _literal_call(self, node: ast.expr) -> str:
    """The call, normalized; "" where it is none of the function on literals."""
    match node:
      case ast.Call(func=ast.Name(id=self._entry_point)):
        text = f"assert {ast.unparse(node)} == None"
        test = parsing.parse_test(text, self._entry_point)
        return test.call if test else ""
    return ""


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
  """The statements inside a statement."""
  for field in ("body", "orelse", "finalbody"):
    yield from filter(None, [getattr(statement, field, None)])
  for part in getattr(statement, "handlers", ()):
    yield part.body
  for part in getattr(statement, "cases", ()):
    yield part.body


def _heads(statement: ast.stmt) -> Iterator[ast.AST]:
  """What stands outside the bodies of a statement, such as a condition."""
  for part in ast.iter_child_nodes(statement):
    if isinstance(part, ast.expr | ast.withitem):
      yield from ast.walk(part)


def _rebind(names: Names, name: str, value: ast.expr, is_call: bool) -> None:
  """Lets a name stand for its new value, or for none."""
  names.pop(name, None)
  if sum(1 for _ in ast.walk(value)) > _MOST_NODES:
    return
  try:
    ast.literal_eval(value)
  except parsing.PARSER_ERRORS:
    if not is_call:
      return
  names[name] = value


class _Substitute(ast.NodeTransformer):
  """Puts values in the place of the names that stand for them."""

  def __init__(self, names: Names):
    self._names = names

  def visit_Name(self, node: ast.Name) -> ast.expr:
    is_read = isinstance(node.ctx, ast.Load)
    known = self._names.get(node.id) if is_read else None
    return copy.deepcopy(known) if known is not None else node
