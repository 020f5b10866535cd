"""What a rollout dump keeps of a step: all that was written, run and decided.

Enough to judge the same texts again (replay.py), to read them (show.py), and to
train on them again with the step's policies: prompts and completions are there
as tokens too. Left out are the sampler's log-probs, five times as large as all
the rest together: scoring the tokens with the step's policy gives them.

Letters: Q questions, M codes a question, N suites a code.
"""

from collections.abc import Sequence
from typing import Any

from codea1_jax.judging import Judgement
from codea1_jax.player import Samples
from codea1_jax.types import Completion, ParsedCode, Problem, Verdict
from codea1_jax.verification import CodeOutcome, SuiteOutcome


def describe(
  batch: Sequence[Problem],
  code_samples: Samples,
  codes: Sequence[Sequence[ParsedCode]],
  suite_samples: Samples,
  judgement: Judgement,
  prompt_texts: tuple[Sequence[str], Sequence[str]],
  seed: Sequence[int],
  num_tests: int,
) -> list[dict[str, Any]]:
  """One record a question of one round.

  Args:
    batch: [Q].
    code_samples: [Q] prompts with M completions each.
    codes: [Q][M].
    suite_samples: [Q * M] prompts with N completions each.
    judgement: of all of them.
    prompt_texts: the Code LLM's [Q] and the Test LLM's [Q * M] as text.
    seed: of the round: the run's, the step, and the round if not the first.
    num_tests: K, what a suite was asked for.
  """
  records = []
  for q, problem in enumerate(batch):
    rows = range(q * len(codes[q]), (q + 1) * len(codes[q]))
    records.append(
      {
        "seed": list(seed),
        "num_tests": num_tests,
        "problem": {
          "id": problem.id,
          "question": problem.question,
          "signature": problem.signature,
          "entry_point": problem.entry_point,
          "ground_truth": problem.ground_truth,
        },
        "prompt": _prompt(prompt_texts[0][q], code_samples.prompts[q]),
        "replayed": [t.source for t in judgement.outcomes[q][0].replayed],
        "codes": [
          _completion(code_samples.completions[q][m])
          | _code(codes[q][m], judgement, q, m)
          | {
            "suite_prompt": _prompt(
              prompt_texts[1][row], suite_samples.prompts[row]
            ),
            "suites": [
              _completion(sample) | _suite(judgement, q, m, n)
              for n, sample in enumerate(suite_samples.completions[row])
            ],
          }
          for m, row in enumerate(rows)
        ],
      }
    )
  return records


def _prompt(text: str, tokens: Sequence[int]) -> dict[str, Any]:
  return {"text": text, "tokens": list(tokens)}


def _completion(sample: Completion) -> dict[str, Any]:
  return {
    "text": sample.text,
    "tokens": list(sample.tokens),
    "finished": sample.finished,
  }


def _code(parsed: ParsedCode, judgement: Judgement, q: int, m: int) -> dict:
  outcome: CodeOutcome = judgement.outcomes[q][m]
  reward = judgement.reward
  return {
    "source": parsed.source,
    "error": parsed.error,
    "load": str(outcome.load.status),
    "load_detail": outcome.load.detail,
    "reward": _counted(reward.code[q, m], reward.code_mask[q, m]),
    "replayed_verdicts": [str(v.status) for v in outcome.replayed_verdicts],
    "replayed_returned": [_returned(v) for v in outcome.replayed_verdicts],
    "selected": m in judgement.selected[q],
  }


def _suite(judgement: Judgement, q: int, m: int, n: int) -> dict[str, Any]:
  suite: SuiteOutcome = judgement.outcomes[q][m].suites[n]
  reward = judgement.reward
  return {
    "reward": _counted(reward.test[q, m, n], reward.test_mask[q, m, n]),
    "validity": float(reward.validity[q, m, n]),
    "num_invalid": suite.num_invalid,
    "tests": [
      {
        "call": test.call,
        "predicted": test.expected,
        "oracle": oracle.value,
        "oracle_status": str(oracle.status),
        "correct": correct,
        "rejected": rejected,
        "verdict": None if verdict is None else str(verdict.status),
        "returned": None if verdict is None else _returned(verdict),
      }
      for test, oracle, correct, rejected, verdict in zip(
        suite.tests,
        suite.oracle,
        suite.correct,
        suite.rejected or [""] * len(suite.tests),
        suite.verdicts,
      )
    ],
  }


def _counted(reward: float, counts: bool) -> float | None:
  """A reward, None where the infrastructure failed: that is no 0."""
  return float(reward) if counts else None


def _returned(verdict: Verdict) -> str:
  """The value that a call returned, or why it returned none."""
  return verdict.detail if verdict.value is None else verdict.value
