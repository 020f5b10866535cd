"""Easier problems first: pass rates, and how often which problem is drawn."""

import copy
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from codea1_jax import curriculum, problems
from codea1_jax.curriculum import PassRates
from codea1_jax.types import Problem

DRAWS = 4000
RATES = PassRates({"0": (8.0, 8), "1": (0.0, 8)})  # rates 0.9 and 0.1
NINEFOLD = math.log(9) / 0.8  # strength that makes their weights 9 to 1


def many(n):
  return tuple(Problem(str(i), "q", "s", "f", "f = 1") for i in range(n))


def draw(n, step, size, seed, rates=RATES, strength=NINEFOLD, end_step=100):
  drawn = curriculum.draw(
    many(n), step, size, seed, rates, strength=strength, end_step=end_step
  )
  return [int(problem.id) for problem in drawn]


def share_of_first(steps, seeds, **how):
  """How often problem 0 of two is the one drawn."""
  drawn = [draw(2, t, 1, s, **how)[0] for t in steps for s in seeds]
  assert len(drawn) == DRAWS
  return drawn.count(0) / DRAWS


def near(probability):
  """Within four standard deviations of a share of DRAWS."""
  sigma = math.sqrt(probability * (1 - probability) / DRAWS)
  return pytest.approx(probability, abs=4 * sigma)


def test_rates_by_hand():
  assert PassRates().rate("q") == 0.5
  rates = PassRates().observe([("q", 1.5, 2), ("r", 0, 3), ("q", 1, 1)])
  assert dict(rates.questions) == {"q": (2.5, 3), "r": (0.0, 3)}
  assert rates.rate("q") == 3.5 / 5
  assert rates.rate("r") == 1 / 5
  again = rates.observe([("r", np.float32(0.25), np.int64(1))])
  assert again.questions["r"] == (0.25, 4)
  assert type(again.questions["r"][0]) is float
  assert again.questions["q"] == (2.5, 3)


def test_two_problems_are_drawn_in_proportion_to_their_weights():
  seeds = range(DRAWS)
  assert share_of_first([0], seeds) == near(9 / 10)
  # Half way the exponent is halved: weights 3 to 1.
  assert share_of_first([50], seeds) == near(3 / 4)
  assert share_of_first([0], seeds, strength=-NINEFOLD) == near(1 / 10)


def test_steps_of_one_seed_are_as_independent_as_seeds():
  steps = range(DRAWS)
  assert share_of_first(steps, [7], end_step=10**9) == near(9 / 10)


def test_three_problems_without_replacement():
  """Weights 9, 1 and 3: the hand-made sum over both orders of a pair."""
  rates = PassRates({**RATES.questions, "2": (3.0, 6)})  # rate 0.5
  weights = [9, 1, 3]
  drawn = [draw(3, 0, 2, seed, rates) for seed in range(DRAWS)]
  for left_out in range(3):
    a, b = (weights[i] for i in range(3) if i != left_out)
    both = a / 13 * b / (13 - a) + b / 13 * a / (13 - b)
    found = sum(left_out not in pair for pair in drawn) / DRAWS
    assert found == near(both)


def test_uniform_without_strength_and_after_the_end():
  seeds = range(DRAWS)
  assert share_of_first([0], seeds, strength=0.0) == near(1 / 2)
  for step in (100, 101, 10_000):
    uniform = [draw(9, step, 4, s, strength=0.0) for s in range(20)]
    assert [draw(9, step, 4, s, strength=99.0) for s in range(20)] == uniform
  assert [draw(9, 0, 4, s, end_step=0) for s in range(20)] == [
    draw(9, 0, 4, s, strength=0.0) for s in range(20)
  ]
  # A step before the end, the rates still count.
  before = [draw(9, 99, 4, s, strength=2_000.0) for s in range(20)]
  assert all(taken[0] == 0 and 1 not in taken for taken in before)


@hypothesis.settings(max_examples=80, deadline=None)
@hypothesis.given(
  st.integers(1, 9), st.integers(1, 9), st.integers(0, 300), st.integers(0, 9)
)
def test_draws_are_pure_and_distinct(n, size, step, seed):
  size = min(size, n)
  taken = draw(n, step, size, seed)
  assert len(taken) == len(set(taken)) == size
  assert draw(n, step, size, seed) == taken
  assert sorted(draw(n, step, n, seed)) == list(range(n))
  assert draw(n, step, n, seed)[:size] == taken


def test_draws_depend_on_step_seed_and_rates():
  first = draw(50, 7, 20, 1)
  assert draw(50, 8, 20, 1) != first
  assert draw(50, 7, 20, 2) != first
  assert draw(50, 7, 20, 1, PassRates({"3": (90.0, 90)}), 50.0)[0] == 3


def test_impossible_draws_are_refused_like_impossible_batches():
  for step, size, seed in [(0, 0, 0), (0, 4, 0), (-1, 1, 0), (0, 1, -1)]:
    with pytest.raises(ValueError) as error:
      draw(3, step, size, seed)
    with pytest.raises(ValueError) as wanted:
      problems.batch(many(3), step, size, seed)
    assert str(error.value) == str(wanted.value)
  for strength in (math.nan, math.inf):
    with pytest.raises(ValueError, match=f"strength is {strength}"):
      draw(3, 0, 1, 0, strength=strength)


@pytest.mark.parametrize(
  ("passed", "seen"), [(-0.5, 1), (1.5, 1), (math.nan, 1), (0, -1)]
)
def test_impossible_observations_are_refused(passed, seen):
  with pytest.raises(ValueError, match=f"'q': passed {passed} is not in 0"):
    PassRates().observe([("q", passed, seen)])
  with pytest.raises(ValueError, match=f"'q': passed {passed} is not in 0"):
    PassRates({"q": (passed, seen)})


def test_rates_cannot_be_changed():
  outer = {"q": (1.0, 1)}
  rates = PassRates(outer)
  outer["q"] = (0.0, 1)
  assert rates.rate("q") == 2 / 3
  with pytest.raises(TypeError):
    rates.questions["q"] = (0.0, 1)


@pytest.mark.parametrize(
  "text",
  ["", "[]", "3", '{"q": 1}', '{"q": [1]}', '{"q": [2, 1]}', '{"q": [1, 1.5]}'],
)
def test_from_json_refuses_what_are_no_rates(text):
  with pytest.raises(ValueError, match="not pass rates"):
    PassRates.from_json(text)


observations = st.lists(
  st.integers(0, 9).flatmap(
    lambda seen: st.tuples(
      st.sampled_from(["a", "b", "\ud800"]),
      st.floats(0, seen, allow_subnormal=False),
      st.just(seen),
    )
  ),
  max_size=9,
)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(observations, st.randoms(use_true_random=False))
def test_observing_is_pure_and_knows_no_order(rows, random):
  start = PassRates({"a": (0.1, 1)})
  text, before = start.to_json(), copy.deepcopy(rows)
  rates = start.observe(rows)
  assert (start.to_json(), rows) == (text, before)
  random.shuffle(rows)
  shuffled = start.observe(rows)
  assert shuffled == rates
  assert shuffled.to_json() == rates.to_json()
  assert PassRates.from_json(rates.to_json()) == rates
  one_by_one = start
  for row in rows:
    one_by_one = one_by_one.observe([row])
  for question_id in ("a", "b"):
    assert one_by_one.rate(question_id) == pytest.approx(
      rates.rate(question_id), rel=1e-12
    )
