"""Ceilings and slopes by hand, and real steps through the program."""

import dataclasses
import json
import subprocess
import sys
import types

import pytest
from small_runs import SMALL

from codea1_jax import player
from codea1_jax.types import Completion
from experiments import benchmark_step_growth as growth
from experiments import benchmark_step_stages as stages
from experiments.benchmark_ceilings import Work
from experiments.benchmark_jobs import SIZES

RATES = {
  "matmul_float32": 1e9,
  "matmul_bfloat16": 2e9,
  "read_weights": 1e8,
  "read_kv": 5e7,
}
NUMBERS = {
  "time/step_s": 10.0,
  "time/rollout_s": 4.0,  # of which prompts and texts are the rest's
  "time/sandbox_s": 2.0,
  "time/score_s": 1.0,
  "time/update_s": 2.5,
}
DRAWN = {"time/rollout code_s": 1.5, "time/rollout test_s": 2.0}


def step(**changes):
  seconds = stages.stage_seconds(NUMBERS | changes, DRAWN)
  works = {
    "rollout code": [Work(1e8, 0, 0), Work(1e8, 1e7, 1e7)],  # reads bind
    "rollout test": [Work(0, 0, 0), Work(8e8, 2e7, 1e7)],  # matmuls do
    "score": [Work(5e8, 0, 0)],
    "update": [Work(1e9, 0, 0)],
  }
  return stages.Step(seconds, works, 3.0, 0.2, 0, (1, 1), RATES)


def test_seconds_by_stage():
  assert step().seconds == {
    "rollout code": 1.5,
    "rollout test": 2.0,
    "sandbox": 2.0,
    "score": 1.0,
    "update": 2.5,
    "rest": 1.0,
    "step": 10.0,
  }


def test_ceilings_by_hand():
  assert stages.least(step(), "float32", cores=2) == {
    "rollout code": (pytest.approx(0.1 + 0.1 + 0.2), "reads"),
    "rollout test": (pytest.approx(0.8), "matmul"),
    "sandbox": (1.5, "CPU"),
    "score": (0.5, "matmul"),
    "update": (1.0, "matmul"),
    "rest": (0.0, ""),
    "step": (pytest.approx(0.4 + 0.8 + 1.5 + 0.5 + 1.0), "CPU"),
  }
  halved = stages.least(step(), "bfloat16", cores=3)
  assert halved["rollout test"] == (pytest.approx(0.4), "reads")
  assert halved["sandbox"] == (1.0, "CPU")
  assert halved["update"] == (0.5, "matmul")


def test_the_table_has_medians_and_shares():
  slow = {"time/step_s": 20.0, "time/update_s": 10.0}
  steps = [step(), step(), step(**slow)]
  lines = stages.summarize(steps, "float32", 2)
  update = lines["update"]
  assert (update["s"], update["highest_s"]) == (2.5, 10.0)
  assert update["of_the_ceiling"] == 0.4
  assert update["of_the_step"] == 0.25
  assert lines["rest"]["highest_s"] == 20.0 - 1.5 - 2 - 2 - 1 - 10
  printed = stages.table(lines).split("\n")
  assert printed[2:] == [
    "| rollout code | 1.500 | 1.500-1.500 | 15% | 0.400 | reads | 27% |",
    "| rollout test | 2.000 | 2.000-2.000 | 20% | 0.800 | matmul | 40% |",
    "| sandbox | 2.000 | 2.000-2.000 | 20% | 1.500 | CPU | 75% |",
    "| score | 1.000 | 1.000-1.000 | 10% | 0.500 | matmul | 50% |",
    "| update | 2.500 | 2.500-10.000 | 25% | 1.000 | matmul | 40% |",
    "| rest | 1.000 | 1.000-3.500 | 10% |  |  |  |",
    "| step | 10.000 | 10.000-20.000 | 100% | 4.200 | CPU | 42% |",
  ]


def test_stages_that_a_method_lacks_are_left_out():
  numbers = {"time/step_s": 4.0, "time/sandbox_s": 1.0}
  seconds = stages.stage_seconds(numbers, {})
  one = dataclasses.replace(step(), seconds=seconds, works={})
  lines = stages.summarize([one], "float32", 2)
  assert lines.keys() == {"sandbox", "rest", "step"}
  assert lines["rest"]["s"] == 3.0


def test_what_a_rollout_needs_by_hand():
  """Two prompts of 3 and 5 tokens, two completions each; a layer's matrices
  have 9216 weights, the head 4096."""
  model = SIZES["tiny"].config
  own = player.Player
  one = types.SimpleNamespace(
    policy=types.SimpleNamespace(model_config=model),
    parallel=types.SimpleNamespace(num_groups=2),
  )
  one.drawn = lambda samples: own.drawn(one, samples)
  lengths = ((2, 4), (1, 6))
  samples = player.Samples(
    [[1] * 3, [1] * 5],
    [[Completion("", (1,) * n, (0.0,) * n, True) for n in r] for r in lengths],
  )
  prefill, decode = stages.rollout_works(one, samples, max_rows=1)
  attention = 4 * 2 * 16  # of one query and key
  assert prefill.operations == 2 * 9216 * 8 + attention * (6 + 15)
  pairs = (4 + 5) + (4 + 5 + 6 + 7) + 6 + sum(range(6, 12))
  assert decode.operations == 2 * (9216 + 4096) * 13 + attention * pairs
  # 9 tokens come after their row's first, 2 rows a step: but the longest row
  # takes 5 steps. Both groups read the weights.
  assert decode.weight_bytes == 2 * 5 * 4 * (9216 + 4096)
  kv_bytes = 4 * 2 * 16  # keys and values of one token
  read = (1 + 6 + 0 + 15) + 3 * (4 - 1) + 5 * (6 - 1)
  assert decode.kv_bytes == kv_bytes * read


def test_slopes_by_hand():
  assert growth.slope([3, 6, 12], [0.1, 0.2, 0.4]) == pytest.approx(1)
  assert growth.slope([3, 6, 12], [0.1, 0.4, 1.6]) == pytest.approx(2)
  assert growth.slope([1, 2, 4], [0.1, 0.1, 0.2]) == pytest.approx(0.5)
  assert growth.slope([1, 2, 4], [0.009, 1, 2]) is None  # too short to tell


def test_what_is_superlinear_is_marked():
  seconds = [dict.fromkeys(stages.STAGES, 1.0 * n) for n in (1, 2, 4)]
  for n, point in zip((1, 2, 4), seconds):
    point |= {"step": 2.0, "score": 0.001 * n, "update": n**1.2}
  found = {"codes": {"values": [4, 8, 16], "seconds": seconds}}
  assert growth.table(found).split("\n")[2:] == [
    "| codes | 4, 8, 16 | 0.00 | 1.00 | 1.00 | 1.00 | - | **1.20** | 1.00 |",
    "",
    "Superlinear: update over codes (1.20)",
  ]
  assert growth.table({}).endswith("Superlinear: nothing")


def run_program(*flags):
  return subprocess.run(
    [sys.executable, "-m", "experiments.benchmark_step", *flags],
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize(
  "flags, words",
  [
    (["--grow=codes,depth"], "'depth' is not one of questions, codes"),
    (["--out=nowhere/numbers.json"], "no such directory: nowhere"),
    (["--config.placement=split"], "placement = split: both roles' stages"),
  ],
)
@pytest.mark.slow
def test_mistakes_are_one_line(flags, words):
  done = run_program(*flags)
  assert done.returncode == 2 and not done.stdout
  (line,) = done.stderr.strip().split("\n")
  assert line.startswith("error: ") and words in line


@pytest.mark.slow
def test_real_steps(tmp_path):
  pytest.importorskip("matplotlib")
  out = tmp_path / "numbers.json"
  changes = [f"--config.{name}={value}" for name, value in SMALL.items()]
  done = run_program(
    *changes, "--warm_up=1", "--rounds=2", "--grow=devices", f"--out={out}"
  )
  assert done.returncode == 0, done.stderr
  assert "| update |" in done.stdout and "| devices | 1, 2, 4 |" in done.stdout
  found = json.loads(out.read_text())
  assert found["lines"].keys() == {*stages.STAGES, stages.WHOLE}
  for name, line in found["lines"].items():
    assert line["lowest_s"] <= line["s"] <= line["highest_s"]
    if name != "rest":  # no stage is faster than the machine
      assert 0 < line["of_the_ceiling"] < 1.2
  parts = sum(found["lines"][name]["of_the_step"] for name in stages.STAGES)
  assert 0.8 < parts < 1.2
  assert len(found["growth"]["devices"]["seconds"]) == 3
  assert "<svg" in (tmp_path / "numbers.svg").read_text()
