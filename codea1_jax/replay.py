"""Rollout dumps judged again without a model, under any settings.

A dump (rollouts.jsonl of a workdir) holds every text of a step. Parsing,
execution, rewards, the book, TopVar and advantages follow from the texts; what
a policy would have written under other settings does not.

Letters: Q questions, M codes a question, N suites a code.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from codea1_jax import grpo, jsonl, judging
from codea1_jax.judging import Judgement
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem

_PROBLEM_FIELDS = (
  "id", "question", "signature", "entry_point", "ground_truth"
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DumpedStep:
  """The texts of one step."""

  step: int
  problems: tuple[Problem, ...]  # [Q]
  codes: list[list[str]]  # [Q][M] completions of the Code LLM
  suites: list[list[list[str]]]  # [Q][M][N] completions of the Test LLM


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
  rows = jsonl.read_jsonl(path)
  if not rows:
    raise ValueError(f"{path}: no rollouts")
  by_step: dict[int, list[dict]] = {}
  for row in rows:
    by_step.setdefault(row.get("step"), []).append(row)
  steps = []
  for step, records in by_step.items():
    try:
      steps.append(_dumped_step(step, records))
    except (KeyError, TypeError) as error:
      raise ValueError(
        f"{path}: step {step}: no rollout record: {error!r}"
      ) from error
  return steps


def _dumped_step(step: int, records: Sequence[dict]) -> DumpedStep:
  return DumpedStep(
    step,
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
    config: a run's config; of its fields those that `judging.judge` reads, and
      `seed`, `grpo.norm_by_std` and `grpo.std`.
    steps: of a dump. Where it leaves out steps, the book misses what those
      would have brought; the rounds of a refilled step are judged as one.
    pool: an open sandbox.
  """
  book = judging.empty_book(config)
  for dumped in steps:
    judgement = judging.judge(
      config,
      dumped.problems,
      judging.parse_codes(dumped.problems, dumped.codes),
      judging.parse_suites(
        dumped.problems, dumped.suites, config.rollout.tests
      ),
      book,
      pool,
      (config.seed, dumped.step),
    )
    book = judgement.book
    reward = judgement.reward
    how = {"norm_by_std": config.grpo.norm_by_std, "std": config.grpo.std}
    yield ReplayedStep(
      dumped.step,
      judgement,
      grpo.group_advantages(reward.code, mask=reward.code_mask, **how),
      grpo.group_advantages(reward.test, mask=reward.test_mask, **how),
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
