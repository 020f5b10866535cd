"""Both policies on the held-out problems; the same draws every time.

Letters: P problems, n codes a problem.
"""

import time
from collections.abc import Sequence

from codea1_jax import (
  collaboration,
  evaluation,
  game,
  judging,
  parsing,
  prompts,
  writing,
)
from codea1_jax.assembly import Run
from codea1_jax.train_state import PolicyState, RunState
from codea1_jax.types import Completion

# Evaluations draw with seeds of a step that no run reaches.
_STEP = 2**32 - 1
_GREEDY, _CHOOSING = 2, 3  # beside writing.CODE and writing.TEST


def evaluate(run: Run, state: RunState) -> dict[str, float]:
  """Scores of both policies by golden tests and known faulty programs.

  Returns:
    `eval/code/*` pass rates, `eval/test/*` where the problems have faulty
    programs, the number of problems, the step and the seconds it took.
  """
  started = time.monotonic()
  writer = state.code if run.config.method == "self_play" else state.test
  scores = _code_scores(run, state.code, writer)
  scores |= game.prefixed("eval/test", _test_scores(run, writer))
  return {
    "step": state.step,
    "eval/num_problems": len(run.heldout),
    **scores,
    "time/evaluation_s": time.monotonic() - started,
  }


def _seed(run: Run, role: int) -> tuple[int, ...]:
  return run.config.seed, _STEP, role


def _code_scores(run: Run, coder: PolicyState, writer: PolicyState):
  """Greedy and sampled pass rates, and that of chosen codes where asked for."""
  chats = [
    prompts.code_messages(p, preset=run.config.prompts.preset)
    for p in run.heldout
  ]
  encoded, _ = run.code.encode(chats)
  scores = {}
  for name, role in (("greedy", _GREEDY), ("sampled", writing.CODE)):
    completions = run.evaluators[name](
      run.code.full(coder.params), encoded, _seed(run, role)
    )
    shares = evaluation.golden_pass(run.heldout, completions, run.pool)
    scores[f"eval/code/{name}_pass_rate"] = evaluation.pass_rate(shares)
  if run.config.evaluation.collaboration:
    best = _choose(run, writer, completions)
    shares = [[row[n]] for row, n in zip(shares, best)]
    scores["eval/code/chosen_pass_rate"] = evaluation.pass_rate(shares)
  return scores


def _choose(
  run: Run, writer: PolicyState, completions: Sequence[Sequence[Completion]]
) -> list[int]:
  """Of each problem's n codes the one that the Test LLM's suites favour."""
  texts = [[c.text for c in row] for row in completions]
  codes = judging.parse_codes(run.heldout, texts)
  targets = [
    (problem, code.source)
    for problem, row in zip(run.heldout, codes)
    for code in row
  ]
  written = iter(_write_suites(run, writer, targets, "choosing", _CHOOSING))
  suites = [
    [
      parsing.parse_suite(c.text, problem.entry_point, run.config.rollout.tests)
      for _ in row
      for c in next(written)
    ]
    for problem, row in zip(run.heldout, codes)
  ]
  return collaboration.best_codes(run.heldout, codes, suites, run.pool)


def _test_scores(run: Run, writer: PolicyState) -> dict[str, float]:
  """Validity, kill and attack rate; none without faulty programs."""
  config = run.config
  targets = evaluation.attack_targets(run.heldout, config.evaluation.targets)
  if not targets:
    return {}
  completions = _write_suites(run, writer, targets, "test", writing.TEST)
  return evaluation.attack_scores(
    targets, completions, config.rollout.tests, run.pool
  )


def _write_suites(run: Run, writer: PolicyState, targets, name: str, role: int):
  """Completions of the Test LLM against (problem, program) pairs."""
  chats = [
    writing.test_chat(run.config, problem, program)
    for problem, program in targets
  ]
  encoded, _ = run.test.encode(chats)
  params = run.test.full(writer.params)
  return run.evaluators[name](params, encoded, _seed(run, role))
