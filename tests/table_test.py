"""The Markdown table of runs."""

import subprocess
import sys

from codea1_jax import jsonl
from experiments import table


def write_run(workdir, pass_rates, rewards):
  evaluation = jsonl.JsonlWriter(workdir / "eval.jsonl")
  for step, rate in zip((0, 30), pass_rates):
    values = {key: rate for key in table._COLUMNS.values()}
    evaluation.write(step, values)
  training = jsonl.JsonlWriter(workdir / "metrics.jsonl")
  for step, reward in enumerate(rewards):
    values = {"code/reward/mean": reward, "book/size": 10 * (step + 1)}
    training.write(step, values)


def test_means_and_seeds_side_by_side(tmp_path):
  rewards = [0.5] * 10 + [0.0] * 10 + [0.75] * 10
  write_run(tmp_path / "paper_0", (0.5, 0.8), rewards)
  write_run(tmp_path / "paper_1", (0.6, 1.0), rewards)
  done = subprocess.run(
    [sys.executable, "-m", "experiments.table", "--training",
     *map(str, tmp_path.iterdir())],
    capture_output=True, text=True, check=True,
  )  # fmt: skip
  _, _, before, after = done.stdout.strip().split("\n")
  assert before.startswith("| paper, before | 0 | 55.0 (50, 60) | 55.0")
  assert after.startswith("| paper, after | 30 | 90.0 (80, 100) | 90.0")
  assert after.endswith("| 50.0 -> 75.0 | - | 100, 200, 300 |")


def test_a_directory_without_a_run_is_one_line(tmp_path):
  done = subprocess.run(
    [sys.executable, "-m", "experiments.table", str(tmp_path / "nothing")],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 2
  assert "nothing/eval.jsonl" in done.stderr.strip().split("\n")[-1]
