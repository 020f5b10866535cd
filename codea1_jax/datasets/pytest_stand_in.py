"""Runs a row's tests inside the sandbox, where there is no pytest.

This file's text is part of a test program (whole_test.py): standard library
only. What of pytest is missing here is an error that says so.
"""

import functools
import inspect
import itertools
import math
import re
import sys
import types

_IMPORTS = re.compile(r"^\s*(from|import)\s+solution\b", re.MULTILINE)


class _Raises:
  """`with pytest.raises(ValueError, match="...") as info:`"""

  def __init__(self, expected, match=None):
    self._expected, self._match = expected, match

  def __enter__(self):
    return self

  def __exit__(self, kind, value, traceback):
    self.type, self.value = kind, value
    if kind is None:
      raise AssertionError(f"did not raise {self._expected}")
    if not issubclass(kind, self._expected):
      return False
    if self._match is not None and not re.search(self._match, str(value)):
      raise AssertionError(f"{value!s} does not match {self._match}")
    return True


def raises(expected, *function_and_arguments, match=None, **keywords):
  """Both of pytest's forms."""
  context = _Raises(expected, match)
  if not function_and_arguments:
    return context
  function, *arguments = function_and_arguments
  with context:
    function(*arguments, **keywords)
  return context


class approx:
  """Numbers, and lists, tuples and dicts of them, that are nearly equal."""

  __hash__ = None

  def __init__(self, expected, rel=None, abs=None):
    self._expected, self._rel, self._abs = expected, rel, abs

  def __eq__(self, actual):
    return self._near(actual, self._expected)

  def __repr__(self):
    return f"approx({self._expected!r})"

  def _near(self, actual, expected):
    if isinstance(expected, dict):
      return actual.keys() == expected.keys() and all(
        self._near(actual[key], value) for key, value in expected.items()
      )
    if isinstance(expected, list | tuple):
      return len(actual) == len(expected) and all(
        map(self._near, actual, expected)
      )
    if not isinstance(expected, int | float):
      return actual == expected
    least = 1e-12 if self._abs is None else self._abs
    most = self._rel
    if most is None:
      most = 1e-6 if self._abs is None else 0.0
    # pytest's tolerance is relative to what was expected, not to the larger.
    room = max(most * math.fabs(expected), least)
    return actual == expected or math.fabs(actual - expected) <= room


def _parametrize(names, values, ids=None):
  if isinstance(names, str):
    names = [name.strip() for name in names.split(",")]

  def mark(function):
    rows = [
      dict(zip(names, [value] if len(names) == 1 else value, strict=True))
      for value in values
    ]
    marks = [*getattr(function, "parametrized", ()), rows]
    function.parametrized = marks
    return function

  return mark


def _lack(name):
  raise LookupError(f"pytest.{name} is not in the stand-in for pytest")


def _module(name, source, known):
  """A module made of source text."""
  module = types.ModuleType(name)
  vars(module).update(known)
  sys.modules[name] = module
  exec(compile(source, f"<{name}>", "exec"), vars(module))
  return module


def _install():
  pytest = types.ModuleType("pytest")
  pytest.raises, pytest.approx = raises, approx
  pytest.mark = types.SimpleNamespace(parametrize=_parametrize)
  pytest.__getattr__ = _lack
  sys.modules["pytest"] = pytest


def _calls(function):
  """A test with each of its sets of arguments."""
  for rows in itertools.product(*getattr(function, "parametrized", ())):
    keywords = {name: row[name] for row in rows for name in row}
    lacking = [
      name
      for name, parameter in inspect.signature(function).parameters.items()
      if name not in keywords and parameter.default is parameter.empty
    ]
    if lacking:
      yield functools.partial(_lack_fixture, lacking[0])
    else:
      yield functools.partial(function, **keywords)


def _lack_fixture(name):
  raise LookupError(f"fixture {name!r} is not there")


def _is_test_case(case):
  """Whether it is unittest's; who imports that pays for it, nobody else."""
  unittest = sys.modules.get("unittest")
  return unittest is not None and issubclass(case, unittest.TestCase)


def _class_tests(case):
  """The tests of a class, each on an object of its own."""
  for name in filter(lambda name: name.startswith("test"), dir(case)):
    if _is_test_case(case):
      yield name, case(name).debug
      continue
    made = case()
    getattr(made, "setup_method", lambda: None)()
    for call in _calls(getattr(made, name)):
      yield name, call


def _tests(module):
  """Name and call of every test that the module itself defines."""
  file = f"<{module.__name__}>"
  for name, value in list(vars(module).items()):
    if inspect.isclass(value) and value.__module__ == module.__name__:
      if name.startswith("Test") or _is_test_case(value):
        yield from _class_tests(value)
    elif (
      name.startswith("test")
      and inspect.isfunction(value)
      and value.__code__.co_filename == file
    ):
      for call in _calls(value):
        yield name, call


def _run(name, call, source):
  """One test; its failure says which it was, and the line that failed."""
  try:
    return call()
  except AssertionError as error:
    raise AssertionError(f"{name}: {_line(error, source) or error}") from error
  except Exception as error:
    said = f"{name}: {type(error).__name__}: {error}"
    raise RuntimeError(said) from error


def _line(error, source):
  """The last line of the tests that an error passed through."""
  found, trace = "", error.__traceback__
  while trace is not None:
    if trace.tb_frame.f_code.co_filename == "<tests>":
      found = source.split("\n")[trace.tb_lineno - 1].strip()
    trace = trace.tb_next
  return found


def run_tests(program, sources):
  """Runs every test of every source on a program.

  A source imports the program as `solution`, or else finds its names as its
  own.
  """
  _install()
  known = vars(_module("solution", program, {}))
  known = {k: v for k, v in known.items() if not k.startswith("__")}
  for source in sources:
    _run_source(source, {} if _IMPORTS.search(source) else known)


def _run_source(source, known):
  module = _run("tests", lambda: _module("tests", source, known), source)
  tests = list(_tests(module))
  if not tests and "assert" not in source:
    raise LookupError("no test function, and nothing is asserted")
  for name, call in tests:
    _run(name, call, source)
