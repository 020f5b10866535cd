"""What KodCode's tests want of pytest, for the sandbox, which has none of it.

This file's text becomes the module `pytest` there (pytest_runner.py): standard
library only. What is missing here is an error that says so.
"""

import collections
import contextlib
import io
import math
import os
import re
import types
import warnings

_MISSING = object()
_Output = collections.namedtuple("_Output", "out err")


class Skipped(Exception):
  """A test that ends here and has not failed."""


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
    return self._match is None or self.match(self._match)

  def match(self, pattern):
    if not re.search(pattern, str(self.value)):
      raise AssertionError(f"{self.value!s} does not match {pattern}")
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


@contextlib.contextmanager
def warns(expected=Warning, match=""):
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    yield caught
  if not any(
    issubclass(one.category, expected) and re.search(match, str(one.message))
    for one in caught
  ):
    raise AssertionError(f"no warning {expected} that matches {match!r}")


def fail(reason="", pytrace=True, msg=""):
  raise AssertionError(reason or msg)


def skip(reason="", **_):
  raise Skipped(reason)


class _Param(tuple):
  """Values of a set of arguments: what pytest.param returns."""


def param(*values, id=None, marks=()):
  return _Param(values)


def _parametrize(names, values, ids=None, scope=None):
  if isinstance(names, str):
    names = [name.strip() for name in names.split(",")]

  def mark(function):
    rows = [
      dict(
        zip(
          names,
          value if len(names) > 1 or isinstance(value, _Param) else [value],
          strict=True,
        )
      )
      for value in values
    ]
    marks = [*getattr(function, "parametrized", ()), rows]
    function.parametrized = marks
    return function

  return mark


class _Marks:
  """pytest.mark: what skips a test, its arguments, and names for people."""

  parametrize = staticmethod(_parametrize)

  def skipif(self, condition, *, reason=""):
    return self.skip(reason) if condition else lambda test: test

  def skip(self, reason=""):
    if callable(reason):
      return self.skip()(reason)

    def mark(test):
      test.skipped = True
      return test

    return mark

  # Whether it fails is not known then, and nothing hangs on it.
  def xfail(self, *given, **_):
    return self.skip(*given[:1])

  def __getattr__(self, name):
    def mark(*given, **_):
      return given[0] if given and callable(given[0]) else lambda test: test

    return mark


def fixture(function=None, *, scope="function", params=(None,), autouse=False,
            name=None, ids=None):  # fmt: skip
  """Marks a function as one whose value tests may ask for by its name."""
  if function is None:
    return lambda made: fixture(
      made, scope=scope, params=params, autouse=autouse, name=name
    )
  function.fixture = types.SimpleNamespace(
    name=name or function.__name__,
    kept=scope != "function",
    params=list(params),
    autouse=autouse,
  )
  return function


class Capsys:
  """What is printed since it was last read."""

  def __init__(self):
    self._out, self._err = io.StringIO(), io.StringIO()

  def readouterr(self):
    found = _Output(self._out.getvalue(), self._err.getvalue())
    for stream in (self._out, self._err):
      stream.seek(0)
      stream.truncate()
    return found

  @contextlib.contextmanager
  def replaced(self):
    out = contextlib.redirect_stdout(self._out)
    with out, contextlib.redirect_stderr(self._err):
      yield self


class MonkeyPatch:
  """Changes that are undone in reverse."""

  def __init__(self):
    self._undo = contextlib.ExitStack()
    self.undo = self._undo.close

  def setattr(self, target, name, value=_MISSING, raising=True):
    if value is _MISSING:
      (path, _, attribute), value = target.rpartition("."), name
      target, name = self._import(path), attribute
    old = getattr(target, name) if raising else getattr(target, name, _MISSING)
    undo = (delattr, target, name) if old is _MISSING else None
    self._undo.callback(*(undo or (setattr, target, name, old)))
    setattr(target, name, value)

  def delattr(self, target, name, raising=True):
    if raising or hasattr(target, name):
      self._undo.callback(setattr, target, name, getattr(target, name))
      delattr(target, name)

  def setitem(self, mapping, key, value):
    if key in mapping:
      self._undo.callback(mapping.__setitem__, key, mapping[key])
    else:
      self._undo.callback(mapping.pop, key, None)
    mapping[key] = value

  def delitem(self, mapping, key, raising=True):
    if raising or key in mapping:
      self._undo.callback(mapping.__setitem__, key, mapping[key])
      del mapping[key]

  def setenv(self, name, value):
    self.setitem(os.environ, name, str(value))

  def delenv(self, name, raising=True):
    self.delitem(os.environ, name, raising)

  def _import(self, path):
    module, *rest = path.split(".")
    found = __import__(module)
    for name in rest:
      found = getattr(found, name)
    return found


mark = _Marks()


def main(*_, **__):
  return 0  # the tests run in any case


def __getattr__(name):
  raise LookupError(f"pytest.{name} is not in the stand-in for pytest")
