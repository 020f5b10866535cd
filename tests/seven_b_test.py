"""The 7B config fits 64 devices of 16 GB, and moves no more than it has to."""

import json
import os
import pathlib
import subprocess
import sys

import lowered_7b
import pytest

GIB = 2**30


@pytest.fixture(scope="module")
def programs():
  path = pathlib.Path(lowered_7b.__file__)
  flags = "--xla_force_host_platform_device_count=64"
  done = subprocess.run(
    [sys.executable, path],
    env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    cwd=path.parents[1],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
def test_memory(programs):
  """Beside what a program has: the other policy's parameters and moments, and
  two references."""
  parameters = 7.616e9
  elsewhere = {
    "update": (12 + 4 + 4) * parameters / 64,
    "prepare": (8 + 12 + 4 + 4) * parameters / 64,
    "prefill": (12 + 12 + 4 + 4) * parameters / 64,
    "decode": (12 + 12 + 4 + 4) * parameters / 64,
  }
  for name, others in elsewhere.items():
    total = programs[name]["bytes"] + others
    print(f"{name}: {programs[name]['bytes'] / GIB:.2f} GiB,", end=" ")
    print(f"with all else that a device holds {total / GIB:.2f}")
    assert total < 16e9, name


def gathered(program):
  return [size for kind, size in program["collectives"] if kind == "all-gather"]


@pytest.mark.slow
def test_collectives(programs):
  """Parameters are gathered along fsdp and never along tensor: an update has
  each layer's matrices in its loops, a call of the sampler all of them once;
  neither prefill nor a step of decode has any."""
  config = lowered_7b.CONFIG
  width, tensor = config.hidden_size, 4
  head = config.vocab_size * width * 4 // tensor
  layer = 2 * config.intermediate_size * width * 4 // tensor
  for name in ("update", "prepare"):
    large = [size for size in gathered(programs[name]) if size > layer]
    assert 1 <= len(large) <= 2 and max(large) <= head, name
  # Three of each of four matrices: forward, again, and backward.
  matrices = [s for s in gathered(programs["update"]) if 2**20 < s <= layer]
  assert len(matrices) <= 12
  assert gathered(programs["prefill"]) == []
  # A step's logits, which every device of a tensor group draws from.
  assert sum(gathered(programs["decode"])) < 2**23
