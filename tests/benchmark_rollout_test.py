"""The real driver with real workers, on a tiny model; no test of any time."""

import dataclasses
import importlib.util

import pytest

from experiments import benchmark_ceilings, benchmark_jobs, benchmark_rollout

SETTING = benchmark_jobs.Setting(
  num_samples=2, max_new_tokens=24, max_rows=4, prompts=1, prompt_tokens=8
)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
  directory = str(tmp_path_factory.mktemp("tiny"))
  size = benchmark_jobs.SIZES["tiny"]
  return benchmark_jobs.random_job(directory, size, SETTING)


@pytest.fixture(scope="module")
def measured(job):
  """One timed round, and what the driver said about who could not run."""
  contenders = ["ours:float32", "tunix:float32"]
  if importlib.util.find_spec("torch"):
    contenders.append("transformers:float32")
  said = []
  return benchmark_rollout.run(job, contenders, 1, say=said.append), said


def test_every_contender_draws_all_rows(job, measured):
  turns = measured[0]["turns"]
  assert "ours:float32" in turns
  for answers in turns.values():
    assert len(answers) == 2  # the warm-up and a round
    for answer in answers:
      assert len(answer["lengths"]) == 2
      assert all(1 <= n <= SETTING.max_new_tokens for n in answer["lengths"])
      assert answer["cpu_s"] > 0 and answer["peak_bytes"] > 2**20


def test_who_cannot_run_is_named_with_the_reason(measured):
  assert measured[1][0] == "tunix:float32 skipped: no --tunix_python"


def test_the_table_counts_what_was_drawn(job, measured):
  lines = benchmark_rollout.summarize(job, measured[0])
  rows = benchmark_rollout.table(lines).splitlines()
  assert len(rows) == 2 + len(lines)
  assert len({row.count("|") for row in rows}) == 1
  for name, line in lines.items():
    turn = measured[0]["turns"][name][1]
    tokens = sum(turn["lengths"])
    assert line["mean_length"] == tokens / 2
    assert line["tokens_per_s"] == pytest.approx(tokens / turn["wall_s"])
  if benchmark_rollout.BASELINE in lines:
    assert lines[benchmark_rollout.BASELINE]["ratio_wall"] == 1
  assert lines["ours:float32"]["binds_wall"] in ("matmul", "reads")


@pytest.mark.skipif(
  not importlib.util.find_spec("torch"), reason="transformers needs torch"
)
def test_transformers_ran(measured):
  assert "transformers:float32" in measured[0]["turns"]


@pytest.mark.parametrize(
  "row, reason",
  [
    ([5, 6], "neither a stop nor the limit"),
    ([5, 0, 6, 7], "goes on after the stop"),
    ([5] * 5, "longer than the limit"),
  ],
)
def test_rows_that_stop_elsewhere_are_refused(job, row, reason):
  short = dataclasses.replace(job, num_samples=1, max_new_tokens=4)
  benchmark_jobs.check_rows(short, [[5, 6, 7, 8]])
  benchmark_jobs.check_rows(short, [[5, 6, 0]])
  with pytest.raises(ValueError, match="row 0"):
    benchmark_jobs.check_rows(short, [row])


def test_decode_work_by_hand():
  """2 prompts of 10 tokens, 2 samples each, all numbers countable."""
  config = benchmark_jobs.SIZES["tiny"].config
  # qkv 32 x (2 + 2) x 16, out 32 x 32, mlp 3 x 32 x 64, head 128 x 32.
  parameters = 2048 + 1024 + 6144 + 4096
  assert benchmark_ceilings.matrix_parameters(config) == parameters
  work = benchmark_ceilings.decode_work(
    config, [10, 10], [3, 1, 2, 2], num_samples=2, max_rows=4, itemsize=4
  )
  assert work.operations == 2 * parameters * 4  # 8 tokens, 4 of them first
  assert work.weight_bytes == 4 * parameters * 2  # the longest decodes 2
  # Own tokens: 1 + 2, 0, 1, 1. Prompts: 10 in 2 steps, 10 in 1 step.
  assert work.kv_bytes == 4 * (2 * 1 * 16) * (5 + 30)
