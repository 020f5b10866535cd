"""Anonymized programs: no hints left, and they do the same as before."""

import ast
import builtins
import pathlib
import symtable
import textwrap

import evalplus_rows
import pytest

from codea1_jax import evalplus, evaluation, parsing, problems
from codea1_jax.anonymize import anonymize
from codea1_jax.sandbox import SandboxPool

TINY = pathlib.Path(problems.__file__).parent / "tiny"

# name -> (program, the same anonymized); the entry point is f.
CASES = {
  "comments and docstrings": (
    """
    '''Module.'''
    def f(xs):  # takes xs
      '''Doc.'''
      ys = 'not a doc'
      '''A comment of sorts.'''
      return ys
    class Empty:
      '''Doc.'''
    """,
    """
    def f(v0):
      v1 = 'not a doc'
      return v1
    class v2:
      pass
    """,
  ),
  "strings in every kind of body": (
    """
    def f(x):
      try:
        'a'
      finally:
        'b'
      if x:
        'c'
      else:
        'd'
    """,
    """
    def f(v0):
      try:
        pass
      finally:
        pass
      if v0:
        pass
      else:
        pass
    """,
  ),
  "every kind of parameter": (
    "def f(a, /, b, *rest, c=1, **more): return (a, b, rest, c, more)",
    "def f(v0, /, v1, *v2, v3=1, **v4): return (v0, v1, v2, v3, v4)",
  ),
  "every kind of target": (
    """
    def f(x):
      for i, (j, *k) in x:
        j += i
      with open(x) as file, x as (a, b):
        del a
      try:
        n: int = 0
      except (ValueError, KeyError) as error:
        print(error)
      while (m := n):
        pass
    """,
    """
    def f(v0):
      for v1, (v2, *v3) in v0:
        v2 += v1
      with open(v0) as v4, v0 as (v5, v6):
        del v5
      try:
        v7: int = 0
      except (ValueError, KeyError) as v8:
        print(v8)
      while (v9 := v7):
        pass
    """,
  ),
  "one name in two scopes": (
    """
    total = 0
    def add(x):
      global total
      total += x
    def f(x):
      def inner():
        nonlocal x
        x = total
      inner()
      add(x)
      return x
    """,
    """
    v0 = 0
    def v1(v2):
      global v0
      v0 += v2
    def f(v2):
      def v3():
        nonlocal v2
        v2 = v0
      v3()
      v1(v2)
      return v2
    """,
  ),
  "comprehensions": (
    "def f(xs): return ([x for x in xs if x], {k: v for k, v in xs})",
    "def f(v0): return ([v1 for v1 in v0 if v1], {v2: v3 for v2, v3 in v0})",
  ),
  "recursion and helpers": (
    """
    def helper(n): return f(n - 1)
    def f(n): return helper(n) if n else len([n])
    """,
    """
    def v0(v1): return f(v1 - 1)
    def f(v1): return v0(v1) if v1 else len([v1])
    """,
  ),
  "keywords of own functions": (
    """
    scale = lambda value, by=2: value * by
    def shift(value, *, to=1): return value + to
    def f(n, depth=0):
      return f(n, depth=1) if depth else scale(shift(n, to=3), by=n)
    """,
    """
    v0 = lambda v1, v2=2: v1 * v2
    def v3(v1, *, v4=1): return v1 + v4
    def f(v5, v6=0):
      return f(v5, v6=1) if v6 else v0(v3(v5, v4=3), v2=v5)
    """,
  ),
  "keywords that go elsewhere": (
    """
    from functools import partial
    def shift(value, to): return value + to
    def scale(value, **more): return more['by'] * value
    def f(xs, reverse=True):
      key = partial(shift, to=3)
      return scale(sorted(xs, key=key, reverse=reverse), by=2)
    """,
    """
    from functools import partial
    def v0(v1, to): return v1 + to
    def v2(v1, **v3): return v3['by'] * v1
    def f(v4, reverse=True):
      v5 = partial(v0, to=3)
      return v2(sorted(v4, key=v5, reverse=reverse), by=2)
    """,
  ),
  "a name that is not always a function": (
    """
    def apply(g, x): return g(x, by=1)
    def g(x, by): return x * by
    def f(x): return apply(g, x)
    """,
    """
    def v0(v1, v2): return v1(v2, by=1)
    def v1(v2, by): return v2 * by
    def f(v2): return v0(v1, v2)
    """,
  ),
  "unpacked keywords": (
    """
    def area(width, height): return width * height
    def f(w): return area(**{'width': w, 'height': 2})
    """,
    """
    def v0(width, height): return width * height
    def f(v1): return v0(**{'width': v1, 'height': 2})
    """,
  ),
  "f-strings": (
    "def f(x, w): return f'x {x!r:>{w}} {[y for y in x]}'",
    "def f(v0, v1): return f'x {v0!r:>{v1}} {[v2 for v2 in v0]}'",
  ),
  "imports stay": (
    """
    import os.path, collections as c
    from math import gcd as g, pi
    def f(x):
      import heapq
      pi = g(x, 2)
      return c.Counter(os.path.join(heapq.nlargest(pi, x)))
    """,
    """
    import os.path, collections as c
    from math import gcd as g, pi
    def f(v0):
      import heapq
      pi = g(v0, 2)
      return c.Counter(os.path.join(heapq.nlargest(pi, v0)))
    """,
  ),
  "names from anywhere": (
    """
    from math import *
    limit = 3
    def g(floor): return floor + limit
    def f(x): return floor(x)
    """,
    """
    from math import *
    v0 = 3
    def v1(floor): return floor + v0
    def f(v2): return floor(v2)
    """,
  ),
  "builtins": (
    """
    def g(list, sum): return list + sum
    def f(xs, max=3): return list(g(xs, max))
    """,
    """
    def v0(list, v1): return list + v1
    def f(v2, v3=3): return list(v0(v2, v3))
    """,
  ),
  "a builtin before it is bound": (
    "input = input()\ndef f(): return input",
    "input = input()\ndef f(): return input",
  ),
  "classes": (
    """
    class Node:
      size = 0
      def __init__(self, value, parent=None):
        self.value = value
        local = parent
      def grow(self, by): self.size += by
    def f(value):
      node, size = Node(value, parent=3), 2
      node.grow(by=size)
      return node.value
    """,
    """
    class v0:
      size = 0
      def __init__(v1, v2, parent=None):
        v1.value = v2
        v3 = parent
      def grow(v1, by): v1.size += by
    def f(v2):
      v4, size = v0(v2, parent=3), 2
      v4.grow(by=size)
      return v4.value
    """,
  ),
  "decorators": (
    """
    def twice(function):
      def wrapper(*arguments): return function(*arguments) * 2
      return wrapper
    @twice
    def f(x): return x
    """,
    """
    def v0(v1):
      def v2(*v3): return v1(*v3) * 2
      return v2
    @v0
    def f(v4): return v4
    """,
  ),
  "match": (
    """
    def f(x):
      match x:
        case {'a': first, **others}: return first, others
        case [1, *tail] | (tail): return tail
        case int(real=part) as whole: return part + whole
        case _: return None
    """,
    """
    def f(v0):
      match v0:
        case {'a': v2, **v1}: return v2, v1
        case [1, *v3] | (v3): return v3
        case int(real=v5) as v4: return v5 + v4
        case _: return None
    """,
  ),
  "annotations": (
    """
    class Node: pass
    def f(x: 'list[Node]', y: int = 0) -> dict[str, Node]:
      z: 'Node' = 'Node'
      return z
    """,
    """
    class v0: pass
    def f(v1: 'list[v0]', v2: int = 0) -> dict[str, v0]:
      v3: 'v0' = 'Node'
      return v3
    """,
  ),
  "names of the new kind": (
    "def f(v1, b): return (v1.v0, b, v2)",
    "def f(v1, v3): return (v1.v0, v3, v2)",
  ),
  "names with two underscores": (
    "__all__ = []\ndef f(__x, _): return __x, _",
    "__all__ = []\ndef f(__x, v0): return __x, v0",
  ),
  "names as text are not followed": (
    "def f(x): return eval('x') + locals()['x']",
    "def f(v0): return eval('x') + locals()['x']",
  ),
}


def _normalized(text):
  return ast.unparse(ast.parse(textwrap.dedent(text)))


@pytest.mark.parametrize("name", list(CASES))
def test_cases_by_hand(name):
  before, after = map(textwrap.dedent, CASES[name])
  assert anonymize(before, "f") == _normalized(after)
  assert anonymize(_normalized(after), "f") == _normalized(after)


def test_an_entry_point_that_is_a_class_stays():
  program = "class Solution:\n  def solve(self, nums): return nums"
  expected = "class Solution:\n\n    def solve(v0, v1):\n        return v1"
  assert anonymize(program, "Solution") == expected


@pytest.mark.parametrize(
  "source",
  ["def f(x:", "x = 1\0", "def f(x):  # two\n  global x", "x = '\ud800"]
  + ["(" * 300, "# " * 70_000]
  + ["x = y" + " + y" * n + "  # long" for n in (900, 9_000)],
)
def test_what_does_not_compile_comes_back(source):
  assert anonymize(source, "f") == source


def test_an_empty_program():
  assert anonymize("", "f") == anonymize("# nothing\n'doc'", "f") == ""


@pytest.fixture(scope="module")
def shipped():
  return [
    problem
    for file in ("train.jsonl", "heldout.jsonl")
    for problem in problems.load_problems(TINY / file)
  ]


def test_shipped_programs_keep_no_name_of_their_own(shipped):
  seen = 0
  for problem in shipped:
    for program in (problem.ground_truth, *problem.faulty_programs[:1]):
      after = anonymize(program, problem.entry_point)
      assert anonymize(after, problem.entry_point) == after
      for name in _own_names(after) - {problem.entry_point, ".0"}:
        assert name[0] == "v" and name[1:].isdigit(), after
        seen += 1
  assert seen > 1000


def _own_names(program):
  """Names that some scope of a program binds."""
  return {
    symbol.get_name()
    for scope in _scopes(symtable.symtable(program, "", "exec"))
    for symbol in scope.get_symbols()
    if symbol.is_assigned() or symbol.is_parameter()
  }


def _scopes(scope):
  yield scope
  for child in scope.get_children():
    yield from _scopes(child)


def test_shipped_ground_truths_still_pass_their_tests(shipped):
  programs = [anonymize(p.ground_truth, p.entry_point) for p in shipped]
  changed = sum(p.ground_truth != new for p, new in zip(shipped, programs))
  assert changed == len(shipped)
  jobs = list(map(evaluation.golden_job, shipped, programs))
  with SandboxPool(allow_weak_isolation=True) as pool:
    results = pool.run(jobs)
  for program, result in zip(programs, results):
    assert result.calls
    assert all(verdict.passed for verdict in result.calls), program


def _solutions():
  """Solutions with the imports that their rows offer."""
  for row in evalplus_rows.load():
    truth = evalplus.ground_truth(row)
    yield row, f"{row['extra_info']['imports']}\n{truth}"


def test_evalplus_solutions_keep_no_parameter():
  for row, program in _solutions():
    entry_point = evalplus.entry_point(row)
    assert not parsing.code_error(program, entry_point)
    after = anonymize(program, entry_point)
    assert anonymize(after, entry_point) == after
    function = next(
      node
      for node in ast.walk(ast.parse(after))
      if isinstance(node, ast.FunctionDef) and node.name == entry_point
    )
    for argument in function.args.args:
      kept = hasattr(builtins, argument.arg)  # meant elsewhere in the program
      assert kept or argument.arg[1:].isdigit(), after


def test_evalplus_solutions_still_pass_their_tests():
  chosen = list(_solutions())[::8]
  jobs = [
    evalplus.strict_job(row, anonymize(program, evalplus.entry_point(row)))
    for row, program in chosen
  ]
  with SandboxPool(numpy=True, allow_weak_isolation=True) as pool:
    results = pool.check(jobs)
  failed = {
    row["extra_info"]["question_id"]: result.verdict
    for (row, _), result in zip(chosen, results)
    if not result.verdict.passed
  }
  assert not failed
