"""Tests that are JSON: the arguments of a call and what it returns."""

import ast
import builtins
import copy
import importlib
from collections.abc import Sequence
from typing import Any

from codea1_jax import parsing
from codea1_jax.datasets.draft import Found, functions, signature

CPU_S = 30.0  # of a whole test
# What solutions of programming contests use without importing it.
_MODULES = (
  *("collections", "itertools", "functools", "heapq", "bisect", "math"),
  *("operator", "string", "re", "random", "copy", "statistics", "typing"),
)
_METHOD = "Solution"  # the class around the function of such a solution

Case = tuple[list[Any], list[Any]]  # arguments, and answers that all count


def find_calls(name: str, cases: Sequence[Case]) -> tuple[Found, ...]:
  """The calls that literals can write.

  What they return is left to the ground truth: JSON has no tuples.
  """
  calls: dict[str, None] = {}
  for arguments, _ in cases:
    text = f"assert {name}({', '.join(map(repr, arguments))}) == None"
    test = parsing.parse_test(text, name)
    if test is not None:
      calls[test.call] = None
  return tuple(map(Found, calls))


def left_out(cases: Sequence[Case], found: Sequence[Found]) -> dict[str, int]:
  """How many cases are no call in `found`."""
  missing = len(cases) - len(found)
  return {"repeated, or no literal": missing} if missing else {}


def test_source(name: str, cases: Sequence[Case]) -> str:
  """The cases as a program that asserts them, tuples being lists."""
  return f"""
nan, inf = float("nan"), float("inf")

def as_json(value):
  if isinstance(value, (list, tuple)):
    return [as_json(item) for item in value]
  if isinstance(value, dict):
    return {{key: as_json(item) for key, item in value.items()}}
  return value

def test_cases():
  for arguments, answers in {cases!r}:
    assert as_json({name}(*arguments)) in answers, arguments
"""


def as_function(program: str, name: str) -> str:
  """A program with the function at top level, and with the imports it lacks.

  Contest solutions define a method of a class Solution; a function that calls
  it is then added.

  Returns:
    The program; "" where it has no such function or method.
  """
  tree, error = parsing.parse_source(program)
  if error:
    return ""
  if name not in functions(program):
    methods = [
      method
      for node in tree.body
      if isinstance(node, ast.ClassDef) and node.name == _METHOD
      for method in node.body
      if isinstance(method, ast.FunctionDef) and method.name == name
    ]
    if not methods:
      return ""
    program = f"{program.rstrip()}\n\n\n{ast.unparse(_wrapper(methods[-1]))}\n"
  imports = _missing_imports(tree)
  return f"{imports}\n\n\n{program.lstrip()}" if imports else program


def method_signature(starter_code: str, name: str) -> str:
  """What a starter code wants: "def f(xs: List[int]):"; "" where unclear."""
  # Its body is missing, or a comment.
  program = as_function(f"{starter_code.rstrip()} pass", name)
  found = functions(program).get(name)
  return signature(found) if found else ""


def _wrapper(method: ast.FunctionDef) -> ast.FunctionDef:
  """The function of a method: the same parameters, but for `self`."""
  function, given = copy.deepcopy(method), copy.deepcopy(method.args)
  function.decorator_list = []
  kinds = {ast.unparse(decorator) for decorator in method.decorator_list}
  if "staticmethod" not in kinds:
    (given.posonlyargs or given.args)[:1] = []
  function.args = given
  positional = [a.arg for a in (*given.posonlyargs, *given.args)]
  passed = [
    *positional,
    *([f"*{given.vararg.arg}"] if given.vararg else ()),
    *(f"{a.arg}={a.arg}" for a in given.kwonlyargs),
    *([f"**{given.kwarg.arg}"] if given.kwarg else ()),
  ]
  call = f"return {_METHOD}().{method.name}({', '.join(passed)})"
  function.body = ast.parse(call).body
  return function


def _missing_imports(tree: ast.Module) -> str:
  """Import lines for names that are used, and neither bound nor built in."""
  used, bases, bound = set(), set(), set(dir(builtins))
  for node in ast.walk(tree):
    match node:
      case ast.Attribute(value=ast.Name(id=name)):
        bases.add(name)
      case ast.Name(id=name, ctx=ast.Load()):
        used.add(name)
      case ast.Name(id=name) | ast.arg(arg=name):
        bound.add(name)
      case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
        bound.add(name)
      case ast.ExceptHandler(name=str(name)):
        bound.add(name)
      case ast.Import(names=names) | ast.ImportFrom(names=names):
        bound |= {(a.asname or a.name).split(".")[0] for a in names}
        if any(a.name == "*" for a in names):
          bound |= _exported(node)
  lines = []
  for name in sorted(used - bound):
    owners = [m for m in _MODULES if name in _names(m)]
    if name in bases.intersection(_MODULES):
      lines.append(f"import {name}")
    elif owners:
      lines.append(f"from {owners[0]} import {name}")
  return "\n".join(lines)


def _exported(node: ast.Import | ast.ImportFrom) -> set[str]:
  """What `from MODULE import *` binds, for the modules known here."""
  module = getattr(node, "module", None)
  return set(_names(module)) if module in _MODULES else set()


def _names(module: str) -> list[str]:
  found = importlib.import_module(module)
  public = [name for name in dir(found) if not name.startswith("_")]
  return getattr(found, "__all__", public)
