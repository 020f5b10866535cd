"""A sweep's runs as a table and a picture: means and spread over seeds."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codea1_jax import jsonl, metrics
from codea1_jax.sweep import Changes, SweepRun, settings

# A setting with, by metric, the values before and after of each done run.
Row = tuple[Changes, dict[str, tuple[list[float], list[float]]]]


def collect(runs: Sequence[SweepRun]) -> list[Row]:
  """One row a setting that has a run which is done."""
  rows = []
  for shared, group in settings(runs):
    found: dict[str, tuple[list[float], list[float]]] = {}
    for run in group:
      if not run.done:
        continue
      evaluations = jsonl.read_jsonl(run.workdir / "eval.jsonl")
      for key in metrics.EVAL_NAMES:
        ends = [metrics.as_number(evaluations[at].get(key)) for at in (0, -1)]
        if None not in ends:
          before, after = found.setdefault(key, ([], []))
          before.append(ends[0])
          after.append(ends[1])
    if found:
      rows.append((shared, found))
  return rows


def markdown(rows: Sequence[Row]) -> str:
  """Mean before -> mean after ± standard deviation (of the population of
  seeds), in percent."""
  fields = list(dict.fromkeys(name for shared, _ in rows for name in shared))
  keys = [k for k in metrics.EVAL_NAMES if any(k in found for _, found in rows)]
  heads = [*fields, "seeds", *map(metrics.eval_name, keys)]
  lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
  for shared, found in rows:
    seeds = max(len(after) for _, after in found.values())
    cells = [str(shared.get(name, "")) for name in fields] + [str(seeds)]
    cells += [_cell(found.get(key)) for key in keys]
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines)


def draw(rows: Sequence[Row], path: pathlib.Path) -> None:
  """A panel a metric: after training, over the field with most values; a line
  for each setting of the others, bars from the least to the largest seed.

  Raises:
    ValueError: matplotlib is not installed.
  """
  try:
    import matplotlib
  except ImportError as error:
    raise ValueError(
      "the picture needs matplotlib: pip install codea1_jax[plots]"
    ) from error
  matplotlib.use("Agg")
  from matplotlib import pyplot

  keys = [k for k in metrics.EVAL_NAMES if any(k in found for _, found in rows)]
  along, others = _axes(rows)
  figure, panels = pyplot.subplots(
    1, len(keys), figsize=(3.2 * len(keys), 3.2), squeeze=False
  )
  for key, panel in zip(keys, panels[0]):
    for label, line in _lines(rows, key, along, others).items():
      values, means, low, high = line
      spread = [means - low, high - means]
      panel.errorbar(
        values, means, spread, label=label, marker="o", capsize=3, linewidth=1
      )
    panel.set_title(metrics.eval_name(key), fontsize=9)
    panel.set_xlabel(along, fontsize=8)
    panel.set_ylabel("%", fontsize=8)
    panel.tick_params(labelsize=8)
    if _is_logarithmic([shared.get(along) for shared, _ in rows]):
      panel.set_xscale("log")
  if others:
    panels[0][0].legend(fontsize=7)
  figure.tight_layout()
  figure.savefig(path)
  pyplot.close(figure)


def _cell(values) -> str:
  if values is None:
    return "-"
  before, after = (100 * np.array(x) for x in values)
  return f"{before.mean():.1f} -> {after.mean():.1f} ± {after.std():.1f}"


def _axes(rows: Sequence[Row]) -> tuple[str, list[str]]:
  """The field to draw along, and the others that change."""
  values: dict[str, set[str]] = {}
  for shared, _ in rows:
    for name, value in shared.items():
      values.setdefault(name, set()).add(repr(value))
  changing = [name for name, seen in values.items() if len(seen) > 1]
  along = max(changing or values, key=lambda n: len(values[n]), default="")
  return along, [name for name in changing if name != along]


def _lines(rows, key, along, others) -> Mapping[str, Any]:
  """label -> values of `along`, means, least and largest, in percent."""
  points: dict[str, list[tuple]] = {}
  for shared, found in rows:
    if key not in found:
      continue
    label = ", ".join(f"{n.split('.')[-1]} {shared.get(n)}" for n in others)
    after = 100 * np.array(found[key][1])
    value = shared.get(along)
    if not isinstance(value, int | float) or isinstance(value, bool):
      value = str(value)
    points.setdefault(label, []).append(
      (value, after.mean(), after.min(), after.max())
    )
  return {
    label: tuple(map(np.array, zip(*sorted(line, key=lambda p: p[0]))))
    for label, line in points.items()
  }


def _is_logarithmic(values: Sequence[Any]) -> bool:
  """Whether the values span more than a factor of eight."""
  if not all(isinstance(v, int | float) and v > 0 for v in values):
    return False
  return max(values) > 8 * min(values)
