"""A curriculum: problems that codes solve more often come first.

By the pass rate seen so far (ALGORITHM.md, Methods and ablations).
"""

import collections
import dataclasses
import json
import math
import operator
import types
from collections.abc import Mapping, Sequence

import numpy as np

from codea1_jax.problems import check_batch
from codea1_jax.types import Problem

_STREAM = 0xC0DE  # apart from other draws of the same seed and step


@dataclasses.dataclass(frozen=True)
class PassRates:
  """question id -> (sum of what codes passed, each in 0..1; codes seen)."""

  questions: Mapping[str, tuple[float, int]] = dataclasses.field(
    default_factory=dict
  )

  def __post_init__(self):
    questions = {}
    for question_id, (passed, seen) in self.questions.items():
      _check(question_id, passed, seen)
      questions[question_id] = (float(passed), operator.index(seen))
    frozen = types.MappingProxyType(questions)
    object.__setattr__(self, "questions", frozen)

  def observe(
    self, observations: Sequence[tuple[str, float, int]]
  ) -> "PassRates":
    """The rates after more codes; the order of observations plays no part.

    Args:
      observations: (question id, passed, seen) with 0 <= passed <= seen; a
        question may stand more than once.

    Returns:
      The new rates.

    Raises:
      ValueError: where passed or seen is out of range.
    """
    added = collections.defaultdict(list)
    for question_id, passed, seen in observations:
      _check(question_id, passed, seen)
      added[question_id].append((passed, seen))
    questions = dict(self.questions)
    for question_id, rows in added.items():
      before = questions.get(question_id, (0.0, 0))
      passed, seen = zip(before, *rows)
      # fsum rounds once, whatever the order.
      questions[question_id] = (math.fsum(passed), sum(seen))
    return PassRates(questions)

  def rate(self, question_id: str) -> float:
    """Mean pass rate under a Beta(1, 1) prior: (passed + 1) / (seen + 2)."""
    passed, seen = self.questions.get(question_id, (0.0, 0))
    return (passed + 1) / (seen + 2)

  def to_json(self) -> str:
    """All rates as one JSON text; `from_json` is its exact inverse."""
    return json.dumps(dict(self.questions), sort_keys=True)

  @classmethod
  def from_json(cls, text: str) -> "PassRates":
    """The rates that `to_json` wrote; ValueError where `text` is none."""
    try:
      rows = json.loads(text).items()
      return cls({key: (passed, seen) for key, (passed, seen) in rows})
    except (ValueError, TypeError, AttributeError) as e:
      raise ValueError(f"not pass rates: {type(e).__name__}: {e}") from e


def draw(
  problems: Sequence[Problem],
  step: int,
  size: int,
  seed: int,
  rates: PassRates,
  *,
  strength: float,
  end_step: int,
) -> tuple[Problem, ...]:
  """The problems of one step, easier ones more often: a pure function.

    w_i = exp(strength max(0, 1 - step / end_step) rate_i)

  One problem after the other is drawn in proportion to w among those that are
  left, as the Gumbel top-k trick does it at once (arXiv 1903.06059). Strength
  0, or a step from `end_step` on, draws uniformly.

  Args:
    problems: all of them.
    step: counted from 0.
    size: Q, problems a step.
    seed: not negative.
    rates: what codes achieved before this step.
    strength: log of the weight at rate 1 over the weight at rate 0, at step 0;
      negative puts hard problems first.
    end_step: where the curriculum ends.

  Returns:
    `size` different problems.

  Raises:
    ValueError: where size is not in 1..len(problems), step or seed < 0, or
      strength is not finite.
  """
  check_batch(len(problems), step, size, seed)
  if not math.isfinite(strength):
    raise ValueError(f"strength is {strength}, must be finite")
  left = 1 - step / end_step if step < end_step else 0.0
  log_weights = [strength * left * rates.rate(p.id) for p in problems]
  noise = np.random.default_rng((seed, step, _STREAM)).gumbel(
    size=len(problems)
  )
  order = np.argsort(-(np.asarray(log_weights) + noise), kind="stable")
  return tuple(problems[i] for i in order[:size])


def _check(question_id: str, passed: float, seen: int) -> None:
  """ValueError where a rate is out of range."""
  if not 0 <= passed <= seen:
    raise ValueError(
      f"question {question_id!r}: passed {passed} is not in 0..{seen} seen"
    )
