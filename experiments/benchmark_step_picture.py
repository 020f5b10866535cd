"""The picture of a step: what its stages take and need, and how they grow."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmark_step_growth import Growth, slope
from experiments.benchmark_step_stages import STAGES, WHOLE

_PANEL = 3.6  # inches


def check(out: pathlib.Path) -> None:
  """What the picture needs is there, before long work.

  Raises:
    ValueError: no matplotlib, or numbers and picture would be one file.
    OSError: there is no such directory.
  """
  _pyplot()
  if out.suffix == ".svg":
    raise ValueError(f"--out={out} is of the numbers; the picture is beside it")
  if not out.parent.is_dir():
    raise FileNotFoundError(f"--out: no such directory: {out.parent}")


def draw(
  lines: Mapping[str, Mapping[str, Any]], growth: Growth, out: pathlib.Path
) -> None:
  """A panel of stages, and one for each field that grew, as `out`'s .svg."""
  pyplot = _pyplot()
  count = 1 + len(growth)
  figure, panels = pyplot.subplots(
    1, count, figsize=(_PANEL * (count + 0.4), _PANEL), squeeze=False
  )
  _draw_stages(panels[0][0], lines)
  for panel, (field, found) in zip(panels[0][1:], growth.items()):
    _draw_growth(panel, field, found["values"], found["seconds"])
  figure.tight_layout()
  figure.savefig(out.with_suffix(".svg"))
  pyplot.close(figure)


def _draw_stages(panel, lines) -> None:
  """Seconds as bars, the least of them inside."""
  stages = list(lines)
  for name, key, height in (("measured", "s", 0.7), ("least", "least_s", 0.35)):
    panel.barh(stages, [lines[x][key] for x in stages], height, label=name)
  for stage in stages:
    if lines[stage]["least_s"]:
      text = f" {lines[stage]['of_the_ceiling']:.0%}"
      panel.text(lines[stage]["s"], stage, text, va="center", fontsize=7)
  panel.margins(x=0.15)
  panel.invert_yaxis()
  panel.set_xlabel("seconds; share of the ceiling", fontsize=8)
  panel.tick_params(labelsize=8)
  panel.legend(fontsize=7)


def _draw_growth(
  panel, field: str, values: Sequence[float], seconds: Sequence[Mapping]
) -> None:
  """A line a stage that takes long enough; both axes are logarithmic."""
  for stage in (WHOLE, *STAGES):
    line = [found[stage] for found in seconds]
    fitted = slope(values, line)
    if fitted is not None:
      label = f"{stage} {fitted:.2f}"
      panel.plot(values, line, marker="o", linewidth=1, label=label)
  panel.set_xscale("log")
  panel.set_yscale("log")
  panel.set_xticks(values, map(str, values))
  panel.minorticks_off()
  panel.set_xlabel(field, fontsize=8)
  panel.set_ylabel("seconds; slopes", fontsize=8)
  panel.tick_params(labelsize=8)
  panel.legend(fontsize=6)


def _pyplot():
  try:
    import matplotlib
  except ImportError as error:
    raise ValueError(
      "the picture needs matplotlib: pip install codea1_jax[plots]"
    ) from error
  matplotlib.use("Agg")
  from matplotlib import pyplot

  return pyplot
