"""A run that is killed, and started again, is the run that never was."""

import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest
from killed_run import STAGES
from process_tree import below, running, wait_until
from run_files import assert_identical

from codea1_jax import checkpoint, jsonl

HERE = pathlib.Path(__file__).parent
# (stage, which of its calls in the process, seconds into it)
FOUR = (("rollout", 0, 0.05), ("sandbox", 4, 0.01), ("update", 3, 0.02),
        ("saving", 1, 0.05))  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
  """Processes compile once, for all tests here."""
  cache = str(tmp_path_factory.mktemp("compiled"))
  return os.environ | {
    "JAX_COMPILATION_CACHE_DIR": cache,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "",
  }


def start(environment, workdir, steps, *kill):
  command = [sys.executable, HERE / "killed_run.py", workdir, steps, *kill]
  return subprocess.Popen(
    [str(part) for part in command],
    env=environment,
    cwd=HERE.parent,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def run(environment, workdir, steps, *kill):
  """Runs to its end, or to its kill; True where it came to its end.

  Whatever the kill was to leave, no process of the run stays.
  """
  process = start(environment, workdir, steps, *kill)
  family, output = set(), []
  while process.poll() is None:
    family |= below(process.pid)
    try:
      output.append(process.communicate(timeout=0.2)[0])
    except subprocess.TimeoutExpired:
      continue
  assert wait_until(lambda: not running(family), 10), running(family)
  if process.returncode == -signal.SIGKILL:
    return False
  assert process.returncode == 0, "".join(output)[-3000:]
  return True


@pytest.fixture(scope="module")
def whole(environment, tmp_path_factory):
  """Never killed; steps -> its workdir."""
  made = {}

  def make(steps):
    if steps not in made:
      made[steps] = tmp_path_factory.mktemp("whole") / "run"
      assert run(environment, made[steps], steps)
    return made[steps]

  return make


def survive(environment, workdir, steps, kills):
  """Runs under one kill after the other until the end; how many there were."""
  killed = 0
  for kill in kills:
    if run(environment, workdir, steps, *kill):
      return killed
    killed += 1
  assert run(environment, workdir, steps)
  return killed


def test_four_kills(environment, whole, tmp_path):
  assert survive(environment, tmp_path / "run", 4, FOUR) == 4
  assert_identical(tmp_path / "run", whole(4))


@pytest.mark.slow
def test_twenty_random_kills(environment, whole, tmp_path):
  rng = random.Random(7)
  # Early calls, so that no run comes to its end before its kill.
  calls = {"evaluation": 1, "sandbox": 4, "writing": 6}
  kills = [
    (stage, rng.randrange(calls.get(stage, 2)), round(rng.uniform(0, 0.3), 3))
    for stage in (sorted(STAGES) * 4)[:20]
  ]
  rng.shuffle(kills)
  workdir = tmp_path / "run"
  killed = survive(environment, workdir, 12, kills)
  print(f"{killed} kills: {kills[:killed]}")
  assert killed >= 15
  assert_identical(workdir, whole(12))


@pytest.mark.parametrize(
  "stage, call, said",
  [("sandbox", 5, "saving ..."), ("update", 3, "saving after this step ...")],
)
def test_sigterm_saves_the_last_whole_step(
  environment, whole, tmp_path, stage, call, said
):
  """The grace of a machine that is taken away is shorter than a step."""
  workdir = tmp_path / "run"
  process = start(environment, workdir, 4, stage, call, 0, "SIGTERM")
  output, _ = process.communicate(timeout=240)
  assert process.returncode == 0, output
  assert said in output and "the same command goes on" in output
  done = len(jsonl.read_jsonl(workdir / "metrics.jsonl"))
  assert done == {"sandbox": 1, "update": 2}[stage]
  assert checkpoint.find(str(workdir)).step == done
  assert run(environment, workdir, 4)
  assert_identical(workdir, whole(4))
