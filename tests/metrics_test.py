"""What a run writes down can be read back, resumed, and compared."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from codea1_jax import metrics


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
