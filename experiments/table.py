"""Markdown table of finished runs, one row a setting, seeds side by side.

  python -m experiments.table runs/code_a1_* runs/golden_tests_*

A row is named after the work directory without its last _SEED.
"""

import collections
import pathlib

from absl import app

from codea1_jax import metrics
from experiments import command_line

_COLUMNS = {
  "pass rate": "eval/code/sampled_pass_rate",
  "greedy": "eval/code/greedy_pass_rate",
  "valid": "eval/test/validity",
  "kill rate": "eval/test/kill_rate",
}


def cell(values: list[float]) -> str:
  """Mean of the seeds, and each of them."""
  mean = sum(values) / len(values)
  each = ", ".join(f"{100 * v:.0f}" for v in values)
  return f"{100 * mean:.1f}" + (f" ({each})" if len(values) > 1 else "")


def main(arguments):
  if len(arguments) < 2:
    command_line.fail("name the work directories of the runs")
  rows = collections.defaultdict(list)
  for workdir in sorted(map(pathlib.Path, arguments[1:])):
    try:
      evaluations = metrics.read_jsonl(workdir / "eval.jsonl")
    except (OSError, ValueError) as error:
      command_line.fail(error)
    name = workdir.name.rsplit("_", 1)[0]
    rows[f"{name}, before"].append(evaluations[0])
    rows[f"{name}, after"].append(evaluations[-1])
  print("| | steps | " + " | ".join(_COLUMNS) + " |")
  print("|---" * (2 + len(_COLUMNS)) + "|")
  for name, evaluations in rows.items():
    cells = [cell([e[key] for e in evaluations]) for key in _COLUMNS.values()]
    steps = "/".join(dict.fromkeys(str(e["step"]) for e in evaluations))
    print(f"| {name} | {steps} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
