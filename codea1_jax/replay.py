"""Rollout dumps judged again without a model, under any settings.

A dump (rollouts.jsonl.zst of a workdir) holds every text of a step. Parsing,
execution, rewards, the book, TopVar and advantages follow from the texts; what
a policy would have written under other settings does not.

Letters: Q questions, M codes a question, N suites a code.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from codea1_jax import dumps, grpo, judging
from codea1_jax.judging import Judgement
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem

_PROBLEM_FIELDS = (
  "id", "question", "signature", "entry_point", "ground_truth"
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DumpedRound:
  """The texts of one round of a step; most steps have one round."""

  seed: tuple[int, ...]  # what the run judged it with
  num_tests: int  # K, what the suites were asked for
  problems: tuple[Problem, ...]  # [Q]
  codes: list[list[str]]  # [Q][M] completions of the Code LLM
  suites: list[list[list[str]]]  # [Q][M][N] completions of the Test LLM


@dataclasses.dataclass(frozen=True)
class DumpedStep:
  """The texts of one step."""

  step: int
  rounds: tuple[DumpedRound, ...]


@dataclasses.dataclass(frozen=True)
class ReplayedStep:
  """What a step is worth under some settings."""

  step: int
  judgement: Judgement
  code_advantages: np.ndarray  # [Q, M]
  test_advantages: np.ndarray  # [Q, M, N]; only selected codes' rows train


def load_dump(path: str | os.PathLike) -> list[DumpedStep]:
  """The steps of a dump, in their order.

  Raises:
    OSError, ValueError: no such file, or "file: step 3: what is wrong".
  """
  steps = []
  for step, records in itertools.groupby(
    dumps.read_dump(path), lambda row: row.get("step")
  ):
    try:
      rounds = itertools.groupby(
        records, lambda row: (tuple(row["seed"]), row["num_tests"])
      )
      steps.append(
        DumpedStep(
          step, tuple(_round(*key, list(rows)) for key, rows in rounds)
        )
      )
    except (KeyError, TypeError) as error:
      raise ValueError(
        f"{path}: step {step}: no rollout record: {error!r}"
      ) from error
  if not steps:
    raise ValueError(f"{path}: no rollouts")
  return steps


def _round(seed, num_tests: int, records: Sequence[dict]) -> DumpedRound:
  return DumpedRound(
    seed,
    num_tests,
    tuple(
      Problem(**{name: r["problem"][name] for name in _PROBLEM_FIELDS})
      for r in records
    ),
    [[code["text"] for code in r["codes"]] for r in records],
    [
      [[suite["text"] for suite in code["suites"]] for code in r["codes"]]
      for r in records
    ],
  )


def replay(
  config: Any, steps: Sequence[DumpedStep], pool: SandboxPool
) -> Iterator[ReplayedStep]:
  """Judges the steps one after the other, from an empty book on.

  Args:
    config: a run's config; of its fields those that `judging.judge` reads,
      `grpo.norm_by_std` and `grpo.std`. Seeds are the dump's.
    steps: of a dump. Where it leaves out steps, the book misses what those
      would have brought.
    pool: an open sandbox.

  Raises:
    ValueError: the suites were asked for another number of tests than
      `rollout.tests`: no policy wrote these texts under that setting.
  """
  for dumped in steps:
    for played in dumped.rounds:
      if played.num_tests != config.rollout.tests:
        raise ValueError(
          f"rollout.tests is {config.rollout.tests}, but the suites of the"
          f" dump's step {dumped.step} were asked for {played.num_tests} tests"
        )
  return _replay(config, steps, pool)


def _replay(config, steps, pool) -> Iterator[ReplayedStep]:
  book = judging.empty_book(config)
  for dumped in steps:
    judgements = []
    for played in dumped.rounds:
      judgements.append(_judge(config, played, book, pool))
      book = judgements[-1].book
    judgement = judging.join(judgements)
    reward = judgement.reward
    how = {"norm_by_std": config.grpo.norm_by_std, "std": config.grpo.std}
    yield ReplayedStep(
      dumped.step,
      judgement,
      grpo.group_advantages(reward.code, mask=reward.code_mask, **how),
      grpo.group_advantages(reward.test, mask=reward.test_mask, **how),
    )


def _judge(config, played: DumpedRound, book, pool) -> Judgement:
  return judging.judge(
    config,
    played.problems,
    judging.parse_codes(played.problems, played.codes),
    judging.parse_suites(played.problems, played.suites, config.rollout.tests),
    book,
    pool,
    played.seed,
  )


def difference(ours: ReplayedStep, theirs: ReplayedStep) -> dict[str, float]:
  """How one step differs between two settings.

  Returns:
    step; mean rewards of both sides; for each policy the correlation of its
    advantages and the share of samples whose advantage changes sign; the share
    of selected codes that differ; both books' sizes and their common tests.
  """
  left, right = ours.judgement, theirs.judgement
  books = [_book_tests(judgement) for judgement in (left, right)]
  return {
    "step": ours.step,
    "code reward": _mean(left.reward.code, left.reward.code_mask),
    "code reward, other": _mean(right.reward.code, right.reward.code_mask),
    "test reward": _mean(left.reward.test, left.reward.test_mask),
    "test reward, other": _mean(right.reward.test, right.reward.test_mask),
    **_compare("code", ours.code_advantages, theirs.code_advantages),
    **_compare("test", ours.test_advantages, theirs.test_advantages),
    "selected elsewhere": _selected_elsewhere(left.selected, right.selected),
    "book": len(books[0]),
    "book, other": len(books[1]),
    "book, common": len(books[0] & books[1]),
  }


def _mean(reward: np.ndarray, mask: np.ndarray) -> float:
  return float(reward[mask].mean()) if mask.any() else np.nan


def _compare(role: str, ours: np.ndarray, theirs: np.ndarray):
  """Correlation and changed signs of two sets of advantages."""
  ours, theirs = ours.ravel(), theirs.ravel()
  constant = ours.std() == 0 or theirs.std() == 0
  correlation = np.nan if constant else np.corrcoef(ours, theirs)[0, 1]
  return {
    f"{role} correlation": float(correlation),
    f"{role} signs changed": float((np.sign(ours) != np.sign(theirs)).mean()),
  }


def _selected_elsewhere(ours: np.ndarray, theirs: np.ndarray) -> float:
  """Share of our selected codes that the other side does not select."""
  found = [np.isin(a, b) for a, b in zip(ours, theirs)]
  return float(1 - np.concatenate(found).mean())


def _book_tests(judgement: Judgement) -> set[tuple[str, str]]:
  return {
    (question_id, entry.test.source)
    for question_id, entries in judgement.book.questions.items()
    for entry in entries
  }


def record(differences: Sequence[dict[str, float]]) -> str:
  """The differences as JSON lines; a correlation that is none is null."""
  return "".join(
    json.dumps({k: None if v != v else v for k, v in row.items()}) + "\n"
    for row in differences
  )
