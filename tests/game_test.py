"""What a step's verdicts say about both policies, by hand."""

import types

import numpy as np
import pytest

from codea1_jax import game, rewards
from codea1_jax.rewards import SuiteCounts
from codea1_jax.types import Status, Verdict
from codea1_jax.verification import CodeOutcome, SuiteOutcome


def judged(**changes):
  """One question, four codes with a suite each: the third does not load, the
  fourth met infrastructure."""
  fields = {
    "code_valid": [[True, True, False, True]],
    "num_valid": [[[4], [2], [4], [4]]],
    "num_invalid": [[[0], [2], [0], [0]]],
    "num_passed": [[[3], [2], [0], [0]]],
    "num_failed": [[[1], [0], [4], [4]]],
    "num_new_failed": [[[1], [0], [4], [4]]],
    "replayed_total": [[4, 4, 4, 4]],
    "replayed_passed": [[4, 1, 0, 0]],
    "nonprintable": [[[0.0], [0.0], [0.0], [0.0]]],
    "masked": [[[False], [False], [False], [True]]],
  }
  counts = SuiteCounts(
    **{k: np.array(v) for k, v in (fields | changes).items()}
  )
  reward = rewards.compute("paper", counts, alpha=0.5, tests_per_suite=4)
  return types.SimpleNamespace(counts=counts, reward=reward)


def test_rates_leave_out_what_does_not_count():
  assert game._rates(judged()) == pytest.approx(
    {
      "code/valid_share": 2 / 3,
      "code/suite_pass_rate": (3 / 4 + 2 / 2 + 0) / 3,
      "code/replay_pass_rate": (4 / 4 + 1 / 4 + 0) / 3,
      "test/validity": (1 + 1 / 2 + 1) / 3,
      "test/attack_rate": 1 / 2,
      "test/failed_share": 1 / 6,
    }
  )


def test_a_rate_of_nothing_is_no_number():
  nothing = np.zeros((1, 4), int)
  found = game._rates(judged(replayed_total=nothing, replayed_passed=nothing))
  assert "code/replay_pass_rate" not in found
  found = game._rates(judged(masked=np.ones((1, 4, 1), bool)))
  assert found == {"test/failed_share": 0.0}


def test_verdicts_count_what_ran():
  passed, failed = Verdict(Status.PASS), Verdict(Status.FAIL)
  suite = SuiteOutcome((), (), (), (passed, failed, None), 0)
  codes = [
    CodeOutcome(passed, (suite, suite), (), (failed,)),
    CodeOutcome(Verdict(Status.TIMEOUT), (), (), ()),
  ]
  assert game._verdicts(codes) == {
    "verdicts/pass": 2,
    "verdicts/fail": 3,
    "verdicts/timeout": 1,
  }
