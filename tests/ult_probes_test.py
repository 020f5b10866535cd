"""Lines and branches that ran are those that the coverage package counts."""

import contextlib
import json
import pathlib
import random

import pytest

from codea1_jax.ult import probes

ULT = pathlib.Path(__file__).parents[2] / "shared" / "data" / "ULT_Lite.jsonl"
ODD = '''\
"""A module."""
from __future__ import annotations
import functools
LIMIT = 3

class Box:
  """A class."""
  size: int = 1

  @property
  def twice(self):
    return 2 * self.size

@functools.cache
def f(n):
  """Its docstring."""
  global LIMIT
  note: str
  if n < 0:
    return -1
  elif n == 0:
    pass
  total = 0
  for i in range(n):
    if i == 5:
      break
    if i % 2:
      continue
    total += (
      i
      if i else 1
    )
  else:
    total += 1
  while total > LIMIT:
    total -= LIMIT
  while True:
    total += 1
    if total > 2: 
      break
  try:
    if n == 4:
      raise KeyError(n)
    if n == 6:
      raise ValueError(n)
    if n == 7:
      raise TypeError(n)
  except KeyError:
    total = 0
  except (ValueError, OSError) as error:
    total = 1
  except TypeError:
    raise
  else:
    total = 2
  finally:
    total += 1
  match n:
    case 1 | 2:
      total += 1
    case [x]:
      total += x
    case int() if n > 8:
      total += 2
  match total:
    case 1:
      return [g for g in range(3) if g]
    case _:
      with contextlib_null():
        pass
  return total

class contextlib_null:
  def __enter__(self):
    return self
  def __exit__(self, *_):
    return False
'''


def ours(program, name, tests):
  """(lines, those that ran, branches, those taken), and the probes."""
  probed, hits = probes.probed(program, name), set()
  names = {"__hit__": hits.add, "__name__": "m"}
  exec(compile(probed.program, "<probed>", "exec"), names)
  run(tests, names)
  assert hits <= probed.everything
  lines = {n for n in probed.everything if n > 0}
  ran = {n for n in hits if n > 0}
  return (
    lines,
    ran,
    len(probed.everything - lines),
    len(hits - ran),
  ), probed


def run(tests, names):
  random.seed(0)
  for test in tests:
    with contextlib.suppress(Exception):
      exec(test, dict(names))


def theirs(program, tests, tmp_path):
  coverage = pytest.importorskip("coverage", reason="compares with coverage")
  path = tmp_path / "m.py"
  path.write_text(program)
  measured = coverage.Coverage(
    branch=True, include=[str(path)], data_file=None, config_file=False
  )
  with measured.collect():
    names = {"__name__": "m"}
    exec(compile(program, str(path), "exec"), names)
    run(tests, names)
  report = tmp_path / "report.json"
  measured.json_report(outfile=str(report))
  (found,) = json.loads(report.read_text())["files"].values()
  ran = set(found["executed_lines"])
  counts = found["summary"]
  return (
    ran | set(found["missing_lines"]),
    ran,
    counts["num_branches"],
    counts["covered_branches"],
  )


@pytest.mark.parametrize(
  "calls", [(), (0,), (1,), (4,), (6,), (7,), (9,), (-1, 2, 3), range(-1, 10)],
  ids=str,
)  # fmt: skip
def test_odd_syntax(calls, tmp_path):
  tests = [f"f({n})" for n in calls]
  found, probed = ours(ODD, "f", tests)
  assert found == theirs(ODD, tests, tmp_path)
  assert min(n for n in probed.inside if n > 0) == ODD[: ODD.index(
    "  if n < 0"
  )].count("\n") + 1  # fmt: skip


def test_probes_change_nothing():
  plain, probed = {}, {"__hit__": lambda _: None}
  exec(ODD, plain)
  exec(probes.probed(ODD, "f").program, probed)
  for n in (-1, 0, 1, 2, 3, 4, 5, 6, 8, 9, 20):
    assert plain["f"](n) == probed["f"](n)
  assert plain["f"].__doc__ == probed["f"].__doc__ == "Its docstring."
  assert plain["__doc__"] == probed["__doc__"]
  for names in (plain, probed):
    with pytest.raises(TypeError, match="7"):
      names["f"](7)


def test_what_coverage_does_not_see():
  """Branches on one line; and neither of us those inside of expressions."""
  program = "def f(x):\n  if x: return 1\n  return 2 if x is None else 3\n"
  found, _ = ours(program, "f", ["f(1)"])
  assert found == ({1, 2, 3}, {1, 2}, 2, 1)
  assert probes.probed("def f(:", "f") == probes.Probed(
    "def f(:", frozenset(), frozenset()
  )


def test_functions_of_the_benchmark(tmp_path):
  """With the benchmark's own tests, which reach much and pass seldom."""
  if not ULT.exists():
    pytest.skip(f"{ULT} is not there")
  rows = json.loads(ULT.read_text())
  same = 0
  for row in rows[:40]:
    program = "import math, random, re, string\n" + row["code"]
    one_line = any(
      line.split("#")[0].strip().startswith(("if ", "while ", "for ", "else:"))
      and not line.split("#")[0].rstrip().endswith((":", "\\", "(", ","))
      for line in program.split("\n")
    )
    if one_line or row["task_id"] == "425":  # texts between statements: lines
      continue
    tests = row["test_list"]
    found, _ = ours(program, row["func_name"], tests)
    assert found == theirs(program, tests, tmp_path), row["task_id"]
    same += 1
  assert same > 20
