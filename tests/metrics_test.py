"""What a run writes down can be read back, resumed, and compared."""

import json
import math
import os
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from codea1_jax import metrics


def test_lines_are_on_disk_after_every_step(tmp_path):
  writer = metrics.MetricsWriter(tmp_path / "new" / "run")
  writer.write(1, {"code/loss": 0.5})
  assert metrics.read_jsonl(writer.path) == [{"step": 1, "code/loss": 0.5}]
  writer.write(2, {"code/loss": 0.25})
  assert [r["step"] for r in metrics.read_jsonl(writer.path)] == [1, 2]
  assert writer.path == tmp_path / "new" / "run" / "metrics.jsonl"


def test_arrays_scalars_and_records_become_json(tmp_path):
  writer = metrics.MetricsWriter(tmp_path, "rollouts.jsonl")
  record = {
    "jax": jnp.float32(0.5),
    "half": jnp.bfloat16(1.5),
    "count": np.int64(3),
    "flag": np.bool_(True),
    "array": np.arange(3),
    "nested": {"codes": [{"reward": np.float32(0.25), "oracle": None}]},
    "text": "</script> \ud800",
  }
  writer.write(np.int32(7), record)
  (row,) = metrics.read_jsonl(writer.path)
  assert row == {
    "step": 7,
    "jax": 0.5,
    "half": 1.5,
    "count": 3,
    "flag": True,
    "array": [0, 1, 2],
    "nested": {"codes": [{"reward": 0.25, "oracle": None}]},
    "text": "</script> \ud800",
  }


def test_non_finite_values_leave_the_file_strict_json(tmp_path):
  writer = metrics.MetricsWriter(tmp_path)
  writer.write(1, {"a": math.nan, "b": np.float32(-np.inf), "c": [math.inf]})

  def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")

  row = json.loads(writer.path.read_text(), parse_constant=refuse)
  assert row == {"step": 1, "a": "nan", "b": "-inf", "c": ["inf"]}
  assert math.isnan(float(row["a"]))


def test_what_is_no_number_is_refused(tmp_path):
  writer = metrics.MetricsWriter(tmp_path)
  with pytest.raises(ValueError, match="no number: object"):
    writer.write(1, {"a": object()})
  assert not writer.path.exists()


def test_resume_drops_what_will_be_done_again(tmp_path):
  writer = metrics.MetricsWriter(tmp_path)
  for step in range(1, 6):
    writer.write(step, {"x": step / 3})
  resumed = metrics.MetricsWriter(tmp_path)
  resumed.truncate_after(3)
  resumed.write(4, {"x": -1.0})
  rows = metrics.read_jsonl(writer.path)
  assert [(r["step"], r["x"]) for r in rows] == [
    (1, 1 / 3),
    (2, 2 / 3),
    (3, 1.0),
    (4, -1.0),
  ]
  assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_truncate_without_a_file_makes_none(tmp_path):
  writer = metrics.MetricsWriter(tmp_path)
  writer.truncate_after(0)
  assert not writer.path.exists()


def test_a_line_cut_by_a_kill_is_left_out_and_mended(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "co')
  assert metrics.read_jsonl(path) == [{"step": 1}, {"step": 2}]
  metrics.MetricsWriter(tmp_path).write(3, {})
  assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize(
  "line, message", [('{"step": 2', "not JSON"), ("[2]", "got list")]
)
def test_a_broken_line_is_named(tmp_path, line, message):
  path = tmp_path / "metrics.jsonl"
  path.write_text(f'{{"step": 1}}\n\n{line}\n{{"step": 3}}\n')
  with pytest.raises(ValueError, match=rf"metrics\.jsonl:3: .*{message}"):
    metrics.read_jsonl(path)


def test_non_finite_names_the_culprits():
  values = {
    "b": math.nan,
    "a": jnp.float32(np.inf),
    "c": np.array([1.0, np.nan]),
    "fine": 1,
    "text": "nan",
    "none": None,
  }
  assert metrics.non_finite(values) == ["a", "b", "c"]


def test_summary_statistics_by_hand():
  # 0..10: mean 5, variance 110 / 11 = 10, percentiles by interpolation.
  stats = metrics.summary_statistics(np.arange(11.0), "code/reward")
  assert stats == {
    "code/reward/mean": 5.0,
    "code/reward/std": pytest.approx(math.sqrt(10)),
    "code/reward/p10": pytest.approx(1.0),
    "code/reward/p90": pytest.approx(9.0),
  }
  assert metrics.summary_statistics([], "code/reward") == {}


def test_summary_statistics_keep_a_nan_visible():
  stats = metrics.summary_statistics([1.0, math.nan], "x")
  assert len(metrics.non_finite(stats)) == 4


def test_progress_line_has_what_is_known():
  step = {
    "code/reward/mean": 0.523,
    "test/validity": np.float32(0.75),
    "test/attack_rate": math.nan,
    "book/size": 120,
    "time/step_s": 3.21,
  }
  line = "code 0.52 | valid 0.75 | book 120 | 3.2 s/step"
  assert metrics.progress_line(step) == line
  assert metrics.progress_line({}) == ""


def test_comparison_table_by_hand():
  before = {
    "step": 0,
    "eval/num_problems": 32,
    "eval/test/validity": 0.5,
    "eval/code/greedy_pass_rate": 0.25,
    "eval/test/mut@5": 0.1,
  }
  after = {
    "step": 60,
    "eval/num_problems": 32,
    "eval/code/greedy_pass_rate": 0.625,
    "eval/test/validity": 0.455,
    "eval/time_s": 12.0,
  }
  assert metrics.comparison_table(before, after).splitlines() == [
    "metric                  before ->  after        change",
    "Code: greedy pass rate  25.0 % -> 62.5 %  +37.5 points",
    "Test: valid tests       50.0 % -> 45.5 %   -4.5 points",
    "Test: mut@5             10.0 % ->      -             -",
    "Time_s                       - -> 12.000             -",
    "step 0 -> step 60, 32 held-out problems",
  ]


def test_comparison_says_when_the_problems_differ():
  ends = [{"eval/num_problems": n} for n in (32, 64)]
  assert metrics.measured_on(*ends) == ["32 -> 64 held-out problems"]


def test_tensorboard_gets_the_numbers(tmp_path, monkeypatch):
  made, seen = [], []
  board = types.SimpleNamespace(
    add_scalar=lambda *x: seen.append(x), flush=lambda: seen.append("flush")
  )

  def summary_writer(**options):
    made.append(options)
    return board

  fake = types.SimpleNamespace(SummaryWriter=summary_writer)
  monkeypatch.setitem(sys.modules, "tensorboardX", fake)
  writer = metrics.MetricsWriter(tmp_path, tensorboard=True)
  writer.write(5, {"a": jnp.float32(0.5), "b": "text", "c": math.nan})
  writer.write(6, {"a": 1})
  assert made == [{"logdir": str(tmp_path / "tensorboard"), "purge_step": 5}]
  assert seen == [("a", 0.5, 5), "flush", ("a", 1.0, 6), "flush"]
  assert len(metrics.read_jsonl(writer.path)) == 2


def test_tensorboard_missing_is_one_line(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorboardX", None)
  with pytest.raises(ValueError, match="pip install"):
    metrics.MetricsWriter(tmp_path, tensorboard=True)
