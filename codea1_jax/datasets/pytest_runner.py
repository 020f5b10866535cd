"""Runs a row's tests inside the sandbox, where there is no pytest.

This file's text is part of a test program (whole_test.py): standard library
only.
"""

import contextlib
import inspect
import itertools
import sys
import types


def _module(name, source, known):
  """A module made of source text."""
  module = types.ModuleType(name)
  vars(module).update(known)
  sys.modules[name] = module
  exec(compile(source, f"<{name}>", "exec"), vars(module))
  return module


def _is_test_case(case):
  """Whether it is unittest's; who imports that pays for it, nobody else."""
  unittest = sys.modules.get("unittest")
  return unittest is not None and issubclass(case, unittest.TestCase)


def _skips(error):
  """Whether a test says that it is not to run."""
  unittest = sys.modules.get("unittest")
  skipped = unittest is not None and isinstance(error, unittest.SkipTest)
  return skipped or isinstance(error, sys.modules["pytest"].Skipped)


def _asked(function):
  """Names of the parameters that have no value of their own."""
  parameters = inspect.signature(function).parameters
  return [n for n, p in parameters.items() if p.default is p.empty]


class _Fixtures:
  """What tests ask for by the names of their parameters."""

  def __init__(self, owner, outer=None):
    """Those of a module, or of a test class's object inside it."""
    self._pytest = sys.modules["pytest"]
    self._made = dict(outer._made) if outer else {}
    self._kept = outer._kept if outer else {}  # made once for many tests
    named = vars(type(owner) if outer else owner)
    for name, value in named.items():
      if inspect.isfunction(value) and hasattr(value, "fixture"):
        self._made[value.fixture.name] = getattr(owner, name)

  def calls(self, function, marks=()):
    """A test with each of its sets of arguments; none of what is skipped."""
    if getattr(function, "skipped", False):
      return
    marks = *marks, *getattr(function, "parametrized", ())
    for rows in itertools.product(*marks):
      given = {name: row[name] for row in rows for name in row}
      needed = self._needed(n for n in _asked(function) if n not in given)
      params = [self._made[name].fixture.params for name in needed]
      for chosen in itertools.product(*params):
        choice = dict(zip(needed, chosen))
        yield lambda given=given, choice=choice: self._call(
          function, given, choice
        )

  def _needed(self, asked):
    """The module's fixtures behind some names, and those that always are."""
    waiting = [n for n, made in self._made.items() if made.fixture.autouse]
    waiting += asked
    seen = {}
    while waiting:
      name = waiting.pop(0)
      if name in self._made and name not in seen:
        seen[name] = True
        waiting += _asked(self._made[name])
    return list(seen)

  def _call(self, function, given, choice):
    """One test; what its fixtures opened is closed after it."""
    with contextlib.ExitStack() as stack:
      values = {}
      for name in choice:
        self._value(name, choice, values, stack)
      asked = [name for name in _asked(function) if name not in given]
      wanted = {n: self._value(n, choice, values, stack) for n in asked}
      return function(**given, **wanted)

  def _value(self, name, choice, values, stack):
    """A fixture's value, the same one for all who ask in a test."""
    if name not in values:
      values[name] = self._make(name, choice, values, stack)
    return values[name]

  def _make(self, name, choice, values, stack):
    if name == "capsys":
      return stack.enter_context(self._pytest.Capsys().replaced())
    if name == "monkeypatch":
      patches = self._pytest.MonkeyPatch()
      stack.callback(patches.undo)
      return patches
    if name not in self._made:
      raise LookupError(f"fixture {name!r} is not there")
    function = self._made[name]
    key = name, repr(choice[name])
    if key in self._kept:
      return self._kept[key]
    request = types.SimpleNamespace(param=choice[name])
    made = function(
      **{
        other: request
        if other == "request"
        else self._value(other, choice, values, stack)
        for other in _asked(function)
      }
    )
    if inspect.isgenerator(made):
      closed = next, made, None
      made = next(made)
      if not function.fixture.kept:
        stack.callback(*closed)
    if function.fixture.kept:
      self._kept[key] = made
    return made


def _around(before, call, after):
  """A test between what prepares it and what tidies up."""

  def run():
    before()
    try:
      return call()
    finally:
      after()

  return run


def _class_tests(case, fixtures):
  """The tests of a class, each on an object of its own."""
  getattr(case, "setup_class", _nothing)()
  if _is_test_case(case):
    case.setUpClass()
  for name in filter(lambda name: name.startswith("test"), dir(case)):
    test = getattr(case, name)
    if getattr(case, "skipped", False) or getattr(test, "skipped", False):
      continue
    if _is_test_case(case):
      yield name, case(name).debug
      continue
    made = case()
    before, after = (
      _with_one(getattr(made, f"{when}_method", _nothing), test)
      for when in ("setup", "teardown")
    )
    own = _Fixtures(made, fixtures)
    marks = getattr(case, "parametrized", ())
    for call in own.calls(getattr(made, name), marks):
      yield name, _around(before, call, after)


def _nothing():
  """In the place of a hook that is not there."""


def _with_one(hook, what):
  """A hook that may or may not ask for what it is called for."""
  return (lambda: hook(what)) if _asked(hook) else hook


def _tests(module):
  """Name and call of every test that the module itself defines."""
  fixtures = _Fixtures(module)
  file = f"<{module.__name__}>"
  before, after = (
    vars(module).get(f"{when}_function", _nothing)
    for when in ("setup", "teardown")
  )
  _with_one(vars(module).get("setup_module", _nothing), module)()
  for name, value in list(vars(module).items()):
    if inspect.isclass(value) and value.__module__ == module.__name__:
      if name.startswith("Test") or _is_test_case(value):
        yield from _class_tests(value, fixtures)
    elif (
      name.startswith("test")
      and inspect.isfunction(value)
      and value.__code__.co_filename == file
    ):
      for call in fixtures.calls(value):
        yield (
          name,
          _around(_with_one(before, value), call, _with_one(after, value)),
        )


def _run(name, call, source):
  """One test; its failure says which it was, and the line that failed."""
  try:
    return call()
  except AssertionError as error:
    raise AssertionError(f"{name}: {_line(error, source) or error}") from error
  except Exception as error:
    if _skips(error):
      return None
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


def run_tests(program, sources, pytest_source):
  """Runs every test of every source on a program.

  A source finds the program's names as its own, and may also import them from
  `solution`: KodCode's own tests begin with `from solution import *`.
  """
  _module("pytest", pytest_source, {})
  known = vars(_module("solution", program, {}))
  known = {k: v for k, v in known.items() if not k.startswith("__")}
  for source in sources:
    _run_source(source, known)


def _run_source(source, known):
  module = _run("tests", lambda: _module("tests", source, known), source)
  tests = list(_tests(module))
  if not tests and "assert" not in source:
    raise LookupError("no test function, and nothing is asserted")
  for name, call in tests:
    _run(name, call, source)
