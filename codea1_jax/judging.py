"""What a step's codes and suites are worth: verdicts, rewards, book, TopVar.

Everything between the texts that the policies wrote and the advantages: no
model and no device, so that a dump of rollouts can be judged again under other
settings (experiments/replay.py).

Letters: Q questions, M codes a question, N suites a code.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from codea1_jax import (
  counting,
  grpo,
  parsing,
  quality,
  rewards,
  verification,
)
from codea1_jax.book_update import Turnover
from codea1_jax.mistake_book import MistakeBook
from codea1_jax.rewards import Rewards, SuiteCounts
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import ParsedCode, ParsedSuite, Problem, TestCase
from codea1_jax.verification import CodeOutcome

SELECTIONS = ("topvar", "random", "all")

Suites = Sequence[Sequence[Sequence[tuple[ParsedSuite, float]]]]


@dataclasses.dataclass(frozen=True)
class Judgement:
  """What became of all codes and suites of some questions."""

  outcomes: list[list[CodeOutcome]]  # [Q][M]
  counts: SuiteCounts
  reward: Rewards
  selected: np.ndarray  # [Q, k] codes whose suites train the Test LLM
  book: MistakeBook  # after it
  turnover: Turnover  # of the book


def parse_codes(
  problems: Sequence[Problem], texts: Sequence[Sequence[str]]
) -> list[list[ParsedCode]]:
  """The programs [Q][M] in the Code LLM's completions."""
  return [
    [parsing.extract_code(text, problem.entry_point) for text in row]
    for problem, row in zip(problems, texts)
  ]


def parse_suites(
  problems: Sequence[Problem],
  texts: Sequence[Sequence[Sequence[str]]],
  num_tests: int,
) -> Suites:
  """The suites [Q][M][N] of at most K tests in the Test LLM's completions."""

  def parse(problem, text):
    suite = parsing.parse_suite(text, problem.entry_point, num_tests)
    return suite, parsing.nonprintable_share(text)

  return [
    [[parse(problem, text) for text in code] for code in row]
    for problem, row in zip(problems, texts)
  ]


def judge(
  config: Any,
  problems: Sequence[Problem],
  codes: Sequence[Sequence[ParsedCode]],
  suites: Suites,
  book: MistakeBook,
  pool: SandboxPool,
  seed: Sequence[int],
) -> Judgement:
  """Runs, counts and rewards what was written, and updates the book.

  Args:
    config: its `rollout.tests`, `rewards`, `quality`, `book` and `selection`.
    problems: [Q].
    codes: [Q][M].
    suites: [Q][M][N] of (suite, its completion's non-printable share).
    book: before it.
    pool: an open sandbox.
    seed: what samplers of the book and of the selection draw with.

  Returns:
    The judgement; `book` is unchanged in it where the book is off.
  """
  replayed, quarantined = _replayed(config.book, problems, book, pool, seed)
  outcomes = verification.verify(
    problems, codes, suites, replayed, pool, _reject(config.quality, book)
  )
  counts = counting.count(problems, outcomes, book)
  reward = rewards.compute(
    config.rewards.preset,
    counts,
    alpha=config.rewards.alpha,
    tests_per_suite=config.rollout.tests,
  )
  turnover = Turnover()
  if config.book.enabled:
    events = counting.book_events(
      problems, outcomes, config.rewards.preset, quarantined
    )
    book, turnover = book.updated(events)
  selected = select(config.selection, reward, seed)
  return Judgement(outcomes, counts, reward, selected, book, turnover)


def empty_book(config: Any) -> MistakeBook:
  """The book that a run starts with."""
  stale = config.quality.enabled and "stale" in config.quality.rules
  return MistakeBook(
    config.book.max_per_question,
    config.book.max_total,
    max_archive=config.book.max_archive,
    max_streaks=config.book.max_per_question if stale else 0,
  )


def select(config: Any, reward: Rewards, seed: Sequence[int]) -> np.ndarray:
  """The codes [Q, k] of each question whose suites train the Test LLM.

  Args:
    config: `kind`, one of SELECTIONS, and `top_k`, which `all` does not read.
    reward: of the step.
    seed: what `random` draws with.
  """
  num_questions, num_codes = reward.code.shape
  if config.kind == "topvar":
    return grpo.top_variance(reward.test, config.top_k, mask=reward.test_mask)
  orders = np.tile(np.arange(num_codes), (num_questions, 1))
  if config.kind == "all":
    return orders
  rng = np.random.default_rng(list(seed))
  return rng.permuted(orders, axis=1)[:, : config.top_k]


def join(judgements: Sequence[Judgement]) -> Judgement:
  """Several judgements of a step, one after the other, as one."""
  if len(judgements) == 1:
    return judgements[0]

  def stacked(records):
    return dataclasses.replace(
      records[0],
      **{
        field.name: np.concatenate([getattr(r, field.name) for r in records])
        for field in dataclasses.fields(records[0])
      },
    )

  return Judgement(
    [row for judgement in judgements for row in judgement.outcomes],
    stacked([judgement.counts for judgement in judgements]),
    stacked([judgement.reward for judgement in judgements]),
    np.concatenate([judgement.selected for judgement in judgements]),
    judgements[-1].book,
    Turnover.total([judgement.turnover for judgement in judgements]),
  )


def _replayed(config, problems, book, pool, seed):
  """The book's tests [Q] that codes face, and those that hold no longer."""
  if not config.enabled:
    return [()] * len(problems), ()
  drawn = [
    book.replay(
      problem.id,
      config.replay,
      config.sampler,
      seed=tuple(seed),
      refresh=config.refresh,
    )
    for problem in problems
  ]
  return verification.recheck(problems, drawn, pool)


def _reject(config, book: MistakeBook) -> verification.Reject | None:
  """The quality filter of the config; None where it is off."""
  if not config.enabled:
    return None

  def reject(problem: Problem, tests: Sequence[TestCase]) -> list[str]:
    return quality.rejected(
      config.rules,
      problem.ground_truth,
      problem.entry_point,
      tests,
      functools.partial(book.streak, problem.id),
      config.patience,
    )

  return reject
