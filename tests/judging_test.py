"""Texts -> verdicts, rewards, book and selection, through the real sandbox."""

import numpy as np
import pytest
from small_runs import make_config

from codea1_jax import judging, parsing, rewards, verification
from codea1_jax.book_update import Turnover
from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem, TestCase

LARGEST = Problem(
  id="largest",
  question="Return the largest number of xs, None of an empty list.",
  signature="def largest(xs):",
  entry_point="largest",
  ground_truth="def largest(xs):\n  return max(xs) if xs else None",
)
RIGHT = "def largest(xs):\n  return max(xs, default=None)"
WRONG = "def largest(xs):\n  return max(xs)"  # raises for []
EMPTY = TestCase("largest([])", "None")


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, allow_weak_isolation=True) as opened:
    yield opened


def judge(config, codes, suites, book, pool, seed=(0, 0)):
  """One question, codes as sources, suites [M][N] as lists of asserts."""
  parsed = [
    [
      (parsing.parse_suite("\n".join(s), "largest", config.rollout.tests), 0.0)
      for s in row
    ]
    for row in suites
  ]
  programs = [parsing.extract_code(code, "largest") for code in codes]
  return judging.judge(
    config, [LARGEST], [programs], [parsed], book, pool, seed
  )


def test_a_step_by_hand(pool):
  config = make_config()
  breaking = ["assert largest([]) == None", "assert largest([1, 2]) == 2"]
  harmless = ["assert largest([3]) == 3"]
  got = judge(
    config,
    [RIGHT, WRONG],
    [[breaking, harmless], [breaking, harmless]],
    judging.empty_book(config),
    pool,
  )
  # K = 4, alpha 0.5, nothing replayed: 0.5 valid / 4 + 0.5 failed / 4.
  assert got.reward.test.tolist() == [[[0.25, 0.125], [0.375, 0.125]]]
  assert got.reward.code.tolist() == [[1.0, 0.75]]
  assert got.selected.tolist() == [[1]]  # the suites of the wrong code differ
  assert [e.test for e in got.book.entries("largest")] == [EMPTY]
  assert got.turnover == Turnover(added=1)
  twice = judging.join([got, got])
  assert twice.turnover == Turnover(added=2)


def test_replayed_tests_count_and_are_resolved(pool):
  config = make_config()
  book = MistakeBook().update([BookEvent("largest", newly_failed=(EMPTY,))])
  harmless = [["assert largest([3]) == 3"]]
  got = judge(config, [WRONG], [harmless], book, pool)
  assert got.reward.code.tolist() == [[0.5]]  # (1 + 0) / 2
  assert got.book.size == 1
  got = judge(config, [RIGHT], [harmless], book, pool)
  assert got.reward.code.tolist() == [[1.0]]
  assert got.book.size == 0
  off = judge(
    make_config(**{"book.enabled": False}), [WRONG], [harmless], book, pool
  )
  assert off.reward.code.tolist() == [[1.0]] and off.book is book
  assert got.turnover == Turnover(resolved=1) and off.turnover == Turnover()


def test_a_test_that_the_ground_truth_contradicts_goes_to_quarantine(pool):
  config = make_config()
  wrong = TestCase("largest([1])", "2")
  raising = TestCase("largest(7)", "7")
  book = MistakeBook().update(
    [BookEvent("largest", newly_failed=(wrong, EMPTY, raising))]
  )
  got = judge(config, [RIGHT], [[["assert largest([3]) == 3"]]], book, pool)
  assert [v.passed for v in got.outcomes[0][0].replayed_verdicts] == [True]
  kept = dict(got.book.quarantine["largest"])
  assert "returns 1" in kept[wrong] and "error" in kept[raising]
  assert got.book.size == 0  # EMPTY was passed, the others are out
  again = got.book.update([BookEvent("largest", newly_failed=(wrong,))])
  assert again.size == 0


def test_a_resolved_test_is_drawn_back_and_returns_if_it_fails(pool):
  config = make_config(**{"book.max_archive": 4, "book.refresh": 1})
  book = judging.empty_book(config).update(
    [BookEvent("largest", newly_failed=(EMPTY,))]
  )
  harmless = [["assert largest([3]) == 3"]]
  resolved = judge(config, [RIGHT], [harmless], book, pool).book
  assert resolved.size == 0 and resolved.archive["largest"] == (EMPTY,)
  back = judge(config, [WRONG], [harmless], resolved, pool).book
  assert [(e.test, e.frequency) for e in back.entries("largest")] == [
    (EMPTY, 1)
  ]


def test_the_quality_filter_makes_tests_invalid(pool):
  suite = [
    "assert largest([5]) == 5",
    "assert largest(xs=[5]) == 5",  # the same input
    "assert largest([]) == None",
  ]
  plain = judge(make_config(), [WRONG], [[suite]], MistakeBook(), pool)
  assert plain.counts.num_valid.tolist() == [[[3]]]
  config = make_config(
    **{"quality.enabled": True, "quality.rules": ("duplicate", "stale")}
  )
  book = judging.empty_book(config)
  got = judge(config, [WRONG], [[suite]], book, pool)
  assert got.counts.num_valid.tolist() == [[[2]]]
  assert got.counts.num_invalid.tolist() == [[[1]]]
  assert got.outcomes[0][0].suites[0].num_rejected == 1
  config.quality.patience = 2
  for _ in range(2):  # every code passes [5] twice in a row
    book = judge(config, [WRONG], [[suite]], book, pool).book
  stale = judge(config, [WRONG], [[suite]], book, pool)
  assert stale.counts.num_valid.tolist() == [[[1]]]  # [] still breaks a code
  assert stale.outcomes[0][0].suites[0].rejected[0] == "stale"


def test_a_stale_test_that_breaks_a_code_counts_again(pool):
  config = make_config(
    **{
      "quality.enabled": True,
      "quality.rules": ("stale",),
      "quality.patience": 2,
    }
  )
  book, suite = judging.empty_book(config), ["assert largest([]) == None"]
  for _ in range(2):
    book = judge(config, [RIGHT], [[suite]], book, pool).book
  assert book.streak("largest", EMPTY.call) == 2
  regression = judge(config, [WRONG], [[suite]], book, pool)
  assert regression.counts.num_valid.tolist() == [[[0]]]  # the tester's loss
  assert regression.book.streak("largest", EMPTY.call) == 0
  assert [e.test for e in regression.book.entries("largest")] == [EMPTY]
  after = judge(config, [WRONG], [[suite]], regression.book, pool)
  assert after.counts.num_valid.tolist() == [[[1]]]


def test_composite_takes_valid_tests_into_the_book(pool):
  config = make_config(**{"rewards.preset": "composite"})
  suite = ["assert largest([5]) == 5", "assert largest([]) == None"]
  got = judge(config, [WRONG], [[suite]], judging.empty_book(config), pool)
  entries = {e.test.call: e for e in got.book.entries("largest")}
  assert entries["largest([5])"].quality == pytest.approx(0.6)
  assert entries["largest([])"].quality == 1.0


def reward_of(test):
  test = np.array(test, np.float32)
  return rewards.Rewards(
    code=np.zeros(test.shape[:2], np.float32),
    code_per_suite=np.zeros_like(test),
    test=test,
    validity=np.zeros_like(test),
    code_mask=np.ones(test.shape[:2], bool),
    test_mask=np.ones(test.shape, bool),
  )


def test_selections():
  reward = reward_of([[[0, 0], [0, 1], [0, 0.5]]] * 40)
  config = make_config().selection
  assert judging.select(config, reward, (0,)).tolist() == [[1]] * 40
  config.update(kind="all")
  assert judging.select(config, reward, (0,)).tolist() == [[0, 1, 2]] * 40
  config.update(kind="random", top_k=2)
  drawn = judging.select(config, reward, (0, 5))
  assert drawn.shape == (40, 2) and (drawn[:, 0] != drawn[:, 1]).all()
  assert set(drawn.ravel()) == {0, 1, 2}
  assert (judging.select(config, reward, (0, 5)) == drawn).all()
  assert (judging.select(config, reward, (0, 6)) != drawn).any()


def test_joined_judgements_are_those_of_all_questions(pool):
  config = make_config()
  suites = [[["assert largest([]) == None"]], [["assert largest([2]) == 2"]]]
  first = judge(
    config, [RIGHT, WRONG], suites, judging.empty_book(config), pool
  )
  second = judge(config, [WRONG, RIGHT], suites, first.book, pool, (0, 0, 1))
  both = judging.join([first, second])
  assert both.reward.test.shape == (2, 2, 1) and both.book is second.book
  assert both.reward.code.tolist() == (
    first.reward.code.tolist() + second.reward.code.tolist()
  )
  assert both.outcomes == first.outcomes + second.outcomes
  assert both.selected.shape == (2, 1)


def test_recheck_leaves_out_what_infrastructure_kept_from_running():
  class Broken:
    def oracle(self, jobs):
      return [
        verification_result(job, ["infrastructure", "pass"]) for job in jobs
      ]

  def verification_result(job, statuses):
    from codea1_jax.sandbox import JobResult
    from codea1_jax.types import Status, Verdict

    calls = tuple(Verdict(Status(s), "None") for s in statuses)
    return JobResult(Verdict(Status.PASS), calls, 0.0)

  other = TestCase("largest([1])", "None")
  kept, out = verification.recheck([LARGEST], [(EMPTY, other)], Broken())
  assert kept == [(other,)] and out == [()]
