"""What a run writes down about itself, and the few lines it says aloud.

A workdir holds JSONL files with one object a line, each with its "step":
metrics.jsonl (training), eval.jsonl (evaluations); rollouts.jsonl.zst holds
samples in the same way, compressed.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# The evaluation's metrics in the order a reader wants them.
EVAL_NAMES = {
  "eval/code/greedy_pass_rate": "Code: greedy pass rate",
  "eval/code/sampled_pass_rate": "Code: sampled pass rate",
  "eval/test/validity": "Test: valid tests",
  "eval/test/kill_rate": "Test: kill rate (fixed faulty programs)",
  "eval/test/attack_rate": "Test: attack rate (answers corrected)",
}
_FRACTIONS = ("rate", "validity", "mul", "@")  # how a share's key ends or reads
_PROGRESS = (
  ("code/reward/mean", "code {:.2f}"),
  ("test/validity", "valid {:.2f}"),
  ("test/attack_rate", "attack {:.2f}"),
  ("book/size", "book {:.0f}"),
  ("time/step_s", "{:.1f} s/step"),
)


# What measures the machine: two equal runs differ in these.
_MEASURED = ("time/", "compile/", "memory/", "idle/", "mfu/")


def is_measured(key: str) -> bool:
  """Whether a metric is of the machine's time or memory, not of the run."""
  return key.startswith(_MEASURED) or key.endswith("_per_s")


def is_number(value: Any) -> bool:
  """Whether a metric is one number, be it NaN."""
  return not (value is None or isinstance(value, str) or np.ndim(value))


def as_number(value: Any) -> float | None:
  """The value as a finite float, or None (missing, text, nan, infinite)."""
  if not is_number(value):
    return None
  number = float(value)
  return number if math.isfinite(number) else None


def non_finite(metrics: Mapping[str, Any]) -> list[str]:
  """Names, sorted, of the metrics that hold a NaN or an infinity."""
  numbers = {
    k: np.asarray(v, np.float64)
    for k, v in metrics.items()
    if v is not None and not isinstance(v, str)
  }
  return sorted(k for k, v in numbers.items() if not np.isfinite(v).all())


def summary_statistics(values: Any, prefix: str) -> dict[str, float]:
  """Mean, population std, 10th and 90th percentile under a prefix.

  Args:
    values: an array of any shape; NaN is not skipped, so that it is noticed.
    prefix: such as "code/reward".

  Returns:
    {prefix/mean, prefix/std, prefix/p10, prefix/p90}; empty for no values,
    as in a step where every sample was masked.
  """
  values = np.asarray(values, np.float64).ravel()
  if values.size == 0:
    return {}
  p10, p90 = np.percentile(values, [10, 90])
  stats = {"mean": values.mean(), "std": values.std(), "p10": p10, "p90": p90}
  return {f"{prefix}/{name}": float(value) for name, value in stats.items()}


def progress_line(metrics: Mapping[str, Any]) -> str:
  """The numbers that matter in a step, short enough for a progress bar."""
  parts = []
  for key, template in _PROGRESS:
    if (value := as_number(metrics.get(key))) is not None:
      parts.append(template.format(value))
  return " | ".join(parts)


class ComparisonRow(NamedTuple):
  """One line of the before -> after table, as text."""

  name: str
  before: str
  after: str
  change: str


def comparison_rows(
  before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[ComparisonRow]:
  """One row an evaluation metric that either side has, known ones first."""
  found = {k for k in (*before, *after) if k.startswith("eval/")}
  found.discard("eval/num_problems")
  keys = [k for k in EVAL_NAMES if k in found]
  keys += sorted(found - set(EVAL_NAMES))
  return [_comparison_row(k, before.get(k), after.get(k)) for k in keys]


def comparison_table(
  before: Mapping[str, Any], after: Mapping[str, Any]
) -> str:
  """Plain text: "metric  before -> after  change", then what was measured.

  Args:
    before: metrics of the first evaluation (eval/..., fractions in [0, 1]).
    after: the same of the last evaluation.

  Returns:
    Aligned lines without a final newline; changes in percentage points.
  """
  rows = comparison_rows(before, after)
  rows = [ComparisonRow("metric", "before", "after", "change"), *rows]
  name, first, last, change = (max(map(len, col)) for col in zip(*rows))
  lines = [
    f"{r.name:<{name}}  {r.before:>{first}} -> {r.after:>{last}}"
    f"  {r.change:>{change}}"
    for r in rows
  ]
  return "\n".join([*lines, *measured_on(before, after)])


def measured_on(
  before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
  """A line on the steps and the problems compared; none where not known."""
  parts = []
  if "step" in before and "step" in after:
    parts.append(f"step {before['step']} -> step {after['step']}")
  problems = [
    f"{n:.0f}"
    for x in (before, after)
    if (n := as_number(x.get("eval/num_problems"))) is not None
  ]
  if problems:
    parts.append(f"{' -> '.join(dict.fromkeys(problems))} held-out problems")
  return [", ".join(parts)] if parts else []


def is_fraction(key: str) -> bool:
  """Whether a metric is a share in [0, 1], shown as percent."""
  leaf = key.rsplit("/", 1)[-1]
  return leaf.endswith(_FRACTIONS[:3]) or _FRACTIONS[3] in leaf


def eval_name(key: str) -> str:
  """A readable name of an evaluation metric, also of one not listed above."""
  plain = key.removeprefix("eval/").replace("/", ": ", 1)
  return EVAL_NAMES.get(key, plain[:1].upper() + plain[1:])


def _comparison_row(key: str, before: Any, after: Any) -> ComparisonRow:
  scale, unit, points = (
    (100, " %", " points") if is_fraction(key) else (1, "", "")
  )
  digits = 1 if unit else 3
  ends = [as_number(before), as_number(after)]
  cells = ["-" if x is None else f"{scale * x:.{digits}f}{unit}" for x in ends]
  change = "-"
  if None not in ends:
    change = f"{scale * (ends[1] - ends[0]):+.{digits}f}{points}"
  return ComparisonRow(eval_name(key), cells[0], cells[1], change)
