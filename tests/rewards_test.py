"""Verdict counts -> rewards."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from codea1_jax import rewards

FIXTURES = (
  pathlib.Path(__file__).parents[2]
  / "shared"
  / "fixtures"
  / "reference_fixtures.json"
)
needs_fixtures = pytest.mark.skipif(
  not FIXTURES.exists(), reason="the paper's fixtures are not in this checkout"
)
PER_CODE = ("code_valid", "replayed_total", "replayed_passed")


def counts(shape=(1, 1, 1), **values):
  """A valid code with two of four valid tests failed; `values` override."""
  defaults = {
    "code_valid": True,
    "num_valid": 4,
    "num_invalid": 0,
    "num_passed": 2,
    "num_failed": 2,
    "num_new_failed": 0,
    "replayed_total": 0,
    "replayed_passed": 0,
    "nonprintable": 0.0,
    "masked": False,
  }
  arrays = {
    name: np.broadcast_to(
      np.asarray(values.get(name, default)),
      shape[:2] if name in PER_CODE else shape,
    )
    for name, default in defaults.items()
  }
  return rewards.SuiteCounts(**arrays)


def compute(preset="paper", alpha=0.5, k=4, **values):
  return rewards.compute(
    preset, counts(**values), alpha=alpha, tests_per_suite=k
  )


@needs_fixtures
def test_paper_preset_matches_the_published_program():
  cases = json.loads(FIXTURES.read_text())["reward_formula"]
  assert len(cases) == 260
  for case in cases:
    k = case["tests_per_suite"]
    failed = case["passed"][:k].count(False)
    found = compute(
      alpha=case["alpha"],
      k=k,
      code_valid=case["code_is_valid"],
      num_valid=case["num_valid"],
      num_invalid=case["num_invalid"],
      num_passed=sum(case["passed"]),
      num_failed=failed,
      replayed_total=case["replayed_total"],
      replayed_passed=case["replayed_passed"],
      nonprintable=case["nonprintable_ratio"],
    )
    assert found.code.item() == pytest.approx(case["code_reward"], abs=1e-5)
    assert found.test.item() == pytest.approx(case["test_reward"], abs=1e-5)


@needs_fixtures
def test_paper_preset_matches_the_published_evaluation_of_suites():
  cases = json.loads(FIXTURES.read_text())["evaluation"]
  assert len(cases) == 9
  for case in cases:
    suites = case["suite_results"]
    found = compute(
      shape=(1, 1, len(suites)),
      alpha=case["alpha"],
      k=8,
      code_valid=case["code_is_valid"],
      num_valid=[len(s["valid_tests"]) for s in suites],
      num_invalid=[s["num_invalid"] for s in suites],
      num_passed=[s["num_passed"] for s in suites],
      num_failed=[len(s["failing_tests"]) for s in suites],
      replayed_total=case["replayed_total"],
      replayed_passed=len(case["replayed_passed"]),
    )
    np.testing.assert_allclose(
      found.test[0, 0], [s["test_reward"] for s in suites], atol=1e-5
    )
    np.testing.assert_allclose(
      found.code_per_suite[0, 0], [s["code_reward"] for s in suites], atol=1e-5
    )
    assert found.code.item() == pytest.approx(case["code_reward"], abs=1e-5)


def test_hand_computed_paper_rewards():
  # g 3/4, f 1/4, b 1/2; R_val min(1, 1 - 1/4); adv (1/4 - 1/2 + 1) / 2.
  found = compute(
    num_passed=3,
    num_failed=1,
    num_invalid=1,
    replayed_total=2,
    replayed_passed=1,
    nonprintable=0.25,
  )
  assert found.validity.item() == 0.75
  assert found.code.item() == (0.75 + 0.5) / 2
  assert found.test.item() == 0.5 * 0.75 + 0.5 * 0.375 - 0.25
  assert {a.dtype for a in (found.code, found.test, found.validity)} == {
    np.dtype("float32")
  }


def test_more_than_k_tests_count_in_validity_and_pass_rate_only():
  found = compute(num_valid=8, num_passed=2, num_failed=3, alpha=0.0)
  assert found.validity.item() == 1
  assert found.code.item() == 0.25
  assert found.test.item() == 0.75


def test_corrected_varies_inside_a_group_where_the_paper_does_not():
  values = {
    "shape": (1, 1, 2),
    "num_new_failed": [0, 2],
    "replayed_total": 8,
    "replayed_passed": 4,
    "alpha": 0.0,
  }
  paper, corrected = (compute(p, **values) for p in ("paper", "corrected"))
  assert np.ptp(paper.test) == 0
  np.testing.assert_array_equal(corrected.test, [[[0.0, 0.5]]])
  np.testing.assert_array_equal(corrected.code, paper.code)


def test_replay_halves_the_weight_of_failures_in_paper():
  values = {"shape": (1, 1, 2), "num_failed": [0, 2], "alpha": 0.0}
  without = compute(**values).test
  with_replay = compute(**values, replayed_total=8, replayed_passed=3).test
  assert np.ptp(with_replay) == np.ptp(without) / 2


def test_composite_by_hand():
  found = compute(
    "composite",
    shape=(1, 1, 4),
    num_valid=[4, 2, 0, 0],
    num_passed=[0, 1, 0, 0],
    num_failed=[4, 1, 0, 0],
    num_invalid=[0, 1, 0, 9],
    nonprintable=0.3,
  )
  # (4 * 0.6 + 4 * 0.4) / 4; (2 * 0.6 + 0.4 - 0.5) / 4; none; clipped.
  np.testing.assert_allclose(found.test[0, 0], [1, 0.275, 0, -0.5], rtol=1e-6)
  invalid = compute("composite", code_valid=False, num_passed=0)
  assert (invalid.code.item(), invalid.test.item()) == (-1, 0)


def test_an_invalid_code_gives_nothing_but_the_penalty():
  # Passes that an invalid code should not have do not help it either.
  found = compute(
    code_valid=False, num_passed=4, num_failed=4, nonprintable=0.25
  )
  assert found.code.item() == 0
  assert found.test.item() == -0.25
  assert found.validity.item() == 1


@pytest.mark.parametrize("preset", rewards.PRESETS)
def test_masked_suites_count_nowhere(preset):
  masked = np.array([[[False, True], [True, True]]])
  values = {"shape": (1, 2, 2), "num_passed": [2, 1], "num_valid": [4, 4]}
  found = compute(
    preset,
    **values,
    masked=masked,
    code_valid=[True, False],
    nonprintable=np.where(masked, np.nan, 0.0),
  )
  np.testing.assert_array_equal(found.test_mask, ~masked)
  np.testing.assert_array_equal(found.code_mask, [[True, False]])
  # The mean is over the one suite that counts, not over both.
  np.testing.assert_array_equal(found.code, [[0.5, 0.0]])
  for array in (found.test, found.code_per_suite, found.validity):
    assert not array[masked].any()
    assert array[0, 0, 0] > 0


def test_codes_and_suites_do_not_mix():
  rng = np.random.default_rng(0)
  shape = (2, 3, 4)
  valid = rng.integers(0, 5, shape)
  passed = rng.integers(0, valid + 1)
  values = {
    "num_valid": valid,
    "num_passed": passed,
    "num_failed": valid - passed,
    "num_invalid": rng.integers(0, 5, shape),
    "code_valid": rng.random(shape[:2]) < 0.7,
    "replayed_total": np.full(shape[:2], 8),
    "replayed_passed": rng.integers(0, 9, shape[:2]),
  }
  whole = compute(shape=shape, **values)
  for q, m, n in np.ndindex(shape):
    alone = compute(
      **{k: v[q, m] if v.ndim == 2 else v[q, m, n] for k, v in values.items()}
    )
    assert alone.test.item() == whole.test[q, m, n]
    assert alone.code_per_suite.item() == whole.code_per_suite[q, m, n]
  np.testing.assert_allclose(whole.code, whole.code_per_suite.mean(-1))


def test_enters_book():
  failed = np.array([True, False])
  for preset in ("paper", "corrected"):
    np.testing.assert_array_equal(rewards.enters_book(preset, failed), failed)
  np.testing.assert_array_equal(
    rewards.enters_book("composite", failed), [True, True]
  )
  with pytest.raises(ValueError, match="unknown preset"):
    rewards.enters_book("x", failed)


def test_arguments_that_make_no_sense_are_refused():
  with pytest.raises(ValueError, match="'x'; known: paper, corrected, comp"):
    compute("x")
  with pytest.raises(ValueError, match=r"alpha is 1\.5"):
    compute(alpha=1.5)
  with pytest.raises(ValueError, match="tests_per_suite is 0"):
    compute(k=0)
  with pytest.raises(ValueError, match=r"num_passed exceeds counts\.num_valid"):
    compute(num_passed=5)
  with pytest.raises(ValueError, match="replayed_passed exceeds"):
    compute(replayed_passed=1)
  good = counts()
  for name, shape in (("num_valid", (1, 1)), ("code_valid", (1, 1, 1))):
    bad = dataclasses.replace(good, **{name: np.ones(shape, int)})
    with pytest.raises(ValueError, match=f"counts.{name} has shape"):
      rewards.compute("paper", bad, alpha=0.5, tests_per_suite=4)
