"""Mutants are cosmic-ray's, and tests kill those that they can tell apart."""

import json
import pathlib

import pytest

from codea1_jax import mutation

pytest.importorskip("cosmic_ray", reason="mutants need cosmic-ray")

CLIP = '''\
def clip(x, low, high):
  """Keeps x between low and high."""
  if x < low:
    return low
  return high if x > high else x
'''
STRONG = "\n".join(
  f"assert clip({x}, 2, 5) == {y}" for x, y in ((1, 2), (2, 2), (3, 3), (9, 5))
)
ODD = """\
import functools

@functools.cache
def f(n, *, k=3):
  total, seen = 0, not True
  for i in range(n):
    if i % k == 0 and not (i > 7 or i is None):
      continue
    try:
      total += -i ** 2
    except (ValueError, KeyError):
      break
  while total > 100: total //= 2
  return [x for x in [total] if x or seen]
"""
ULT = pathlib.Path(__file__).parents[2] / "shared" / "data" / "ULT_Lite.jsonl"


def programs():
  yield "clip", CLIP
  yield "odd", ODD
  if ULT.exists():  # real functions too, on a machine that has them
    for row in json.loads(ULT.read_text())[:3]:
      yield row["func_name"], row["code"]


@pytest.mark.parametrize("program", [p for _, p in programs()],
                         ids=[n for n, _ in programs()])  # fmt: skip
def test_mutants_are_those_of_cosmic_ray(program):
  """All of its operators without arguments, one occurrence after the other."""
  from cosmic_ray import mutating, plugins

  theirs = []
  for name in plugins.operator_names():
    make = plugins.get_operator(name)
    occurrence = 0
    while not make.arguments():
      text = mutating.mutate_code(program, make(), occurrence)
      if text is None:
        break
      theirs.append((name, occurrence, text))
      occurrence += 1
  ours = mutation.make_mutants(program)
  assert [(m.operator, m.occurrence, m.program) for m in ours] == theirs
  assert len(ours) > 10


def test_tests_kill_what_they_tell_apart():
  strong, weak, broken = mutation.run_mutants(
    [(CLIP, STRONG), (CLIP, "assert clip(3, 2, 5) == 3"), (CLIP, "assert 0")]
  )
  assert broken is None
  assert strong.score() > weak.score() > 0.2
  survivors = {
    m.program for m, killed in zip(strong.mutants, strong.killed) if not killed
  }
  assert CLIP.replace("x > high", "x >= high") in survivors  # equal for all x
  assert CLIP.replace("x > high", "x != high") not in survivors
  assert all(k is not None for k in strong.killed)


def test_what_never_ends_or_does_not_compile_is_killed(monkeypatch):
  loop = "def f(n):\n  while n > 0:\n    n = n - 1\n  return n\n"
  (result,) = mutation.run_mutants([(loop, "assert f(3) == 0")])
  killed = {m.program: k for m, k in zip(result.mutants, result.killed)}
  assert killed[loop.replace("n = n - 1", "n = n + 1")] is True
  assert killed[loop.replace("n > 0", "n < 0")] is True
  broken = (mutation.Mutant("x", 0, "def f(:"), mutation.Mutant("x", 1, loop))
  monkeypatch.setattr(mutation, "make_mutants", lambda program: broken)
  (result,) = mutation.run_mutants([(loop, "assert f(3) == 0")], strict=False)
  assert result.killed == (True, False)
  assert result.equal_bytecode == (False, True)
  assert (result.score(), result.score(without_equal=True)) == (0.5, 1.0)


def test_scores_of_none():
  empty = mutation.MutationResult((), (), ())
  assert empty.score() is None
  unknown = mutation.MutationResult(
    (mutation.Mutant("x", 0, ""),) * 3, (True, None, False), (False,) * 3
  )
  assert unknown.score() == 0.5


def test_the_command(tmp_path, capsys):
  program, tests = tmp_path / "clip.py", tmp_path / "tests.py"
  program.write_text(CLIP)
  tests.write_text("assert clip(3, 2, 5) == 3")
  assert mutation.main([str(program), f"--tests={tests}", "--survivors"]) == 0
  said = capsys.readouterr().out
  assert "mutants killed" in said and "mutation score: " in said
  assert "+  return high if x >= high else x" in said
  tests.write_text("assert clip(3, 2, 5) == 4")
  assert mutation.main([str(program), f"--tests={tests}"]) == 2
  assert "the tests fail on" in capsys.readouterr().err
  program.write_text("def f(:")
  assert mutation.main([str(program), f"--tests={tests}"]) == 2
  assert mutation.main(["none.py", f"--tests={tests}"]) == 2
  assert "none.py" in capsys.readouterr().err
