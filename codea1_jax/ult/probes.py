"""Programs that say which of their lines and branches ran.

The program's text gets calls of `__hit__`, so that neither a tracer nor a
version of Python decides what counts. A line counts where a statement, a
decorator, an `except` or a `case` begins on it; docstrings and declarations do
not. A branch is one of the two ways out of an `if`, a `while`, a `for` and a
`case`: the coverage package's lines and branches, except that it sees no
branches within one line. Conditions inside of expressions are not branches, and
neither are those that are constants.
"""

import ast
import dataclasses

from codea1_jax import parsing

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True)
class Probed:
  """A program with probes, and what these can report.

  `__hit__` gets the numbers of lines, and negative numbers of branches.
  """

  program: str
  everything: frozenset[int]
  inside: frozenset[int]  # of the function under test itself


def probed(program: str, name: str) -> Probed:
  """Puts probes into a program; one that does not parse stays as it is."""
  tree, _ = parsing.parse_source(program)
  if tree is None:
    return Probed(program, frozenset(), frozenset())
  prober = _Prober(name)
  tree.body = prober.body(tree.body)
  text = ast.unparse(ast.fix_missing_locations(tree))
  return Probed(text, frozenset(prober.everything), frozenset(prober.inside))


class _Prober:
  """Rewrites statements, and keeps the numbers that it gave out."""

  def __init__(self, name: str):
    self._name = name
    self._within = False  # the function under test
    self._in_function = False
    self._branches = 0
    self.everything: set[int] = set()
    self.inside: set[int] = set()

  def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
    """Statements with the probes of their lines."""
    found: list[ast.stmt] = []
    for node in statements:
      if _is_silent(node, self._in_function):
        found.append(node)  # a docstring must stay the first, too
        continue
      lines = [*getattr(node, "decorator_list", ()), node]
      probes = _hits([self._note(line.lineno) for line in lines])
      self._rewrite(node)
      if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        found += [node, *probes]
      else:
        found += [*probes, node]
    return found

  def _rewrite(self, node: ast.stmt) -> None:
    """Puts probes into a statement."""
    if isinstance(node, ast.If | ast.While | ast.For | ast.AsyncFor):
      self._fork(node)
    elif isinstance(node, ast.Match):
      self._cases(node)
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
      self._definition(node)
    else:
      for field in ("body", "orelse", "finalbody"):  # of try and with
        if getattr(node, field, None):
          setattr(node, field, self.body(getattr(node, field)))
      for handler in getattr(node, "handlers", ()):
        self._handler(handler)

  def _fork(self, node) -> None:
    condition = getattr(node, "test", None)
    node.body, node.orelse = self.body(node.body), self.body(node.orelse)
    if not isinstance(condition, ast.Constant):
      node.body = _hits([self._branch()]) + node.body
      # Of a loop, what runs when it ends by itself.
      node.orelse = _hits([self._branch()]) + node.orelse

  def _handler(self, handler: ast.ExceptHandler) -> None:
    reached = self._note(handler.lineno)
    handler.body = self.body(handler.body)
    if handler.type is None:
      handler.body = _hits([reached]) + handler.body
    else:  # its type is looked up when no handler above took the exception
      pair = ast.Tuple([_call(reached), handler.type], ast.Load())
      handler.type = ast.Subscript(pair, ast.Constant(1), ast.Load())

  def _cases(self, node: ast.Match) -> None:
    reached: list[int] = []  # by a value that matches nothing so far
    for case in node.cases:
      reached.append(self._note(case.pattern.lineno))
      case.body = _hits(reached) + self.body(case.body)
      if case.guard is None and _takes_all(case.pattern):
        return
      case.body = _hits([self._branch()]) + case.body
      reached.append(self._branch())
    (match,) = ast.parse("match 0:\n  case _: pass").body
    match.cases[0].body = _hits(reached)
    node.cases += match.cases

  def _definition(self, node) -> None:
    before = self._within, self._in_function
    self._in_function = isinstance(node, _FUNCTIONS)
    if self._in_function and node.name == self._name:
      self._within = True
    node.body = self.body(node.body)
    self._within, self._in_function = before

  def _branch(self) -> int:
    self._branches += 1
    return self._note(-self._branches)

  def _note(self, number: int) -> int:
    self.everything.add(number)
    if self._within:
      self.inside.add(number)
    return number


def _is_silent(node: ast.stmt, in_function: bool) -> bool:
  """Whether a statement does nothing: a docstring or a declaration."""
  match node:
    case ast.Global() | ast.Nonlocal():
      return True
    case ast.AnnAssign(value=None):
      return in_function
    case ast.Expr(value=ast.Constant(value=str())):
      return True
  return False


def _takes_all(pattern: ast.pattern) -> bool:
  return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def _call(number: int) -> ast.expr:
  name = ast.Name("__hit__", ast.Load())
  return ast.Call(name, [ast.Constant(number)], [])


def _hits(numbers: list[int]) -> list[ast.stmt]:
  """Statements that hit some probes."""
  return [ast.Expr(_call(number)) for number in numbers]
