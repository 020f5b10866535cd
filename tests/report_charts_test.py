"""Curves are drawn where hand computation puts them."""

import numpy as np
import pytest

from codea1_jax import report_charts


def test_line_of_two_points_by_hand():
  rows = [{"step": s, "code/pass_rate": s / 10} for s in (0, 10)]
  figures, (readout,) = report_charts.draw(rows, [])
  # x from 46 to 342; y from 176 (0 %) to 10 (100 %).
  assert 'd="M46.0 176.0L342.0 10.0"' in figures
  assert "from 0.0 % to 100.0 %" in figures
  assert readout["values"] == [[0.0, 1.0]]


def test_areas_stack_up_to_the_whole():
  row = {"step": 1, "verdicts/pass": 3, "verdicts/fail": 1}
  figures, (readout,) = report_charts.draw([row, row | {"step": 2}], [])
  assert readout["values"] == [[0.75, 0.75], [0.25, 0.25]]
  # 75 % lies at 176 - 0.75 * 166 = 51.5, and 100 % at 10.
  assert 'points="46.0,51.5 342.0,51.5 342.0,176.0 46.0,176.0"' in figures
  assert 'points="46.0,10.0 342.0,10.0 342.0,51.5 46.0,51.5"' in figures


def test_long_runs_are_averaged_in_bins():
  rows = [{"step": s, "code/reward/mean": float(s)} for s in range(1, 1001)]
  figures, (readout,) = report_charts.draw(rows, [])
  assert "means of 5 steps" in figures
  assert len(readout["steps"]) == 200
  assert readout["steps"][:2] == (5, 10)
  assert readout["values"][0][:2] == [3.0, 8.0]  # mean of 1..5, of 6..10


def test_evaluations_are_never_averaged():
  rows = [{"step": s, "test/validity": 0.5} for s in range(1, 1001)]
  held_out = [{"step": s, "eval/test/validity": s / 10} for s in (2, 4, 997)]
  _, (readout,) = report_charts.draw(rows, held_out)
  training, evaluated = readout["values"]
  assert set(training) == {0.5}
  assert [x for x in evaluated if x is not None] == [0.4, 99.7]


def test_a_step_written_twice_counts_once_and_nan_is_a_gap():
  rows = [
    {"step": 1, "code/loss": 9.0},
    {"step": 2, "code/loss": "nan"},
    {"step": 3, "code/loss": 2.0},
    {"step": 1, "code/loss": 1.0},
  ]
  _, (readout,) = report_charts.draw(rows, [])
  assert readout["steps"] == (1, 3)
  assert readout["values"] == [[1.0, 2.0]]


@pytest.mark.parametrize(
  "low, high, expected",
  [
    (0, 1, [0, 0.5, 1]),
    (0, 60, [0, 20, 40, 60]),
    (-0.1, 0.1, [-0.1, -0.05, 0, 0.05, 0.1]),
    (5, 5, [5]),
  ],
)
def test_ticks_are_round_numbers(low, high, expected):
  np.testing.assert_allclose(report_charts._ticks(low, high, 4), expected)
