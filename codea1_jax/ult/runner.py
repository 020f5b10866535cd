"""Runs tests on a program inside the sandbox, where there is no pytest.

This file's text follows that of datasets/pytest_runner.py in a test program:
standard library only; `_module` and `_tests` are defined there, and `_PYTEST`,
the stand-in for pytest, by who makes the program (verdicts.py). Test and
program share a process here, as in mutation testing: a test that lies about
itself is not kept from it.
"""

import contextlib
import importlib
import importlib.machinery
import inspect
import sys
import types
import typing

_MODULES = ["os", "re", "math", "random", "string", "warnings", "datetime",
            "traceback", "pytest"]  # fmt: skip
_TYPES = ["List", "Dict", "Any", "Optional", "Union", "Tuple", "Set",
          "FrozenSet", "Sequence", "Iterable", "Generator",
          "Callable"]  # fmt: skip


def _imported():
  """What the benchmark imports above every program and every test.

  numpy where the sandbox has it; pandas is not there.
  """
  found = {name: importlib.import_module(name) for name in _MODULES}
  found |= {name: getattr(typing, name) for name in _TYPES}
  if "numpy" in sys.modules:
    found["numpy"] = found["np"] = sys.modules["numpy"]
  return found


class _UnderAnyName:
  """Finds the program as whatever module a test thinks it lies in."""

  def __init__(self, known):
    self._known, self._names = known, []

  def __enter__(self):
    sys.meta_path.append(self)  # asked last: only what nobody else finds

  def __exit__(self, *_):
    sys.meta_path.remove(self)
    for name in self._names:
      sys.modules.pop(name, None)

  def find_spec(self, name, path=None, target=None):
    return importlib.machinery.ModuleSpec(name, self, is_package=True)

  def create_module(self, spec):
    return None

  def exec_module(self, module):
    self._names.append(module.__name__)
    vars(module).update(self._known)


def _outcome(program, file, published, hit):
  """(whether it loads, tests that pass, tests that do not)."""
  pytest = sys.modules["pytest"] = types.ModuleType("pytest")
  exec(_PYTEST, vars(pytest))  # noqa: F821
  known = _imported()
  try:
    own = _module("mod", program, known | {"__hit__": hit})  # noqa: F821
    defined = {k: v for k, v in vars(own).items() if _is_seen(k, published)}
    finder = contextlib.nullcontext() if published else _UnderAnyName(defined)
    with finder:
      tests = _module("tests", file, known | defined)  # noqa: F821
      passed = [_passes(call) for _, call in _tests(tests)]  # noqa: F821
  except BaseException:
    return False, 0, 1
  if not passed and "def test" in file:  # all of it is skipped
    return True, 0, 1
  return True, sum(passed), len(passed) - sum(passed)


def _is_seen(name, published):
  """Whether tests see a name: the published program's `import *` leaves out
  those that begin with an underscore."""
  special = name.startswith("__") and name.endswith("__")
  return not (name.startswith("_") if published else special)


def _passes(call):
  try:
    made = call()
  except BaseException:
    return False
  # pytest fails what only makes a generator, which has checked nothing.
  return not (inspect.isgenerator(made) or inspect.iscoroutine(made))


def report(program, files, published):
  """What every file of tests does on the program, loaded anew for it.

  Returns:
    Per file whether it loads, the tests that pass, those that do not, and
    what the program's probes saw, in order.
  """
  found = []
  for file in files:
    hits = set()
    outcome = _outcome(program, file, published, hits.add)
    found.append([*outcome, sorted(hits)])
  return found


def check(program, files, published):
  """Raises unless all tests of all files pass."""
  for file in files:
    loads, _, failed = _outcome(program, file, published, None)
    assert loads and not failed
