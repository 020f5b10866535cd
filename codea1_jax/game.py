"""The play of one step: what both policies write and what it earns them.

Letters: Q questions, M codes a question, N suites a code.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from codea1_jax import (
  grpo,
  metrics,
  parsing,
  problems,
  prompts,
  rewards,
  verification,
)
from codea1_jax.assembly import Run
from codea1_jax.mistake_book import MistakeBook
from codea1_jax.player import Player, Samples
from codea1_jax.run_log import Clock, describe
from codea1_jax.train_state import PolicyState, RunState, UpdateBatch
from codea1_jax.types import ParsedCode, Problem

# A seed is (run's seed, step, one of these).
CODE, TEST = 0, 1


@dataclasses.dataclass(frozen=True)
class Game:
  """What one step's play leaves to be learned, kept and shown."""

  code_batch: UpdateBatch
  test_batch: UpdateBatch
  book: MistakeBook
  metrics: dict[str, float]
  rollouts: list[dict[str, Any]]


def play(
  run: Run,
  state: RunState,
  coder: PolicyState,
  tester: PolicyState,
  clock: Clock,
) -> Game:
  """Code rollout, test rollout, verdicts, rewards, book, TopVar, advantages.

  Args:
    run: the parts of the run.
    state: gives the step and the book.
    coder: the policy that writes the codes.
    tester: the policy that writes the suites; the same one in self-play.
    clock: gets the stages' times.
  """
  config = run.config
  seed = (config.seed, state.step)
  batch = draw_problems(run, state.step)
  code_samples, codes = sample_codes(run, coder, batch, seed)
  suite_samples, suites = sample_suites(run, tester, batch, codes, seed)
  clock.lap("rollout")
  replayed = _replayed(run, state, batch)
  outcomes = verification.verify(batch, codes, suites, replayed, run.pool)
  clock.lap("sandbox")
  counts = verification.count(batch, outcomes, state.book)
  reward = rewards.compute(
    config.rewards.preset,
    counts,
    alpha=config.rewards.alpha,
    tests_per_suite=config.rollout.tests,
  )
  book = state.book
  if config.book.enabled:
    preset = config.rewards.preset
    book = book.update(verification.book_events(batch, outcomes, preset))
  selected = grpo.top_variance(
    reward.test, config.selection.top_k, mask=reward.test_mask
  )
  code_batch, code_numbers = prepare_groups(
    run, run.code, coder, code_samples, reward.code, reward.code_mask
  )
  test_batch, test_numbers = _prepare_suites(
    run, tester, suite_samples, reward, selected
  )
  clock.lap("score")
  numbers = {
    **prefixed("code", code_numbers),
    **prefixed("test", test_numbers),
    "code/prompt_cut_share": code_samples.prompt_cut_share,
    "test/prompt_cut_share": suite_samples.prompt_cut_share,
    **_game_metrics(outcomes, reward, counts, state.book, book),
  }
  rollouts = describe(
    batch, code_samples, codes, suite_samples, outcomes, reward, selected
  )
  return Game(code_batch, test_batch, book, numbers, rollouts)


def draw_problems(run: Run, step: int) -> tuple[Problem, ...]:
  """The questions of a step: a function of step and seed alone."""
  questions = run.config.rollout.questions
  return problems.batch(run.problems, step, questions, run.config.seed)


def sample_codes(
  run: Run, state: PolicyState, batch: Sequence[Problem], seed
) -> tuple[Samples, list[list[ParsedCode]]]:
  """M codes a question: the samples, and the programs [Q][M] in them."""
  preset = run.config.prompts.preset
  chats = [prompts.code_messages(p, preset=preset) for p in batch]
  samples = run.code.sample(state.params, chats, (*seed, CODE))
  codes = [
    [parsing.extract_code(c.text, problem.entry_point) for c in row]
    for problem, row in zip(batch, samples.completions)
  ]
  return samples, codes


def sample_suites(run: Run, state: PolicyState, batch, codes, seed):
  """N suites a code: samples [Q * M][N], (suite, non-printable) [Q][M][N]."""
  config = run.config
  chats = [
    prompts.test_messages(
      problem,
      code.source,
      config.rollout.tests,
      preset=config.prompts.preset,
      visibility=config.prompts.test_visibility,
    )
    for problem, row in zip(batch, codes)
    for code in row
  ]
  samples = run.test.sample(state.params, chats, (*seed, TEST))
  rows = iter(samples.completions)
  suites = [
    [
      [
        (
          parsing.parse_suite(
            c.text, problem.entry_point, config.rollout.tests
          ),
          parsing.nonprintable_share(c.text),
        )
        for c in next(rows)
      ]
      for _ in row
    ]
    for problem, row in zip(batch, codes)
  ]
  return samples, suites


def _replayed(run: Run, state: RunState, batch: Sequence[Problem]):
  """The book's tests of each question; none where the book is off."""
  book = run.config.book
  if not book.enabled:
    return [()] * len(batch)
  return [state.book.replay(p.id, book.replay, book.sampler) for p in batch]


def _prepare_suites(run: Run, state, samples: Samples, reward, selected):
  """The suites of each question's selected codes: one group a code."""
  codes = reward.test.shape[1]
  chosen = [q * codes + m for q, row in enumerate(selected) for m in row]
  flat = (-1, reward.test.shape[-1])
  picked = Samples(
    [samples.prompts[i] for i in chosen],
    [samples.completions[i] for i in chosen],
  )
  return prepare_groups(
    run,
    run.test,
    state,
    picked,
    reward.test.reshape(flat)[chosen],
    reward.test_mask.reshape(flat)[chosen],
  )


def prepare_groups(
  run: Run, player: Player, state: PolicyState, samples: Samples, reward, mask
) -> tuple[UpdateBatch, dict[str, float]]:
  """Group-normalized advantages and a scored batch of all groups' rows."""
  advantages = grpo.group_advantages(
    reward, mask=mask, norm_by_std=run.config.grpo.norm_by_std
  )
  advantages = np.asarray(advantages)
  batch, numbers = player.prepare(
    state.params,
    samples.rows(range(len(samples.prompts))),
    advantages.reshape(-1),
    mask.reshape(-1),
  )
  numbers |= metrics.summary_statistics(reward[mask], "reward")
  numbers["zero_variance_share"] = float((advantages == 0).all(-1).mean())
  return batch, numbers


def _game_metrics(outcomes, reward, counts, old_book, book) -> dict[str, float]:
  """Verdicts, validity, attack rate and the book's turnover of one step."""
  codes = [code for row in outcomes for code in row]
  verdicts = [c.load.status for c in codes if not c.load.passed]
  for code in codes:
    verdicts += [v.status for v in code.replayed_verdicts]
    for suite in code.suites:
      verdicts += [v.status for v in suite.verdicts if v is not None]
  shown = reward.test_mask
  attacked = shown & counts.code_valid[..., None]  # others fail by themselves
  share = {
    f"verdicts/{status}": verdicts.count(status) for status in set(verdicts)
  }
  numbers = {
    "code/valid_share": counts.code_valid[reward.code_mask],
    "test/validity": reward.validity[shown],
    "test/attack_rate": (counts.num_failed > 0)[attacked],
  }
  return {
    **{name: float(v.mean()) for name, v in numbers.items() if v.size},
    "test/failed_share": float(
      counts.num_failed[attacked].sum()
      / max(counts.num_valid[attacked].sum(), 1)
    ),
    "book/size": book.size,
    "book/questions": len(book.questions),
    "book/growth": book.size - old_book.size,
    "sandbox/masked": int(counts.masked.sum()),
    **share,
  }


def prefixed(prefix: str, numbers: dict[str, float]) -> dict[str, float]:
  """The same numbers under `prefix/`."""
  return {f"{prefix}/{name}": value for name, value in numbers.items()}
