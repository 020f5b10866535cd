"""The play of one step: what both policies write and what it earns them.

Letters: Q questions, M codes a question, N suites a code.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from codea1_jax import (
  curriculum,
  dump_records,
  evaluation,
  groups,
  judging,
  problems,
  writing,
)
from codea1_jax.assembly import Run
from codea1_jax.curriculum import PassRates
from codea1_jax.judging import Judgement
from codea1_jax.mistake_book import MistakeBook
from codea1_jax.player import Samples, join_samples
from codea1_jax.train_state import PolicyState, RunState, UpdateBatch
from codea1_jax.types import ParsedCode, Problem
from codea1_jax.usage import Clock

_SEEDS = 2**32  # more than there are seeds of runs
_ROUND_SIZES = 4  # of rounds that refill: each is compiled by itself


@dataclasses.dataclass(frozen=True)
class Game:
  """What one step's play leaves to be learned, kept and shown."""

  code_batch: UpdateBatch
  test_batch: UpdateBatch
  book: MistakeBook
  pass_rates: PassRates
  metrics: dict[str, float]
  rollouts: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Round:
  """What both policies wrote for some questions, and what it is worth."""

  seed: tuple[int, ...]  # the run's, the step, and the round but for the first
  problems: tuple[Problem, ...]  # [Q]
  code_samples: Samples
  codes: list[list[ParsedCode]]  # [Q][M]
  suite_samples: Samples
  judgement: Judgement


def play(
  run: Run,
  state: RunState,
  coder: PolicyState,
  tester: PolicyState,
  clock: Clock,
) -> Game:
  """Code rollout, test rollout, verdicts, rewards, book, TopVar, advantages.

  Where zero-variance groups are dropped, further rounds (up to
  `selection.refill`) play as many questions as are missing.

  Args:
    run: the parts of the run.
    state: gives the step, the book and the pass rates.
    coder: the policy that writes the codes.
    tester: the policy that writes the suites; the same one in self-play.
    clock: gets the stages' times.
  """
  config = run.config
  rounds = _play_rounds(run, state, coder, tester, clock)
  joined = _join(rounds)
  with clock.stage("score"):
    code_batch, code_numbers = groups.prepare(
      config, run.code, coder, _code_groups(joined)
    )
    test_batch, test_numbers = groups.prepare(
      config, run.test, tester, _test_groups(joined)
    )
  counts = joined.judgement.counts
  numbers = {
    **prefixed("code", code_numbers),
    **prefixed("test", test_numbers),
    **prefixed("code", run.code.drawn(joined.code_samples)),
    **prefixed("test", run.test.drawn(joined.suite_samples)),
    "rollout/questions": len(joined.problems),
    **_game_metrics(joined.judgement, state.book),
  }
  if config.evaluation.train_pass_rate:
    with clock.stage("sandbox"):
      numbers["code/pass_rate"] = _golden_pass_rate(run, joined)
  dumped = rounds if state.step % config.dump_every == 0 else []
  rollouts = [record for r in dumped for record in _describe(run, r)]
  observed = observe(run, state, joined.problems, *_pass_shares(counts))
  return Game(
    code_batch,
    test_batch,
    joined.judgement.book,
    observed,
    numbers,
    rollouts,
  )


def _play_rounds(
  run: Run, state: RunState, coder, tester, clock
) -> list[Round]:
  """One round, and further ones while groups are missing that teach."""
  rounds: list[Round] = []
  missing = run.config.rollout.questions
  while missing and len(rounds) <= run.config.selection.refill:
    played = [problem for r in rounds for problem in r.problems]
    batch = draw_problems(run, state, missing, len(rounds), played)
    if not batch:  # all problems have been played
      break
    rounds.append(
      _play_round(run, state, coder, tester, len(rounds), batch, clock)
    )
    state = state.replace(book=rounds[-1].judgement.book)
    missing = _missing_questions(run.config, _join(rounds))
  return rounds


def _play_round(run, state, coder, tester, number: int, batch, clock) -> Round:
  """One round of a step: texts, then what they are worth."""
  seed = (run.config.seed, state.step, *([number] if number else ()))
  with clock.stage("rollout"):
    code_samples, codes, suite_samples, suites = writing.write(
      run, coder, tester, batch, seed
    )
  with clock.stage("sandbox"):
    judgement = judging.judge(
      run.config, batch, codes, suites, state.book, run.pool, seed
    )
  return Round(seed, batch, code_samples, codes, suite_samples, judgement)


def _join(rounds: Sequence[Round]) -> Round:
  """All rounds of a step as one."""
  if len(rounds) == 1:
    return rounds[0]
  return Round(
    rounds[0].seed,
    tuple(problem for r in rounds for problem in r.problems),
    join_samples([r.code_samples for r in rounds]),
    [row for r in rounds for row in r.codes],
    join_samples([r.suite_samples for r in rounds]),
    judging.join([r.judgement for r in rounds]),
  )


def _describe(run: Run, played: Round) -> list[dict[str, Any]]:
  """The records of a round for the dump."""
  return dump_records.describe(
    played.problems,
    played.code_samples,
    played.codes,
    played.suite_samples,
    played.judgement,
    prompt_texts=(
      run.code.read(played.code_samples.prompts),
      run.test.read(played.suite_samples.prompts),
    ),
    seed=played.seed,
    num_tests=run.config.rollout.tests,
  )


def _missing_questions(config: Any, played: Round) -> int:
  """How many more questions it takes until both batches are full of groups
  that teach; 0 where others are kept."""
  if not config.selection.drop_zero_variance:
    return 0
  chosen = played.judgement.selected.shape[1]
  questions = config.rollout.questions
  codes = questions - _code_groups(played).informative.sum()
  suites = questions * chosen - _test_groups(played).informative.sum()
  missing = int(max(codes, -(-suites // chosen), 0))
  size = -(-questions // _ROUND_SIZES)
  return min(-(-missing // size) * size, questions)


def _code_groups(played: Round) -> groups.Groups:
  """A group a question: its codes."""
  reward = played.judgement.reward
  return groups.Groups(played.code_samples, reward.code, reward.code_mask)


def _test_groups(played: Round) -> groups.Groups:
  """A group a selected code: its suites."""
  reward, selected = played.judgement.reward, played.judgement.selected
  codes = reward.test.shape[1]
  chosen = [q * codes + m for q, row in enumerate(selected) for m in row]
  flat = (-1, reward.test.shape[-1])
  return groups.Groups(
    played.suite_samples.take(chosen),
    reward.test.reshape(flat)[chosen],
    reward.test_mask.reshape(flat)[chosen],
  )


def draw_problems(
  run: Run,
  state: RunState,
  questions: int,
  number: int = 0,
  played: Sequence[Problem] = (),
) -> tuple[Problem, ...]:
  """The questions of a step's round: a function of seed, step, what earlier
  rounds played (not again) and, under a curriculum, of the pass rates."""
  config, candidates = run.config, run.problems
  if played:
    known = {problem.id for problem in played}
    candidates = tuple(p for p in candidates if p.id not in known)
    questions = min(questions, len(candidates))
    if not candidates:
      return ()
  # Rounds beyond the first have a sequence of their own.
  seed, step = config.seed + number * _SEEDS, state.step
  if not config.curriculum.enabled:
    return problems.batch(candidates, step, questions, seed)
  return curriculum.draw(
    candidates,
    step,
    questions,
    seed,
    state.pass_rates,
    strength=config.curriculum.strength,
    end_step=config.curriculum.end_step,
  )


def _pass_shares(counts) -> tuple[np.ndarray, np.ndarray]:
  """Share of valid tests [Q, M] that each code passes, and where it has any."""
  kept = ~counts.masked
  valid = (counts.num_valid * kept).sum(-1)
  passed = (counts.num_passed * kept).sum(-1)
  shares = np.where(counts.code_valid, passed / np.maximum(valid, 1), 0.0)
  return shares, valid > 0


def observe(
  run: Run, state: RunState, batch: Sequence[Problem], shares, mask
) -> PassRates:
  """The pass rates after a step whose codes passed these shares [Q, M]."""
  if not run.config.curriculum.enabled:
    return state.pass_rates
  passed = np.clip(np.where(mask, shares, 0.0), 0.0, 1.0).sum(-1)
  return state.pass_rates.observe(
    [
      (problem.id, float(total), int(seen))
      for problem, total, seen in zip(batch, passed, mask.sum(-1))
    ]
  )


def _golden_pass_rate(run: Run, played: Round) -> float:
  """Share of a step's codes that pass all golden tests, which none learns."""
  shares = evaluation.golden_pass(
    played.problems, played.code_samples.completions, run.pool
  )
  return evaluation.pass_rate(shares)


def _game_metrics(judgement: Judgement, old_book) -> dict[str, float]:
  """Verdicts, rates, and the book's turnover of one step."""
  counts, book = judgement.counts, judgement.book
  codes = [code for row in judgement.outcomes for code in row]
  return {
    **_rates(judgement),
    "book/size": book.size,
    "book/questions": len(book.questions),
    "book/growth": book.size - old_book.size,
    **prefixed("book", judgement.turnover._asdict()),
    "book/archived": sum(map(len, book.archive.values())),
    "book/quarantined": sum(map(len, book.quarantine.values())),
    "test/rejected": sum(s.num_rejected for c in codes for s in c.suites),
    "sandbox/masked": int(counts.masked.sum()),
    **_verdicts(codes),
  }


def _rates(judgement: Judgement) -> dict[str, float]:
  """Means over what counts; a mean over nothing is left out."""
  reward, counts = judgement.reward, judgement.counts
  shown = reward.test_mask
  attacked = shown & counts.code_valid[..., None]  # others fail by themselves
  passed, seen = _pass_shares(counts)
  replayed = counts.replayed_passed / np.maximum(counts.replayed_total, 1)
  means = {
    "code/valid_share": counts.code_valid[reward.code_mask],
    "code/suite_pass_rate": passed[seen],
    "code/replay_pass_rate": replayed[
      reward.code_mask & (counts.replayed_total > 0)
    ],
    "test/validity": reward.validity[shown],
    "test/attack_rate": (counts.num_failed > 0)[attacked],
  }
  return {
    **{name: float(v.mean()) for name, v in means.items() if v.size},
    "test/failed_share": float(
      counts.num_failed[attacked].sum()
      / max(counts.num_valid[attacked].sum(), 1)
    ),
  }


def _verdicts(codes) -> dict[str, int]:
  """How often codes ended how; a code that does not load counts once more."""
  found = [c.load.status for c in codes if not c.load.passed]
  for code in codes:
    found += [v.status for v in code.replayed_verdicts]
    for suite in code.suites:
      found += [v.status for v in suite.verdicts if v is not None]
  return {f"verdicts/{status}": found.count(status) for status in set(found)}


def prefixed(prefix: str, numbers: dict[str, float]) -> dict[str, float]:
  """The same numbers under `prefix/`."""
  return {f"{prefix}/{name}": value for name, value in numbers.items()}
