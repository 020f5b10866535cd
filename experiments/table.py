"""Markdown table of finished runs, one row a setting, seeds side by side.

  python -m experiments.table [--training] runs/code_a1_* runs/golden_tests_*

A row is named after the work directory without a _SEED at its end. `--training`
adds what the training steps say: the coder's own reward beside the share of the
same codes that pass all golden tests (`evaluation.train_pass_rate`), each the
mean of the first and of the last ten steps, and the book's size after a third,
two thirds and all of the steps.
"""

import collections
import pathlib
import re
from collections.abc import Sequence

from absl import app, flags

from codea1_jax import jsonl
from experiments import command_line

_TRAINING = flags.DEFINE_bool("training", False, "Training columns too.")
_COLUMNS = {
  "pass rate": "eval/code/sampled_pass_rate",
  "greedy": "eval/code/greedy_pass_rate",
  "valid": "eval/test/validity",
  "kill rate": "eval/test/kill_rate",
}
_TRAINING_COLUMNS = ("own reward", "golden pass rate", "book")
_STEPS = 10  # at either end


def cell(values: Sequence[float]) -> str:
  """Mean of the seeds, and each of them, in percent."""
  mean = sum(values) / len(values)
  each = ", ".join(f"{100 * v:.0f}" for v in values)
  return f"{100 * mean:.1f}" + (f" ({each})" if len(values) > 1 else "")


def _mean(values: Sequence[float]) -> float:
  return sum(values) / len(values)


def training_cells(runs: Sequence[Sequence[dict]]) -> list[str]:
  """Own reward, golden pass rate and book size of some seeds' steps."""
  cells = []
  for key in ("code/reward/mean", "code/pass_rate"):
    ends = [
      [100 * _mean([row[key] for row in rows[part]]) for rows in runs]
      for part in (slice(_STEPS), slice(-_STEPS, None))
      if all(key in row for rows in runs for row in rows)
    ]
    cells.append(" -> ".join(f"{_mean(end):.1f}" for end in ends) or "-")
  known = all("book/size" in row for rows in runs for row in rows)
  thirds = [
    _mean([rows[-(-len(rows) * k // 3) - 1]["book/size"] for rows in runs])
    for k in (1, 2, 3)
    if known
  ]
  return [*cells, ", ".join(f"{size:.0f}" for size in thirds) or "-"]


def main(arguments):
  if len(arguments) < 2:
    command_line.fail("name the work directories of the runs")
  rows, steps = collections.defaultdict(list), collections.defaultdict(list)
  for workdir in sorted(map(pathlib.Path, arguments[1:])):
    name = re.sub(r"_\d+$", "", workdir.name)
    try:
      evaluations = jsonl.read_jsonl(workdir / "eval.jsonl")
      if _TRAINING.value:
        steps[name].append(jsonl.read_jsonl(workdir / "metrics.jsonl"))
    except (OSError, ValueError) as error:
      command_line.fail(error)
    rows[f"{name}, before"].append(evaluations[0])
    rows[f"{name}, after"].append(evaluations[-1])
  columns = [*_COLUMNS, *(_TRAINING_COLUMNS if _TRAINING.value else ())]
  print("| | steps | " + " | ".join(columns) + " |")
  print("|---" * (2 + len(columns)) + "|")
  for name, evaluations in rows.items():
    cells = [cell([e[key] for e in evaluations]) for key in _COLUMNS.values()]
    setting, _, when = name.rpartition(", ")
    if _TRAINING.value:
      more = training_cells(steps[setting])
      cells += more if when == "after" else [""] * len(more)
    numbers = "/".join(dict.fromkeys(str(e["step"]) for e in evaluations))
    print(f"| {name} | {numbers} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
