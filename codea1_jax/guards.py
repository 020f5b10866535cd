"""Bounds of a healthy run: outside of them it warns, or stops."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from codea1_jax import metrics

ACTIONS = ("warn", "stop", "off")
# Metric -> the field of `config.guards` that bounds it.
_BOUNDS = {
  "code/entropy": "min_entropy",
  "test/entropy": "min_entropy",
  "code/valid_share": "min_validity",
  "test/validity": "min_validity",
  "code/zero_variance_share": "max_zero_variance",
  "test/zero_variance_share": "max_zero_variance",
}


class Breach(Exception):
  """A guard has stopped the run; the message is one line."""


class Guards:
  """Watches the means of the last steps."""

  def __init__(self, settings: Any, rows: Sequence[Mapping[str, Any]] = ()):
    """Starts, or goes on where a run stopped.

    Args:
      settings: `config.guards`.
      rows: of metrics.jsonl, the steps before; the last `steps` are enough.
    """
    self._settings = settings
    self._windows = {
      key: collections.deque(maxlen=settings.steps) for key in _BOUNDS
    }
    self._known: set[str] = set()  # metrics that were out of bounds before
    for row in rows[-settings.steps :]:
      self.check(row["step"], row)

  def check(self, step: int, values: Mapping[str, Any]) -> list[str]:
    """What is to be said of a step: one line a metric out of its bound.

    A mean needs as many steps as the config says; a step without the metric
    does not count. A warning comes once, when the mean leaves its bound.
    """
    if self._settings.action == "off":
      return []
    lines = []
    for key, window in self._windows.items():
      value = metrics.as_number(values.get(key))
      if value is None:
        continue
      window.append((step, value))
      line = self._breach(key, window)
      if line and (self._settings.action == "stop" or key not in self._known):
        lines.append(line)
      (self._known.add if line else self._known.discard)(key)
    return lines

  def _breach(self, key: str, window: Sequence[tuple[int, float]]) -> str:
    """The line on a metric that is out of its bound; "" if it is not."""
    if len(window) < self._settings.steps:
      return ""
    field = _BOUNDS[key]
    bound = self._settings[field]
    mean = sum(value for _, value in window) / len(window)
    outside = mean < bound if field.startswith("min_") else mean > bound
    if not outside:
      return ""
    first, last = window[0][0], window[-1][0]
    side = "below" if field.startswith("min_") else "above"
    return (
      f"{key} is {mean:.4g}, the mean of steps {first} to {last}: {side}"
      f" guards.{field} = {bound:g}"
    )
