"""What both policies write in a step: codes, and suites against them.

Letters: Q questions, M codes a question, N suites a code.
"""

from collections.abc import Sequence
from concurrent import futures
from typing import Any

from codea1_jax import judging, prompts
from codea1_jax.assembly import Run
from codea1_jax.player import Samples, join_samples
from codea1_jax.train_state import PolicyState
from codea1_jax.types import ParsedCode, Problem

# A seed is (run's seed, step, one of these).
CODE, TEST = 0, 1
_PARTS = 4  # of the questions, where both policies write at once


def write(run: Run, coder, tester, batch, seed):
  """Codes [Q][M] and suites [Q][M][N], each with its samples.

  Where each policy has devices of its own, the suites for some questions are
  written while the codes of the next ones are.
  """
  if not run.split:
    code_samples, codes = sample_codes(run, coder, batch, seed)
    return code_samples, codes, *sample_suites(run, tester, batch, codes, seed)
  size = -(-len(batch) // _PARTS)
  code_parts, suite_parts = [], []
  with futures.ThreadPoolExecutor(1) as other_devices:
    for first in range(0, len(batch), size):
      part = batch[first : first + size]
      code_parts.append(sample_codes(run, coder, part, seed, first))
      codes = code_parts[-1][1]
      suite_parts.append(
        other_devices.submit(
          sample_suites, run, tester, part, codes, seed, first
        )
      )
    suite_parts = [part.result() for part in suite_parts]
  code_samples, codes = zip(*code_parts)
  suite_samples, suites = zip(*suite_parts)
  return (
    join_samples(code_samples),
    [row for part in codes for row in part],
    join_samples(suite_samples),
    [row for part in suites for row in part],
  )


def sample_codes(
  run: Run, state: PolicyState, batch: Sequence[Problem], seed, first: int = 0
) -> tuple[Samples, list[list[ParsedCode]]]:
  """M codes a question: the samples, and the programs [Q][M] in them; before
  these questions the step has `first` others."""
  preset = run.config.prompts.preset
  chats = [prompts.code_messages(p, preset=preset) for p in batch]
  samples = run.code.sample(state.params, chats, (*seed, CODE), first)
  texts = [[c.text for c in row] for row in samples.completions]
  codes = judging.parse_codes(batch, texts)
  return samples, codes


def test_chat(config: Any, problem: Problem, program: str) -> prompts.Messages:
  """The messages that ask for one suite, as the config words them."""
  return prompts.test_messages(
    problem,
    program,
    config.rollout.tests,
    preset=config.prompts.preset,
    visibility=config.prompts.test_visibility,
    anonymize=config.prompts.anonymize_code,
  )


def sample_suites(
  run: Run, state: PolicyState, batch, codes, seed, first: int = 0
):
  """N suites a code: samples [Q * M][N], (suite, non-printable) [Q][M][N]."""
  config = run.config
  chats = [
    test_chat(config, problem, code.source)
    for problem, row in zip(batch, codes)
    for code in row
  ]
  first *= config.rollout.codes
  samples = run.test.sample(state.params, chats, (*seed, TEST), first)
  texts = iter([c.text for c in row] for row in samples.completions)
  by_code = [[next(texts) for _ in row] for row in codes]
  suites = judging.parse_suites(batch, by_code, config.rollout.tests)
  return samples, suites
