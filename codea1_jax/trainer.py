"""The training loop of Code-A1 (arXiv 2603.15611) and of its baselines."""

import os
import pathlib
import sys
from concurrent import futures
from typing import Any

import jax
import numpy as np

from codea1_jax import (
  assembly,
  evaluation,
  game,
  groups,
  heldout,
  starting,
  supervision,
  writing,
)
from codea1_jax.assembly import Run
from codea1_jax.checkpointing import Checkpoints
from codea1_jax.profiling import Profile
from codea1_jax.run_log import Leave, RunLog, Stop
from codea1_jax.starting import AFRESH, Start
from codea1_jax.train_state import RunState
from codea1_jax.usage import Clock, Compilations, Usage


def train(
  config: Any, workdir: str | pathlib.Path, start: Start = AFRESH
) -> dict[str, float]:
  """Trains a pair of policies, or goes on where the workdir's run stopped.

  Args:
    config: see configs/tiny.py.
    workdir: gets config.json, metrics.jsonl, eval.jsonl, rollouts.jsonl.zst,
      checkpoints/, compilation_cache/ and report.html.
    start: where a run begins that the workdir does not hold yet.

  Returns:
    The last evaluation's metrics.

  Raises:
    assembly.InputError: bad input, before any long work.
    checkpoint.CheckpointError: one cannot be written; those before it stay.
    FloatingPointError: a loss or gradient is not finite; metrics are on disk.
    guards.Breach: a guard has stopped the run, which is saved.
  """
  workdir = pathlib.Path(workdir)
  start.check(workdir, config)
  _keep_compiled_code(workdir)
  with (
    Compilations() as compilations,
    assembly.open_run(config, workdir, start.allow_config_change) as run,
    Stop(alone=run.hosts.count == 1) as stop,
    Checkpoints(
      workdir,
      config.checkpoint.keep,
      config.checkpoint.keep_every,
      config.checkpoint.best,
      run.hosts.gather,
    ) as checkpoints,
    Profile(
      workdir / "profile", *config.profile_steps, writes=run.hosts.writes
    ) as profile,
  ):
    print(run.pool.description, file=sys.stderr)
    state = starting.first_state(run, checkpoints, start)
    log, usage = RunLog(run, state.step), Usage(run, compilations)
    take_step = STEPS[config.method]
    try:
      if log.evaluation_is_due(state.step):
        with stop.leaving_at_once():
          log.evaluation(heldout.evaluate(run, state))
      for step in log.progress(state.step, config.num_steps):
        with profile.step(step), usage.step(), stop.leaving_at_once():
          state, step_metrics, rollouts = take_step(run, state, stop)
        log.step(step, step_metrics | usage.metrics(step_metrics), rollouts)
        done = state.step == config.num_steps
        stopping = any(run.hosts.gather(stop.asked)) or log.breach
        if done or stopping or state.step % config.checkpoint.every == 0:
          checkpoints.save(state, run.parallel, config)
        if stopping and not done:
          break
        if done or state.step % config.evaluation.every == 0:
          with stop.leaving_at_once():
            log.evaluation(heldout.evaluate(run, state))
    except Leave:  # `state` is that of the last whole step
      checkpoints.save(state, run.parallel, config)
    checkpoints.wait()
    return log.finish(state.step)


def code_a1_step(run: Run, state: RunState, stop: Stop):
  """One step of the paper: both policies play, both are updated.

  Returns:
    The next state, the step's metrics, and its rollouts for the report.
  """
  clock, seed = Clock(), (run.config.seed, state.step)
  played = game.play(run, state, state.code, state.test, clock)
  lessons = (
    lambda: run.code.learn(
      state.code, played.code_batch, (*seed, writing.CODE)
    ),
    lambda: run.test.learn(
      state.test, played.test_batch, (*seed, writing.TEST)
    ),
  )
  stop.finishing()  # no policy learns without the other
  with clock.stage("update"):
    (code, code_losses), (test, test_losses) = _each(lessons, run.split)
  state = state.replace(
    code=code,
    test=test,
    book=played.book,
    pass_rates=played.pass_rates,
    step=state.step + 1,
  )
  numbers = _step_metrics(played, code_losses, test_losses, clock)
  return state, numbers, played.rollouts


def self_play_step(run: Run, state: RunState, stop: Stop):
  """One policy in both roles, updated with both roles' rewards in turn."""
  clock, seed = Clock(), (run.config.seed, state.step)
  played = game.play(run, state, state.code, state.code, clock)
  stop.finishing()
  with clock.stage("update"):
    both, code_losses = run.code.learn(
      state.code, played.code_batch, (*seed, writing.CODE)
    )
    both, test_losses = run.test.learn(
      both, played.test_batch, (*seed, writing.TEST)
    )
  state = state.replace(
    code=both,
    book=played.book,
    pass_rates=played.pass_rates,
    step=state.step + 1,
  )
  numbers = _step_metrics(played, code_losses, test_losses, clock)
  return state, numbers, played.rollouts


def golden_tests_step(run: Run, state: RunState, stop: Stop):
  """Only the Code LLM learns, from the share of golden tests it passes."""
  clock, seed = Clock(), (run.config.seed, state.step)
  batch = game.draw_problems(run, state, run.config.rollout.questions)
  with clock.stage("rollout"):
    samples, _ = writing.sample_codes(run, state.code, batch, seed)
  with clock.stage("sandbox"):
    shares = evaluation.golden_pass(batch, samples.completions, run.pool)
  mask = np.array([[s is not None for s in row] for row in shares])
  reward = np.array([[s or 0.0 for s in row] for row in shares], np.float32)
  with clock.stage("score"):
    code_batch, numbers = groups.prepare(
      run.config, run.code, state.code, groups.Groups(samples, reward, mask)
    )
  stop.finishing()
  with clock.stage("update"):
    code, losses = run.code.learn(state.code, code_batch, (*seed, writing.CODE))
  numbers |= run.code.drawn(samples) | losses
  numbers["pass_rate"] = evaluation.pass_rate(shares)
  numbers = game.prefixed("code", numbers) | clock.metrics
  pass_rates = game.observe(run, state, batch, reward, mask)
  state = state.replace(code=code, pass_rates=pass_rates, step=state.step + 1)
  return state, numbers, []


def sft_step(run: Run, state: RunState, stop: Stop):
  """The Test LLM learns golden asserts of faulty codes by cross-entropy."""
  config, clock = run.config, Clock()
  seed = (config.seed, state.step)
  rng = np.random.default_rng((*seed, writing.TEST))
  batch = game.draw_problems(run, state, config.rollout.questions)
  targets = supervision.draw_faulty(batch, config.rollout.suites, rng)
  with clock.stage("sandbox"):
    suites = supervision.golden_suites(
      targets, config.rollout.tests, run.pool, rng
    )
  rows = run.test.supervised(
    [
      writing.test_chat(config, problem, program)
      for problem, program in targets
    ],
    [supervision.completion(tests) for tests in suites],
  )
  stop.finishing()
  with clock.stage("update"):
    test, losses = run.test.learn(state.test, rows, (*seed, writing.TEST))
  numbers = game.prefixed("test", losses) | clock.metrics
  return state.replace(test=test, step=state.step + 1), numbers, []


def _each(calls, at_once: bool):
  """What two calls return, one after the other or in two threads."""
  if not at_once:
    return [call() for call in calls]
  with futures.ThreadPoolExecutor(len(calls)) as threads:
    return list(threads.map(lambda call: call(), calls))


STEPS = {
  "code_a1": code_a1_step,
  "golden_tests": golden_tests_step,
  "self_play": self_play_step,
  "sft": sft_step,
}


def _step_metrics(played, code_losses, test_losses, clock) -> dict[str, float]:
  return {
    **played.metrics,
    **game.prefixed("code", code_losses),
    **game.prefixed("test", test_losses),
    **clock.metrics,
  }


def _keep_compiled_code(workdir: pathlib.Path) -> None:
  """A second start need not compile again; the environment has the say."""
  for name, value in (
    (
      "jax_compilation_cache_dir",
      str(workdir.absolute() / "compilation_cache"),
    ),
    ("jax_persistent_cache_min_compile_time_secs", 0.3),
  ):
    if name.upper() not in os.environ:
      jax.config.update(name, value)
