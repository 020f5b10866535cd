"""The training loop of Code-A1 (arXiv 2603.15611) and of its baselines."""

import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from codea1_jax import (
  assembly,
  evaluation,
  grpo,
  metrics,
  parsing,
  problems,
  prompts,
  rewards,
  verification,
)
from codea1_jax.assembly import Run
from codea1_jax.checkpoint import Checkpoints
from codea1_jax.player import Player, Samples
from codea1_jax.run_log import Clock, RunLog, Stop, describe
from codea1_jax.train_state import PolicyState, RunState, UpdateBatch
from codea1_jax.types import ParsedCode, Problem

# Parts of a sampling or shuffling seed, after the run's seed and the step.
CODE, TEST, EVALUATION = 0, 1, 2


def train(config: Any, workdir: str | pathlib.Path) -> dict[str, float]:
  """Trains a pair of policies, or goes on where the workdir's run stopped.

  Args:
    config: see configs/tiny.py.
    workdir: gets config.json, metrics.jsonl, eval.jsonl, rollouts.jsonl,
      checkpoints/ and report.html.

  Returns:
    The last evaluation's metrics.

  Raises:
    assembly.InputError: bad input, before any long work.
    FloatingPointError: a loss or gradient is not finite; metrics are on disk.
  """
  _keep_compiled_code(pathlib.Path(workdir))
  with assembly.open_run(config, workdir) as run, Stop() as stop:
    print(run.pool.description, file=sys.stderr)
    checkpoints = Checkpoints(workdir, config.checkpoint.keep)
    state = run.initial
    if run.resume and checkpoints.latest_step() is not None:
      state = checkpoints.restore(state, run.parallel)
      print(f"going on at step {state.step}", file=sys.stderr)
    log = RunLog(run, state.step)
    take_step = STEPS[config.method]
    if state.step == 0:
      log.evaluation(evaluate(run, state))
    for step in log.progress(state.step, config.num_steps):
      started = time.monotonic()
      state, step_metrics, rollouts = take_step(run, state)
      step_metrics["time/step_s"] = time.monotonic() - started
      log.step(step, step_metrics, rollouts)
      done = state.step == config.num_steps
      if done or state.step % config.evaluation.every == 0:
        log.evaluation(evaluate(run, state))
      if done or stop.asked or state.step % config.checkpoint.every == 0:
        checkpoints.save(state, run.parallel)
      if stop.asked and not done:
        break
    checkpoints.close()
    return log.finish(state.step)


def code_a1_step(run: Run, state: RunState):
  """One step of the paper: both policies play, both are updated.

  Returns:
    The next state, the step's metrics, and its rollouts for the report.
  """
  return _play(run, state, state.code, state.test)


def self_play_step(run: Run, state: RunState):
  """One policy in both roles, updated with both roles' rewards in turn."""
  state, step_metrics, rollouts = _play(run, state, state.code, None)
  return state, step_metrics, rollouts


def _play(run: Run, state: RunState, code: PolicyState, test):
  """Code rollout, test rollout, verdicts, rewards, book, selection, updates.

  `test` is None in self-play: then `code` writes the tests too.
  """
  clock = Clock()
  seed = (run.config.seed, state.step)
  batch = _batch(run, state.step)
  code_samples, codes = sample_codes(run, code, batch, seed)
  writer = code if test is None else test
  suite_samples, suites = sample_suites(run, writer, batch, codes, seed)
  clock.lap("rollout")
  replayed = _replayed(run, state, batch)
  outcomes = verification.verify(batch, codes, suites, replayed, run.pool)
  clock.lap("sandbox")
  counts = verification.count(batch, outcomes, state.book)
  preset = run.config.rewards.preset
  reward = rewards.compute(
    preset,
    counts,
    alpha=run.config.rewards.alpha,
    tests_per_suite=run.config.rollout.tests,
  )
  book = state.book
  if run.config.book.enabled:
    events = verification.book_events(batch, outcomes, preset)
    book = book.update(events)
  selected = grpo.top_variance(
    reward.test, run.config.selection.top_k, mask=reward.test_mask
  )
  code_batch, code_metrics = prepare_codes(run, code, code_samples, reward)
  test_batch, test_metrics = prepare_suites(
    run, writer, suite_samples, reward, selected
  )
  clock.lap("score")
  code, losses = run.code.learn(code, code_batch, (*seed, CODE))
  code_metrics |= losses
  if test is None:
    code, losses = run.test.learn(code, test_batch, (*seed, TEST))
  else:
    test, losses = run.test.learn(test, test_batch, (*seed, TEST))
  test_metrics |= losses
  clock.lap("update")
  step_metrics = {
    **_prefixed("code", code_metrics),
    **_prefixed("test", test_metrics),
    **_game_metrics(outcomes, reward, counts, state.book, book),
    **clock.metrics,
  }
  rollouts = describe(
    batch, code_samples, codes, suite_samples, outcomes, reward, selected
  )
  state = state.replace(
    code=code,
    test=state.test if test is None else test,
    book=book,
    step=state.step + 1,
  )
  return state, step_metrics, rollouts


def golden_tests_step(run: Run, state: RunState):
  """Only the Code LLM learns, from the share of golden tests it passes."""
  clock = Clock()
  seed = (run.config.seed, state.step)
  batch = _batch(run, state.step)
  samples, _ = sample_codes(run, state.code, batch, seed)
  clock.lap("rollout")
  shares = evaluation.golden_pass(batch, samples.completions, run.pool)
  clock.lap("sandbox")
  mask = np.array([[s is not None for s in row] for row in shares])
  reward = np.array([[s or 0.0 for s in row] for row in shares], np.float32)
  code_batch, code_metrics = _prepare_groups(
    run, run.code, state.code, samples, reward, mask
  )
  clock.lap("score")
  code, losses = run.code.learn(state.code, code_batch, (*seed, CODE))
  clock.lap("update")
  code_metrics |= losses
  code_metrics["pass_rate"] = evaluation.pass_rate(shares)
  step_metrics = {**_prefixed("code", code_metrics), **clock.metrics}
  return state.replace(code=code, step=state.step + 1), step_metrics, []


STEPS = {
  "code_a1": code_a1_step,
  "golden_tests": golden_tests_step,
  "self_play": self_play_step,
}


def _batch(run: Run, step: int) -> tuple[Problem, ...]:
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


def prepare_codes(run: Run, state: PolicyState, samples: Samples, reward):
  return _prepare_groups(
    run, run.code, state, samples, reward.code, reward.code_mask
  )


def prepare_suites(run: Run, state, samples: Samples, reward, selected):
  """The suites of each question's selected codes: one group a code."""
  codes = reward.test.shape[1]
  chosen = [q * codes + m for q, row in enumerate(selected) for m in row]
  flat = (-1, reward.test.shape[-1])
  picked = Samples(
    [samples.prompts[i] for i in chosen],
    [samples.completions[i] for i in chosen],
  )
  return _prepare_groups(
    run,
    run.test,
    state,
    picked,
    reward.test.reshape(flat)[chosen],
    reward.test_mask.reshape(flat)[chosen],
  )


def _prepare_groups(
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


def evaluate(run: Run, state: RunState) -> dict[str, float]:
  """Both policies on the held-out problems; the same draws every time."""
  config, problem_set = run.config, run.heldout
  started = time.monotonic()
  seed = (config.seed, EVALUATION)
  chats = [
    prompts.code_messages(p, preset=config.prompts.preset) for p in problem_set
  ]
  encoded = run.code.encode(chats)
  result = {"step": state.step, "eval/num_problems": len(problem_set)}
  for name in ("greedy", "sampled"):
    completions = run.evaluators[name](state.code.params, encoded, seed)
    shares = evaluation.golden_pass(problem_set, completions, run.pool)
    result[f"eval/code/{name}_pass_rate"] = evaluation.pass_rate(shares)
  targets = evaluation.attack_targets(problem_set, config.evaluation.targets)
  chats = [
    prompts.test_messages(
      problem,
      program,
      config.rollout.tests,
      preset=config.prompts.preset,
      visibility=config.prompts.test_visibility,
    )
    for problem, program in targets
  ]
  writer = state.code if config.method == "self_play" else state.test
  completions = run.evaluators["test"](
    writer.params, run.test.encode(chats), seed
  )
  scores = evaluation.attack_scores(
    targets, completions, config.rollout.tests, run.pool
  )
  result |= _prefixed("eval/test", scores)
  result["time/evaluation_s"] = time.monotonic() - started
  return result


def _game_metrics(outcomes, reward, counts, old_book, book) -> dict[str, float]:
  """Verdicts, validity, attack rate and the book's turnover of one step."""
  codes = [code for row in outcomes for code in row]
  verdicts = [c.load.status for c in codes if not c.load.passed]
  for code in codes:
    verdicts += [v.status for v in code.replayed_verdicts]
    for suite in code.suites:
      verdicts += [v.status for v in suite.verdicts if v is not None]
  shown = reward.test_mask
  share = {
    f"verdicts/{status}": verdicts.count(status) for status in set(verdicts)
  }
  return {
    "code/valid_share": float(counts.code_valid.mean()),
    "test/validity": float(reward.validity[shown].mean()),
    "test/attack_rate": float((counts.num_failed > 0)[shown].mean()),
    "test/failed_share": float(
      counts.num_failed[shown].sum() / max(counts.num_valid[shown].sum(), 1)
    ),
    "book/size": book.size,
    "book/questions": len(book.questions),
    "book/growth": book.size - old_book.size,
    "sandbox/masked": int(counts.masked.sum()),
    **share,
  }


def _prefixed(prefix: str, numbers: dict[str, float]) -> dict[str, float]:
  return {f"{prefix}/{name}": value for name, value in numbers.items()}


def _keep_compiled_code(workdir: pathlib.Path) -> None:
  """A second start need not compile again; the environment has the say."""
  if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    folder = str((workdir / "compilation_cache").absolute())
    jax.config.update("jax_compilation_cache_dir", folder)
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
