"""Two processes on loopback are one run, and neither outlives the other."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from run_files import NAMES, arrays, timeless
from small_runs import SMALL

from codea1_jax import checkpoint, jsonl

ROOT = Path(__file__).parents[1]
DATA = ROOT / "codea1_jax" / "tiny"
STEPS = 3
SETTINGS = SMALL | {
  "parallel": "mesh",
  "num_steps": STEPS,
  "sandbox.workers": 1,
}


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
  """The embedded default at its smallest, on some of its problems."""
  folder = tmp_path_factory.mktemp("problems")
  given = [f"--config.{name}={value}" for name, value in SETTINGS.items()]
  for name, count in (("train", 30), ("heldout", 4)):
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()[:count]
    (folder / name).write_text("\n".join(lines) + "\n")
    given.append(f"--config.{name}_problems={folder / name}")
  return given


def start(flags, workdir, devices, hosts=""):
  """A process of the command that users run."""
  environment = os.environ | {
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    "JAX_PLATFORMS": "cpu",
  }
  return subprocess.Popen(
    [
      *(sys.executable, "-m", "experiments.train"),
      *("--config=configs/tiny.py", f"--workdir={workdir}"),
      *(f"--hosts={hosts}", *flags),
    ],
    cwd=ROOT,
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def start_two(flags, workdir, others=None):
  """Both processes of one run; the second may have flags of its own."""
  with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
  return [
    start(given, workdir, 1, f"127.0.0.1:{port},2,{index}")
    for index, given in enumerate((flags, others or flags))
  ]


def finish(*processes):
  for process in processes:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output


def assert_same_run(one, two):
  for name in NAMES:
    ours, theirs = timeless(one / name), timeless(two / name)
    assert len(ours) == len(theirs) > 0, name
    for row, other in zip(ours, theirs):
      assert row.keys() == other.keys()
      for key, value in row.items():
        if isinstance(value, float):
          value = pytest.approx(value, rel=1e-4, abs=1e-5)
        assert other[key] == value, (name, key)
  assert checkpoint.read_book(one) == checkpoint.read_book(two)
  assert checkpoint.read_book(one).size > 0
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
    arrays(one),
    arrays(two),
  )


@pytest.fixture(scope="module")
def one(flags, tmp_path_factory):
  """One process with both devices."""
  workdir = tmp_path_factory.mktemp("one") / "run"
  finish(start(flags, workdir, 2))
  return workdir


@pytest.mark.slow
def test_two_processes_are_one_run(flags, one, tmp_path):
  finish(*start_two(flags, tmp_path / "two"))
  assert_same_run(one, tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_when_one_dies_the_other_ends_and_both_go_on(
  flags, one, tmp_path, killed
):
  workdir = tmp_path / "run"
  processes = start_two(flags, workdir)
  path = workdir / "metrics.jsonl"
  deadline = time.monotonic() + 300
  while not (path.exists() and path.read_text().count("\n")):
    assert time.monotonic() < deadline
    assert all(p.poll() is None for p in processes)
    time.sleep(0.05)
  processes[killed].send_signal(signal.SIGKILL)
  dead = time.monotonic()
  output, _ = processes[1 - killed].communicate(timeout=60)
  processes[killed].communicate()
  assert processes[1 - killed].returncode not in (0, None), output
  print(f"the other ended after {time.monotonic() - dead:.1f} s")
  lines = [line for line in output.splitlines() if line.startswith("error: ")]
  assert len(lines) == 1 and re.search("another host", lines[0]), output
  assert len(jsonl.read_jsonl(path)) < STEPS
  finish(*start_two(flags, workdir))
  assert_same_run(one, workdir)


def test_a_mistake_on_one_host_ends_both(flags, tmp_path):
  broken = [*flags, f"--config.train_problems={tmp_path / 'missing'}"]
  processes = start_two(flags, tmp_path / "run", broken)
  outputs = [process.communicate(timeout=120)[0] for process in processes]
  assert [process.returncode for process in processes] == [2, 2], outputs
  assert "error: host 1: " in outputs[0] and "missing" in outputs[0]
  assert not (tmp_path / "run" / "config.json").exists()
