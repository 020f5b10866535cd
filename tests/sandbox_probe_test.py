"""The probe's lines, and that they explain the tier that a pool really has."""

import pathlib
import subprocess
import sys

import pytest

from codea1_jax.sandbox import SandboxPool, probe
from codea1_jax.sandbox.isolation import LAYERS

_ROOT = pathlib.Path(__file__).resolve().parents[1]


def _run(*arguments):
  """In a process of its own: this one has jax's threads and must not fork."""
  return subprocess.run(
    [sys.executable, "-m", "codea1_jax.sandbox.probe", *arguments],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=120,
  )


@pytest.fixture(scope="module")
def lines():
  done = _run()
  assert done.returncode == 0, done.stderr
  return done.stdout.splitlines()


def _answers(lines):
  return {
    name: line[len(name) :].strip()
    for name in probe.PRIMITIVES
    for line in lines
    if line.startswith(f"{name}  ") or line.startswith(f"{name} yes")
  }


def _tier(lines):
  (line,) = [line for line in lines if line.startswith("sandbox: ")]
  return line


def test_every_primitive_has_an_answer(lines):
  answers = _answers(lines)
  assert answers.keys() == probe.PRIMITIVES.keys()
  for name, answer in answers.items():
    assert answer.split()[0] in ("yes", "no"), name
  assert lines[0].startswith("user ")


def test_the_tier_is_the_pools_and_follows_from_the_primitives(lines):
  with SandboxPool(workers=1, allow_weak_isolation=True) as pool:
    assert _tier(lines) == pool.description
  answers = _answers(lines)
  spaces = [a for name, a in answers.items() if name.endswith(" namespace")]
  there = {
    "seccomp": answers["seccomp filter"].startswith("yes"),
    "landlock": answers["landlock"].startswith("yes (ABI "),
    "userns": all(a.startswith("yes") for a in spaces),
  }
  assert {name: name in _tier(lines) for name in LAYERS} == there


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_left_out_is_not_in_the_tier_and_its_hole_is_named(layer):
  done = _run(f"--without={layer}")
  tier, _, holes = done.stdout.partition("Not covered:")
  assert layer not in _tier(tier.splitlines())
  assert f"without {layer}" in holes
  assert ("allow_weak_isolation" in holes) == (layer == "seccomp")
  assert ("prlimit" in holes) == (layer == "seccomp")


def test_what_no_layer_covers_is_always_said(lines):
  assert "- faults of the kernel itself" in lines
  assert "access times of files" in " ".join(map(str.strip, lines))


def test_an_unknown_layer_is_refused():
  done = _run("--without=selinux")
  assert done.returncode == 2 and "selinux" in done.stderr


_LIARS = """
import os, time
from codea1_jax.sandbox import probe
def refused(): raise OSError("not here")
def forks():
  if os.fork() == 0:
    time.sleep(100)
for fn in (lambda: None, lambda: "ABI 9", refused, lambda: os._exit(3), forks):
  print(probe.attempt(fn))
probe._PATIENCE = 0.2
print(probe.attempt(lambda: time.sleep(100)))
"""


def test_an_attempt_survives_whatever_the_primitive_does():
  done = subprocess.run(
    [sys.executable, "-c", _LIARS],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=60,  # for the pipe too: no grandchild may hold it
    check=True,
  )
  assert done.stdout.splitlines() == [
    "yes",
    "yes (ABI 9)",
    "no (not here)",
    "no (the process died)",
    "yes",
    "no (it hangs)",
  ]
