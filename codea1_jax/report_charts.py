"""A run's curves as inline SVG, with the numbers for the page's readout."""

import dataclasses
import html
import math
from collections.abc import Iterable, Mapping
from typing import Any

from codea1_jax import metrics, types

_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 18, 10, 24
_MAX_POINTS = 200  # a curve; longer runs are averaged in bins
_MARKED_POINTS = 30  # curves with no more points show each as a dot


@dataclasses.dataclass(frozen=True)
class Panel:
  """One chart: its series are (metric key, label); `stacked` adds them up."""

  title: str
  series: tuple[tuple[str, str], ...]
  unit: str = ""  # "%": shares of 1, drawn from 0 to 100 %; or a suffix
  stacked: bool = False


@dataclasses.dataclass(frozen=True)
class Curves:
  """A panel's numbers: `values[i][j]` of series i at `steps[j]`, or None."""

  steps: tuple[float, ...]
  values: tuple[tuple[float | None, ...], ...]
  bin_size: int = 1  # steps averaged in a point


def _both(metric: str) -> tuple[tuple[str, str], ...]:
  return (f"code/{metric}", "Code LLM"), (f"test/{metric}", "Test LLM")


_PANELS = (
  Panel("Reward", _both("reward/mean")),
  Panel(
    "Held-out pass rate of the Code LLM",
    (
      ("eval/code/greedy_pass_rate", "greedy"),
      ("eval/code/sampled_pass_rate", "sampled"),
    ),
    "%",
  ),
  Panel(
    "Pass rate of the Code LLM in training",
    (("code/pass_rate", "Code LLM"),),
    "%",
  ),
  Panel(
    "Valid tests of the Test LLM",
    (("test/validity", "training"), ("eval/test/validity", "held out")),
    "%",
  ),
  Panel(
    "Attack rate and kill rate of the Test LLM",
    (
      ("test/attack_rate", "attack rate, training"),
      ("eval/test/attack_rate", "attack rate, held out"),
      ("eval/test/kill_rate", "kill rate, held out"),
    ),
    "%",
  ),
  Panel(
    "Mistake Book", (("book/size", "tests"), ("book/questions", "questions"))
  ),
  Panel("Loss", _both("loss")),
  Panel("Gradient norm", _both("grad_norm")),
  Panel("KL to the reference", _both("kl")),
  Panel("Entropy", _both("entropy")),
  Panel("Clipped tokens", _both("clip_fraction"), "%"),
  Panel("Sandbox speed", (("sandbox/exec_per_s", "executions"),), " / s"),
  Panel(
    "Verdicts of all executions",
    tuple((f"verdicts/{x}", str(x)) for x in types.Status),
    "%",
    stacked=True,
  ),
)


MOST_RUNS = 8  # as many colors as the page has


def draw(
  training: list[dict], evaluations: list[dict]
) -> tuple[str, list[dict[str, Any]]]:
  """Draws every panel that the run has numbers for.

  Args:
    training: rows of metrics.jsonl.
    evaluations: rows of eval.jsonl.

  Returns:
    The figures as HTML, and what the page's script reads out at a step: for
    each figure its plot range, unit, steps and values.
  """
  rows = merge_rows(training, evaluations)
  return draw_panels((*_PANELS, _stage_times(rows)), rows)


def draw_panels(
  panels: Iterable[Panel], rows: Mapping[float, Mapping]
) -> tuple[str, list[dict[str, Any]]]:
  """As `draw`, of any panels and of rows by their steps, in order."""
  span = (min(rows), max(rows)) if rows else (0.0, 1.0)
  figures, data, missing = [], [], []
  for panel in panels:
    panel, curves = _collect(panel, rows)
    if not panel.series:
      missing.append(panel.title)
      continue
    axes = _axes(panel, curves, span)
    figures.append(_figure(panel, curves, axes))
    data.append(_readout(panel, curves, axes))
  note = ""
  if missing:
    names = html.escape(", ".join(missing))
    note = f"<p class=note>Not recorded in this run: {names}.</p>"
  return f"<div class=charts>{''.join(figures)}</div>{note}", data


def merge_rows(*sources: Iterable[Mapping[str, Any]]) -> dict[float, dict]:
  """All rows by step; a step written twice keeps what was written last."""
  rows = {}
  for row in (row for source in sources for row in source):
    if (step := metrics.as_number(row.get("step"))) is not None:
      rows.setdefault(step, {}).update(row)
  return dict(sorted(rows.items()))


def _stage_times(rows: Mapping[float, Mapping]) -> Panel:
  keys = {k: None for row in rows.values() for k in row}
  series = tuple(
    (k, k.removeprefix("time/").removesuffix("_s").replace("_", " "))
    for k in keys
    if k.startswith("time/") and k.endswith("_s") and k != "time/step_s"
  )
  return Panel("Seconds a step, by stage", series, " s", stacked=True)


def _collect(
  panel: Panel, rows: Mapping[float, Mapping]
) -> tuple[Panel, Curves]:
  """The panel without its empty series, and the numbers of the others."""
  columns = {
    key: [metrics.as_number(row.get(key)) for row in rows.values()]
    for key, _ in panel.series
  }
  series = tuple(x for x in panel.series if any(_known(columns[x[0]])))
  used = [columns[key] for key, _ in series]
  present = [any(_known(at)) for at in zip(*used)]
  steps = [s for s, keep in zip(rows, present) if keep]
  used = [[v for v, keep in zip(x, present) if keep] for x in used]
  if panel.stacked and panel.unit == "%":
    used = _shares(used)
  panel = dataclasses.replace(panel, series=series)
  # An evaluation's number is shown as it was measured, never averaged.
  joins = [_last if "eval/" in k else _mean for k, _ in series]
  return panel, _binned(steps, used, joins)


def _known(values: Iterable) -> list[bool]:
  return [x is not None for x in values]


def _shares(columns: list[list]) -> list[list]:
  """Counts as shares of their step's total."""
  totals = [sum(x or 0 for x in at) for at in zip(*columns)]
  return [
    [(x or 0) / total if total else 0.0 for x, total in zip(column, totals)]
    for column in columns
  ]


def _binned(steps: list, columns: list[list], joins: list) -> Curves:
  size = max(1, math.ceil(len(steps) / _MAX_POINTS))
  starts = range(0, len(steps), size)
  values = tuple(
    tuple(join(column[i : i + size]) for i in starts)
    for join, column in zip(joins, columns)
  )
  ends = tuple(steps[i : i + size][-1] for i in starts)
  return Curves(ends, values, size)


def _mean(values: list) -> float | None:
  known = [x for x in values if x is not None]
  return sum(known) / len(known) if known else None


def _last(values: Any) -> float | None:
  return next((x for x in reversed(values) if x is not None), None)


@dataclasses.dataclass(frozen=True)
class _Axes:
  """Maps steps and values to the drawing's coordinates."""

  first: float
  last: float
  low: float
  high: float

  def x(self, step: float) -> float:
    share = (step - self.first) / ((self.last - self.first) or 1)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

  def y(self, value: float) -> float:
    share = (value - self.low) / (self.high - self.low)
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _axes(panel: Panel, curves: Curves, span: tuple[float, float]) -> _Axes:
  known = [x for column in curves.values for x in column if x is not None]
  totals = [sum(x or 0 for x in at) for at in zip(*curves.values)]
  known += totals if panel.stacked else []
  low, high = min(0.0, *known), max(0.0, *known)
  if panel.unit == "%" and low >= 0 and high < 1.001:
    high = 1.0 if high > 0.1 else 0.1  # rare events keep their shape
  if high == low:
    high = low + 1.0
  return _Axes(*span, low, high)


def _figure(panel: Panel, curves: Curves, axes: _Axes) -> str:
  title = html.escape(panel.title)
  if curves.bin_size > 1:
    title += f" <small>(means of {curves.bin_size} steps)</small>"
  label = html.escape(f"{panel.title}. {_in_words(panel, curves)}")
  drawn = _areas(curves, axes) if panel.stacked else _lines(curves, axes)
  bottom = _HEIGHT - _BOTTOM
  return (
    f"<figure><figcaption>{title}</figcaption>"
    f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role=img aria-label="{label}">'
    f"{_grid(panel, axes)}{drawn}"
    f'<line class=cursor x1="{_LEFT}" x2="{_LEFT}" y1="{_TOP}" y2="{bottom}">'
    f"</line></svg><ul class=legend>{_legend(panel, curves)}</ul></figure>"
  )


def _lines(curves: Curves, axes: _Axes) -> str:
  drawn = []
  for i, column in enumerate(curves.values):
    # Evaluations are rarer than steps: a line runs on over missing values.
    points = [
      f"{axes.x(step):.1f} {axes.y(value):.1f}"
      for step, value in zip(curves.steps, column)
      if value is not None
    ]
    dots = points if len(points) <= _MARKED_POINTS else ()
    circles = "".join(
      '<circle cx="{}" cy="{}" r="2.5"></circle>'.format(*x.split())
      for x in dots
    )
    path = "L".join(points)
    drawn.append(f'<g class="line s{i}"><path d="M{path}"/>{circles}</g>')
  return "".join(drawn)


def _areas(curves: Curves, axes: _Axes) -> str:
  steps, columns = curves.steps, curves.values
  if len(steps) == 1:  # one step has no width: draw it over the whole chart
    steps, columns = (axes.first, axes.last or 1), [c * 2 for c in columns]
  below = [0.0] * len(steps)
  drawn = []
  for i, column in enumerate(columns):
    above = [low + (x or 0) for low, x in zip(below, column)]
    edge = [*zip(steps, above), *reversed([*zip(steps, below)])]
    points = " ".join(f"{axes.x(s):.1f},{axes.y(v):.1f}" for s, v in edge)
    drawn.append(f'<polygon class="area s{i}" points="{points}"/>')
    below = above
  return "".join(drawn)


def _grid(panel: Panel, axes: _Axes) -> str:
  parts = []
  for value in _ticks(axes.low, axes.high, 4):
    y = f"{axes.y(value):.1f}"
    parts.append(
      f'<line class=grid x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" '
      f'y2="{y}"/><text class=ytick x="{_LEFT - 5}" y="{y}">'
      f"{_tick_text(panel, value)}</text>"
    )
  for step in _ticks(axes.first, axes.last, 5):
    if step == int(step):
      parts.append(
        f'<text class=xtick x="{axes.x(step):.1f}" y="{_HEIGHT - 8}">'
        f"{step:g}</text>"
      )
  return "".join(parts)


def _ticks(low: float, high: float, count: int) -> list[float]:
  """Round numbers, 1, 2 or 5 times a power of ten apart, about `count`."""
  if high <= low:
    return [low]
  rough = (high - low) / count
  power = 10.0 ** math.floor(math.log10(rough))
  gap = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
  first, last = math.ceil(low / gap - 1e-9), math.floor(high / gap + 1e-9)
  return [i * gap for i in range(first, last + 1)]


def _tick_text(panel: Panel, value: float) -> str:
  return f"{100 * value:.3g} %" if panel.unit == "%" else f"{value:.4g}"


def _legend(panel: Panel, curves: Curves) -> str:
  items = []
  mark, shape = "line", '<path d="M0 5L26 5"/>'
  if panel.stacked:
    mark, shape = "area", '<rect width="26" height="10"/>'
  for i, (_, label) in enumerate(panel.series):
    items.append(
      f'<li><svg class=key viewBox="0 0 26 10" aria-hidden=true>'
      f'<g class="{mark} s{i}">{shape}</g></svg> {html.escape(label)} '
      f"<output>{_value_text(panel, _last(curves.values[i]))}</output></li>"
    )
  return "".join(items)


def _in_words(panel: Panel, curves: Curves) -> str:
  """What the drawing shows, for those who do not see it."""
  return "; ".join(
    f"{label}: from {_value_text(panel, _last(column[::-1]))} "
    f"to {_value_text(panel, _last(column))}"
    for (_, label), column in zip(panel.series, curves.values)
  )


def _value_text(panel: Panel, value: float) -> str:
  if panel.unit == "%":
    return f"{100 * value:.1f} %"
  return f"{value:.4g}{panel.unit}"


def _readout(panel: Panel, curves: Curves, axes: _Axes) -> dict[str, Any]:
  digits = [
    [None if x is None else float(f"{x:.5g}") for x in column]
    for column in curves.values
  ]
  return {
    "left": _LEFT / _WIDTH,
    "right": 1 - _RIGHT / _WIDTH,
    "width": _WIDTH,
    "first": axes.first,
    "last": axes.last,
    "unit": panel.unit,
    "binned": curves.bin_size > 1,
    "steps": curves.steps,
    "values": digits,
  }
