"""All of a row's tests at once, as a test program for the sandbox."""

import functools
import pathlib
from collections.abc import Sequence

from codea1_jax.sandbox import CheckJob

_MEMORY_MB = 2048
# The solution is part of the test here: it may be a class, or several
# functions, and rows are not at war with their own tests. So nothing is left
# for a candidate to do.
_CANDIDATE = "def solution(): pass"


def job(sources: Sequence[str], cpu_s: float, program: str) -> CheckJob:
  """A program under tests that are Python source, some for pytest.

  Args:
    sources: programs; where there are test functions, these run too.
    cpu_s: CPU seconds of all of it.
    program: what they test; they may import it as `solution`, or just use it.
  """
  test = f"""{text("pytest_runner.py")}

def check(candidate):
  run_tests({program!r}, {list(sources)!r}, {text("pytest_stand_in.py")!r})
"""
  return CheckJob(_CANDIDATE, "solution", test, cpu_s, _MEMORY_MB)


@functools.cache
def text(name: str) -> str:
  """A file beside this one that runs in the sandbox."""
  path = pathlib.Path(__file__).with_name(name)
  return path.read_text(encoding="utf-8")
