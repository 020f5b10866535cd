"""pass@k and avg@k against counting, and intervals that cover."""

import itertools

import numpy as np
import pytest

from codea1_jax import scores


@pytest.mark.parametrize("samples", [1, 3, 6])
def test_pass_at_k_is_what_counting_gives(samples):
  for passed, k in itertools.product(range(samples + 1), range(1, samples + 1)):
    verdicts = [True] * passed + [False] * (samples - passed)
    draws = list(itertools.combinations(verdicts, k))
    counted = sum(map(any, draws)) / len(draws)
    assert scores.pass_at_k(samples, passed, k) == pytest.approx(counted)


@pytest.mark.parametrize("bad", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_impossible_counts_are_refused(bad):
  with pytest.raises(ValueError, match="pass_at_k"):
    scores.pass_at_k(*bad)


def test_a_table_over_problems():
  verdicts = [
    [True, True, False, False],
    [False, False, False, None],  # the infrastructure's: three samples
    [True, True, True, True],
    [None, None, None, None],
  ]
  table = scores.code_scores(verdicts, ks=(1, 2, 3, 8))
  assert list(table) == ["pass@1", "pass@2", "pass@3", "avg@3"]
  assert table["pass@1"].value == pytest.approx(100 * (0.5 + 0 + 1) / 3)
  assert table["pass@2"].value == pytest.approx(100 * (5 / 6 + 0 + 1) / 3)
  assert table["avg@3"].value == pytest.approx(50)
  assert table["pass@1"].count == 3
  with pytest.raises(ValueError, match="no verdicts"):
    scores.code_scores([[None]])


def test_intervals_cover_the_truth_as_often_as_they_say():
  rng = np.random.default_rng(0)
  covered = 0
  for trial in range(200):
    score = scores.mean_score(rng.random(60) < 0.4, seed=trial)
    assert score.low <= score.value <= score.high
    covered += score.low <= 40 <= score.high
  assert 0.88 <= covered / 200 <= 0.99
  assert scores.mean_score([1.0] * 9) == scores.Score(100, 100, 100, 9)


def test_ratios_of_sums():
  micro = scores.ratio_score(([1, 3, 0], [2, 4, 0]))
  assert micro.value == pytest.approx(100 * 4 / 6)
  assert micro.count == 2 and 50 <= micro.low <= micro.high <= 75
  whole = ([1, 1, 1], [1, 1, 1])
  product = scores.ratio_score(([1, 0, 1], [2, 2, 2]), ([0.5, 0, 0], [1, 0, 0]))
  assert product.value == pytest.approx(100 * (1 / 3) * 0.5)
  assert product.count == 1
  assert scores.ratio_score(whole, ([0, 0, 0], [0, 0, 0])) is None
  # Of a plain mean it is the same thing.
  values = [0.2, 0.9, 0.4, 0.4, 0.7]
  mean, ratio = scores.mean_score(values), scores.ratio_score((values, [1] * 5))
  assert ratio.value == pytest.approx(mean.value)
  assert abs(ratio.low - mean.low) < 3 and abs(ratio.high - mean.high) < 3
