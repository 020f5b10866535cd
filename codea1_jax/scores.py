"""Counts of verdicts -> the tables' numbers: pass@k, avg@k, their intervals."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

_DRAWS = 2_000  # of a bootstrap
_LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Score:
  """A mean in percent, over so many problems, and where it may lie."""

  value: float
  low: float  # of the bootstrap's interval
  high: float
  count: int

  def __str__(self) -> str:
    return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def pass_at_k(samples: int, passed: int, k: int) -> float:
  """Unbiased estimate of the chance that one of k samples passes.

  1 - C(n - c, k) / C(n, k), from n samples of which c pass (Codex, arXiv
  2107.03374, equation 1).

  Args:
    samples: n.
    passed: c.
    k: at most n.

  Returns:
    In [0, 1].

  Raises:
    ValueError: 0 <= c <= n and 1 <= k <= n do not hold.
  """
  if not 0 <= passed <= samples or not 1 <= k <= samples:
    raise ValueError(
      f"pass_at_k: {passed} of {samples} samples passed, k is {k}"
    )
  return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def mean_score(values: Sequence[float], seed: int = 0) -> Score:
  """Mean of problems' values in [0, 1], with a 95 % bootstrap over problems.

  Raises:
    ValueError: no values.
  """
  values = np.asarray(values, np.float64)
  if not values.size:
    raise ValueError("mean_score: no values")
  rng = np.random.default_rng(seed)
  drawn = rng.integers(values.size, size=(_DRAWS, values.size))
  tail = (1 - _LEVEL) / 2
  low, high = np.quantile(values[drawn].mean(1), [tail, 1 - tail])
  return Score(
    *(100 * float(x) for x in (values.mean(), low, high)), values.size
  )


def ratio_score(
  *ratios: tuple[Sequence[float], Sequence[float]], seed: int = 0
) -> Score | None:
  """Product of ratios of sums over the same problems, in percent.

  Micro-averages, means over some of the problems, and products of such. The
  bootstrap draws problems, and counts draws in which every ratio exists.

  Args:
    *ratios: (numerators [P], denominators [P]) each.
    seed: of the bootstrap.

  Returns:
    The score, with the number of problems that no denominator is 0 for; None
    where a sum of denominators is 0.
  """
  pairs = np.asarray(ratios, np.float64)  # [R, 2, P]
  number = pairs.shape[2]
  rng = np.random.default_rng(seed)
  values = []
  for draw in range(_DRAWS + 1):
    chosen = rng.integers(number, size=number) if draw else slice(None)
    above, below = pairs[:, :, chosen].sum(2).T
    if below.all():
      values.append(100 * float(np.prod(above / below)))
    elif not draw:
      return None
  tail = (1 - _LEVEL) / 2
  low, high = np.quantile(values[1:] or values, [tail, 1 - tail])
  count = int(np.all(pairs[:, 1] != 0, axis=0).sum())
  return Score(values[0], float(low), float(high), count)


def code_scores(
  verdicts: Sequence[Sequence[bool | None]], ks: Sequence[int] = (1, 8, 16, 32)
) -> dict[str, Score]:
  """pass@k and avg@n of the Code LLM.

  Args:
    verdicts: [P][n], whether a sample passes; None, where the infrastructure
      failed, does not count as a sample.
    ks: those above a problem's number of samples are left out.

  Returns:
    "pass@K" by K, and "avg@N", the mean share of samples that pass.
  """
  known = [[v for v in row if v is not None] for row in verdicts]
  known = [row for row in known if row]
  if not known:
    raise ValueError("code_scores: no verdicts")
  most = min(map(len, known))
  scores = {
    f"pass@{k}": mean_score([pass_at_k(len(r), sum(r), k) for r in known])
    for k in ks
    if k <= most
  }
  shares = [sum(row) / len(row) for row in known]
  return scores | {f"avg@{most}": mean_score(shares)}
