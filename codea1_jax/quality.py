"""Which tests of a suite are worth running: rules by name, switched by config.

Rules read text only; nothing is executed.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Any

from codea1_jax import parsing
from codea1_jax.types import TestCase

RULES = ("trivial", "duplicate", "stale")


def rejected(
  rules: Sequence[str],
  ground_truth: str,
  entry_point: str,
  tests: Sequence[TestCase],
  streak: Callable[[str], int],
  patience: int,
) -> list[str]:
  """The first rule that rejects each test, "" where none does.

  trivial: the expected value is one of the arguments, of the same type at
    every depth, or there are no arguments. A program that hands an argument
    back passes such a test, so it says little about logic. It may still be the
    one that breaks a code (sorting [], a number that is its own answer): with
    this rule a tester earns nothing for fixed points, and has to find inputs on
    which the answer must be computed.
  duplicate: an earlier test of the list, whether rejected or not, has the same
    input: arguments are bound to the ground truth's parameters, defaults that
    are literals are filled in, and sets and dicts have no order. 1, 1.0 and
    True are three inputs.
  stale: every code has passed the call in at least `patience` steps in a row
    that ran it; steps without the question or the call do not count.

  Args:
    rules: of `RULES`, in the order in which they are asked.
    ground_truth: the program whose signature binds arguments.
    entry_point: the function that the tests call.
    tests: in order; expected values should be the ground truth's.
    streak: a test's call -> steps in a row that ran it and no code failed.
    patience: steps, for `stale`.

  Returns:
    One name a test.

  Raises:
    ValueError: for an unknown rule.
  """
  for rule in rules:
    if rule not in RULES:
      raise ValueError(f"unknown rule {rule!r}; known: {', '.join(RULES)}")
  found = {
    "trivial": lambda: [_is_trivial(test) for test in tests],
    "duplicate": lambda: _repeats(ground_truth, entry_point, tests),
    "stale": lambda: [streak(test.call) >= patience for test in tests],
  }
  columns = [found[rule]() for rule in rules]
  return [
    next((rule for rule, column in zip(rules, columns) if column[i]), "")
    for i in range(len(tests))
  ]


def _is_trivial(test: TestCase) -> bool:
  """Whether the answer is an argument, or there is no argument."""
  call = _expression(test.call)
  if not isinstance(call, ast.Call):
    return False
  arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
  if not arguments:
    return True
  expected = _canonical(_expression(test.expected))
  return expected is not None and expected in map(_canonical, arguments)


def _repeats(
  ground_truth: str, entry_point: str, tests: Sequence[TestCase]
) -> list[bool]:
  """Whether an earlier test has the same input."""
  parameters = _parameters(ground_truth, entry_point)
  seen, repeats = set(), []
  for test in tests:
    bound = _bound_input(test.call, parameters)
    repeats.append(bound in seen)
    seen.add(bound)
  return repeats


def _parameters(program: str, entry_point: str) -> ast.arguments | None:
  """Parameters of the last top-level `def` of that name."""
  tree, _ = parsing.parse_source(program)
  for node in reversed(tree.body if tree else ()):
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if is_function and node.name == entry_point:
      return node.args
  return None


def _bound_input(
  call_text: str, parameters: ast.arguments | None
) -> frozenset[tuple[str | int | None, str | None]] | str:
  """Parameter names (places, where there is none) with values; or the text."""
  call = _expression(call_text)
  if not isinstance(call, ast.Call):
    return call_text
  positional, by_place, defaults = [], [], {}
  if parameters is not None:
    by_place = [a.arg for a in parameters.posonlyargs]
    positional = by_place + [a.arg for a in parameters.args]
    defaults = _defaults(parameters, positional)
  names = [*positional, *range(len(positional), len(call.args))]
  pairs = [(name, _canonical(value)) for name, value in zip(names, call.args)]
  pairs += [(k.arg, _canonical(k.value)) for k in call.keywords]
  bound = dict(pairs)
  wrong = {k.arg for k in call.keywords} & set(by_place)
  # Not literals, or an argument given twice: a call that we cannot bind.
  if None in bound.values() or len(bound) < len(pairs) or wrong:
    return call_text
  return frozenset((defaults | bound).items())


def _defaults(
  parameters: ast.arguments, positional: Sequence[str]
) -> dict[str, str | None]:
  """Values of the parameters with a default; None for what is no literal."""
  last = positional[len(positional) - len(parameters.defaults) :]
  pairs = [*zip(last, parameters.defaults)]
  pairs += zip((a.arg for a in parameters.kwonlyargs), parameters.kw_defaults)
  return {name: _canonical(node) for name, node in pairs if node is not None}


def _expression(text: str) -> ast.expr | None:
  """The expression that a text consists of, or None."""
  tree, _ = parsing.parse_source(text)
  match tree:
    case ast.Module(body=[ast.Expr(value=expression)]):
      return expression
  return None


def _canonical(node: ast.expr | None) -> str | None:
  """One text for equal values of equal types; None where it is no literal."""
  try:
    return None if node is None else _text(ast.literal_eval(node))
  except parsing.PARSER_ERRORS:
    return None


def _text(value: Any) -> str:
  """`_canonical` of a value."""
  kind = type(value).__name__
  if isinstance(value, dict):
    parts = sorted(f"{_text(k)}:{_text(v)}" for k, v in value.items())
  elif isinstance(value, set):
    parts = sorted(map(_text, value))
  elif isinstance(value, list | tuple):
    parts = list(map(_text, value))
  else:
    # hex: long integers have no decimal text in Python.
    return f"{kind} {hex(value) if isinstance(value, int) else repr(value)}"
  return f"{kind}({','.join(parts)})"
