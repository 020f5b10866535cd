"""Parts of the report that set runs, or policies of them, side by side."""

import dataclasses
import html
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codea1_jax import jsonl, metrics, report_charts

# What one compares: title, metric, unit.
_COMPARED = (
  ("Reward of the Code LLM", "code/reward/mean", ""),
  ("Reward of the Test LLM", "test/reward/mean", ""),
  (
    "Held-out pass rate of the Code LLM, sampled",
    "eval/code/sampled_pass_rate",
    "%",
  ),
  ("Held-out pass rate, greedy", "eval/code/greedy_pass_rate", "%"),
  ("Valid tests, held out", "eval/test/validity", "%"),
  ("Kill rate, held out", "eval/test/kill_rate", "%"),
  ("Valid tests in training", "test/validity", "%"),
  ("Attack rate in training", "test/attack_rate", "%"),
  ("Tests in the Mistake Book", "book/size", ""),
  ("Entropy of the Code LLM", "code/entropy", ""),
  ("Entropy of the Test LLM", "test/entropy", ""),
  ("Seconds a step", "time/step_s", " s"),
)
_FEW = 12  # differing fields that are shown at once


@dataclasses.dataclass(frozen=True)
class Rows:
  """What a workdir says of its run."""

  training: list[dict]
  evaluations: list[dict]
  config: dict[str, Any]  # flat


def read(workdirs: Sequence[str | os.PathLike]) -> dict[str, Rows]:
  """The runs by label: the end of the path that tells them apart.

  Raises:
    ValueError: a wrong number of them, one given twice, or without metrics.
  """
  most = report_charts.MOST_RUNS
  paths = [pathlib.Path(workdir).resolve() for workdir in workdirs]
  if not 2 <= len(paths) <= most:
    raise ValueError(f"a comparison is of 2 to {most} runs, not {len(paths)}")
  if len(set(paths)) < len(paths):
    raise ValueError("a comparison of a run with itself: one is given twice")
  size = 1
  while len({path.parts[-size:] for path in paths}) < len(paths):
    size += 1
  return {str(pathlib.Path(*p.parts[-size:])): _read(p) for p in paths}


def curves(runs: Mapping[str, Rows]) -> tuple[str, list[dict[str, Any]]]:
  """As `report_charts.draw`, a line a run."""
  merged: dict[float, dict] = {}
  for place, run in enumerate(runs.values()):
    for step, row in report_charts.merge_rows(
      run.training, run.evaluations
    ).items():
      known = {f"{place}:{key}": value for key, value in row.items()}
      merged.setdefault(step, {}).update(known)
  panels = [
    report_charts.Panel(
      title,
      tuple((f"{i}:{key}", label) for i, label in enumerate(runs)),
      unit,
    )
    for title, key, unit in _COMPARED
  ]
  return report_charts.draw_panels(panels, dict(sorted(merged.items())))


def differing_fields(runs: Mapping[str, Rows]) -> str:
  """A table of the config fields in which the runs differ."""
  fields = dict.fromkeys(k for run in runs.values() for k in run.config)
  rows = []
  for field in fields:
    values = [json.dumps(run.config.get(field)) for run in runs.values()]
    if len(set(values)) > 1:
      rows.append((field, values))
  if not rows:
    return "<p class=note>The runs have one and the same config.</p>"
  shown = " open" if len(rows) <= _FEW else ""
  return (
    f"<details{shown}><summary>{len(rows)} config fields differ</summary>"
    f"{_table('Field', runs, rows)}</details>"
  )


def before_and_after(runs: Mapping[str, Rows]) -> str:
  """A table of each evaluation metric's first and last value in each run."""
  columns = []
  for run in runs.values():
    ends = [run.evaluations[at] for at in (0, -1)] if run.evaluations else []
    found = metrics.comparison_rows(*ends) if ends else []
    columns.append({r.name: f"{r.before} \u2192 {r.after}" for r in found})
  names = dict.fromkeys(name for column in columns for name in column)
  if not names:
    return "<p class=note>No run has an evaluation.</p>"
  rows = [(n, [column.get(n, "-") for column in columns]) for n in names]
  return _table("Metric", runs, rows)


def cross_play(path: pathlib.Path) -> str:
  """The matrix that experiments/matches.py wrote; "" where it did not.

  Raises:
    ValueError: the file is not what that program writes.
  """
  if not path.is_file():
    return ""
  try:
    found = json.loads(path.read_text(encoding="utf-8"))
    testers = [pathlib.PurePath(name).name for name in found["test"]]
    rows = [
      (
        f"{pathlib.PurePath(name).name} ({_percent(rate)} right)",
        [_percent(share) for share in shares],
      )
      for name, rate, shares in zip(
        found["code"],
        found["golden_pass_rate"],
        found["kill_rate"],
        strict=True,
      )
    ]
  except (ValueError, KeyError, TypeError) as error:
    raise ValueError(f"{path}: no cross-play: {error!r}") from error
  return (
    "<section><h2>Cross-play</h2><p class=note>Kill rate: suites of which a"
    " valid test fails the code. Rows are Code LLMs, with the share of their"
    " codes that pass all golden tests; columns are Test LLMs.</p>"
    f"{_table('Code LLM', testers, rows)}</section>"
  )


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
  """Leaves of nested dictionaries under dotted names."""
  if isinstance(value, dict) and value:
    for key, child in value.items():
      yield from flatten(child, f"{name}.{key}" if name else str(key))
  else:
    yield name, value


def _read(workdir: pathlib.Path) -> Rows:
  paths = [workdir / n for n in ("metrics.jsonl", "eval.jsonl", "config.json")]
  if not paths[0].is_file():
    raise ValueError(f"{workdir}: no metrics.jsonl, so no run to report on")
  training, evaluations = (
    jsonl.read_jsonl(path) if path.is_file() else [] for path in paths[:2]
  )
  try:
    config = json.loads(paths[2].read_text()) if paths[2].is_file() else {}
  except ValueError as error:
    raise ValueError(f"{paths[2]}: not JSON: {error}") from error
  return Rows(training, evaluations, dict(flatten(config)))


def _percent(share: float | None) -> str:
  return "-" if share is None else f"{100 * share:.1f} %"


def _table(corner: str, heads, rows: Sequence[tuple[str, list[str]]]) -> str:
  columns = "".join(f"<th scope=col>{html.escape(head)}</th>" for head in heads)
  body = "".join(
    f"<tr><th scope=row>{html.escape(name)}</th>"
    + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    + "</tr>"
    for name, cells in rows
  )
  return (
    f"<table class=matrix><thead><tr><th scope=col>{corner}</th>{columns}"
    f"</tr></thead><tbody>{body}</tbody></table>"
  )
