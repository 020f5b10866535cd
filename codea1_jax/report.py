"""A run's workdir as one self-contained web page (report_template.html).

Programs in it are hostile text: whatever a model wrote reaches the page as
escaped text or as JSON data in which no "<" is left, never as markup, and the
page's policy lets no script run but its own.
"""

import ast
import base64
import functools
import hashlib
import html
import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from codea1_jax import dumps, jsonl, metrics, report_charts, report_compare

MAX_BYTES = 5_000_000  # of the page; rollouts that do not fit are left out
_MAX_TEXT = 6_000  # characters of a program, completion or question
_MAX_LITERAL = 600  # characters of a call or value in a table of tests
# Of a dump's record what the page has no place for; tokens are most of it.
_NOT_SHOWN = frozenset(
  ("prompt", "suite_prompt", "tokens", "returned", "replayed_returned")
)
_MAX_MISSES = 8  # rollouts too large for what is left, before giving up
_TEMPLATE = pathlib.Path(__file__).with_name("report_template.html")
# Leaves of the config that name the run; the rest is one click away.
_ESSENTIAL = re.compile(
  r"method|seed|alpha|.*(preset|model|steps|epochs|questions|codes|suites"
  r"|tests|group_size|learning_rate|kl_coef)|(codes|suites|tests|num)_\w+"
)


def render_report(workdir: str | os.PathLike) -> str:
  """The page for a run: curves, before -> after, and rollouts to browse.

  Args:
    workdir: the run's folder; metrics.jsonl must be there, config.json,
      eval.jsonl and rollouts.jsonl.zst may be missing (the page says so).

  Returns:
    HTML text below MAX_BYTES in UTF-8, with no reference to anything outside.

  Raises:
    ValueError: no metrics.jsonl, or a file that is broken.
  """
  workdir = pathlib.Path(workdir)
  if not (workdir / "metrics.jsonl").is_file():
    raise ValueError(f"{workdir}: no metrics.jsonl, so no run to report on")
  training = jsonl.read_jsonl(workdir / "metrics.jsonl")
  evaluations = _read_if_there(workdir / "eval.jsonl")
  figures, chart_data = report_charts.draw(training, evaluations)
  parts = {
    "title": _escape(workdir.resolve().name),
    "summary": _summary(training, evaluations),
    "config": _config(workdir / "config.json"),
    "comparison": _comparison(evaluations),
    "charts": figures,
    "chart_data": json_for_html(chart_data),
    "cross_play": report_compare.cross_play(workdir / "cross_play.json"),
    "rollouts": "",
    "rollouts_note": "",
  }
  template = _TEMPLATE.read_text(encoding="utf-8")
  parts["script_hash"] = _script_hash(template)
  size = len(_fill(template, parts).encode("utf-8", "replace"))
  rollouts, note = _rollouts(workdir / dumps.FILE, MAX_BYTES - size)
  parts |= {"rollouts": rollouts, "rollouts_note": note}
  page = _fill(template, parts)
  return page.encode("utf-8", "replace").decode("utf-8")  # lone surrogates


def render_comparison(workdirs: Sequence[str | os.PathLike]) -> str:
  """The page for several runs: their curves together, where each began and
  ended, and the config fields that differ.

  Raises:
    ValueError: fewer than two, too many, the same twice, or as `render_report`.
  """
  runs = report_compare.read(workdirs)
  figures, chart_data = report_compare.curves(runs)
  parts = {
    "title": _escape(" / ".join(runs)),
    "summary": f"{len(runs)} runs side by side.",
    "config": report_compare.differing_fields(runs),
    "comparison": report_compare.before_and_after(runs),
    "charts": figures,
    "chart_data": json_for_html(chart_data),
    "cross_play": "",
    "rollouts": "[]",
    "rollouts_note": "Rollouts are in each run's own report.",
  }
  template = _TEMPLATE.read_text(encoding="utf-8")
  parts["script_hash"] = _script_hash(template)
  page = _fill(template, parts)
  return page.encode("utf-8", "replace").decode("utf-8")


def json_for_html(value: Any) -> str:
  """JSON that can stand in a <script> data block: ASCII without < > &."""
  text = json.dumps(value, separators=(",", ":"))
  for char in "<>&":
    text = text.replace(char, f"\\u{ord(char):04x}")
  return text


def _fill(template: str, parts: Mapping[str, str]) -> str:
  """Puts the parts in one pass, so that a part is never filled itself."""
  return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], template)


def _script_hash(template: str) -> str:
  script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)[1]
  digest = hashlib.sha256(script.encode()).digest()
  return f"sha256-{base64.b64encode(digest).decode()}"


def _read_if_there(path: pathlib.Path) -> list[dict]:
  return jsonl.read_jsonl(path) if path.is_file() else []


def _escape(value: Any) -> str:
  return html.escape(str(value))


def _summary(training: list[dict], evaluations: list[dict]) -> str:
  """How far the run is, in one sentence."""
  if not training:
    return "No training step is written down yet."
  seconds = sum(metrics.as_number(x.get("time/step_s")) or 0 for x in training)
  hours = f", {seconds / 3600:.1f} hours in steps" if seconds else ""
  return (
    f"{len(training)} training steps, the last is step "
    f"{_escape(training[-1].get('step'))}{hours}; "
    f"{len(evaluations)} evaluations."
  )


def _config(path: pathlib.Path) -> str:
  if not path.is_file():
    return "<p class=note>This run has no config.json.</p>"
  try:
    config = json.loads(path.read_text(encoding="utf-8"))
  except json.JSONDecodeError as e:
    raise ValueError(f"{path}: not JSON: {e}") from e
  flat = dict(report_compare.flatten(config))
  essentials = {
    k: v for k, v in flat.items() if _ESSENTIAL.fullmatch(k.rsplit(".", 1)[-1])
  }
  return (
    f"<dl class=config>{_terms(essentials)}</dl>"
    f"<details><summary>Whole config ({len(flat)} fields)</summary>"
    f"<dl class=config>{_terms(flat)}</dl></details>"
  )


def _terms(fields: Mapping[str, Any]) -> str:
  return "".join(
    f"<div><dt>{_escape(k)}</dt><dd>{_escape(_clip(_shown(v), 300))}</dd></div>"
    for k, v in fields.items()
  )


def _shown(value: Any) -> str:
  return value if isinstance(value, str) else json.dumps(value)


def _comparison(evaluations: list[dict]) -> str:
  if not evaluations:
    return (
      "<p class=note>This run has no evaluation (eval.jsonl is missing or"
      " empty), so there is nothing to compare.</p>"
    )
  before, after = evaluations[0], evaluations[-1]
  body = "".join(
    f"<tr><th scope=row>{_escape(r.name)}</th><td>{_escape(r.before)}</td>"
    f"<td>{_escape(r.after)}</td><td>{_escape(r.change)}</td></tr>"
    for r in metrics.comparison_rows(before, after)
  )
  notes = [_escape(x) for x in metrics.measured_on(before, after)]
  if len(evaluations) == 1:
    notes.append("Only one evaluation so far: before and after are the same.")
  return (
    "<table class=comparison><thead><tr><th scope=col>Metric</th>"
    "<th scope=col>Before</th><th scope=col>After</th>"
    f"<th scope=col>Change</th></tr></thead><tbody>{body}</tbody></table>"
    f"<p class=note>{'. '.join(notes)}</p>"
  )


def _rollouts(path: pathlib.Path, budget: int) -> tuple[str, str]:
  """The rollouts that fit as JSON text, and a sentence on which those are."""
  places = _places(path)
  if not places:
    return "[]", f"This run has no {path.name}, or an empty one."
  # Newest and oldest in turn: two frames at a time are unpacked, not the file.
  read = functools.lru_cache(2)(lambda frame: list(dumps.lines(path, frame)))
  kept, misses, budget = {}, 0, budget - 1_000  # brackets and the sentence
  for index in _from_both_ends(len(places)):
    frame, line = places[index]
    rollout = jsonl.parse(read(frame)[line], f"{path}: rollout {index + 1}")
    text = json_for_html(_slim(rollout))
    if len(text) + 1 > budget:
      misses += 1
      if misses == _MAX_MISSES:
        break
      continue
    kept[index] = text
    budget -= len(text) + 1
  note = f"{len(kept)} of {len(places)} written rollouts are in this page"
  if left_out := len(places) - len(kept):
    note += (
      f": the oldest and the newest. {left_out} are left out to keep the page"
      f" under {MAX_BYTES / 1e6:g} MB"
    )
  return f"[{','.join(kept[i] for i in sorted(kept))}]", f"{note}."


def _places(path: pathlib.Path) -> list[tuple[dumps.Frame, int]]:
  """Each rollout's frame and line in it: the file may not fit in memory."""
  if not path.is_file():
    return []
  return [
    (frame, number)
    for frame in dumps.frames(path)
    for number, _ in enumerate(dumps.lines(path, frame))
  ]


def _from_both_ends(count: int) -> Iterable[int]:
  """The newest, the oldest, the next newest, ...: count - 1, 0, count - 2."""
  for i in range(count):
    yield i // 2 if i % 2 else count - 1 - i // 2


def _slim(rollout: dict) -> dict:
  """A rollout with long texts cut, each prediction judged, and without what
  the page does not show."""
  for code in rollout.get("codes", ()):
    for suite in code.get("suites", ()):
      for test in suite.get("tests", ()):
        test["right"] = _same_value(test.get("predicted"), test.get("oracle"))
        for key in ("call", "predicted", "oracle"):
          test[key] = _clip(test.get(key), _MAX_LITERAL)
  return _clip_all(_without(rollout, _NOT_SHOWN))


def _same_value(predicted: str | None, oracle: str | None) -> bool | None:
  """Whether two literals are equal as Python values; None without both."""
  if predicted is None or oracle is None:
    return None
  try:
    return bool(ast.literal_eval(predicted) == ast.literal_eval(oracle))
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    return predicted == oracle


def _without(value: Any, names: frozenset[str]) -> Any:
  if isinstance(value, dict):
    kept = {k: v for k, v in value.items() if k not in names}
    return {k: _without(v, names) for k, v in kept.items()}
  if isinstance(value, list):
    return [_without(v, names) for v in value]
  return value


def _clip_all(value: Any) -> Any:
  if isinstance(value, dict):
    return {k: _clip_all(v) for k, v in value.items()}
  if isinstance(value, list):
    return [_clip_all(v) for v in value]
  return _clip(value, _MAX_TEXT)


def _clip(value: Any, limit: int) -> Any:
  if not isinstance(value, str) or len(value) <= limit:
    return value
  return f"{value[:limit]} [... {len(value) - limit} characters left out]"
