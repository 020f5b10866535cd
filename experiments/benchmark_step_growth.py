"""How the stages of a step grow with each of its sizes.

A field takes once, twice and four times its base, all others stay. The slope of
log(seconds) over log(field), fitted to the medians of some steps, is 1 where a
stage grows with the field, below 1 where a part of it does not, and above 1.1
superlinear. Stages that are shorter than 10 ms somewhere have none.

  questions, codes,  the config's policies, from 3 questions, 4 codes each and
  suites             2 suites each
  length             tokens of prompt and completion each, from 32, both as long
                     as allowed but for an early end now and then: policies of
                     random weights, questions repeated to be long enough
  width              hidden size from 64, of the same policies; the slope is
                     over the weights that a token meets
  devices            1, 2 and 4 forced on this machine's cores, in a process
                     each: the work stays, and the slope is what dividing costs

Policies of random weights write no program, so that the sandbox has nothing to
do in the last but one pair.
"""

import copy
import dataclasses
import multiprocessing
import os
import pathlib
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np

from codea1_jax import problems
from codea1_jax.models import convert, qwen
from codea1_jax.models.config import QwenConfig
from codea1_jax.tiny import DATA
from experiments import benchmark_ceilings
from experiments.benchmark_step_stages import STAGES, WHOLE, play

_BASE = {"questions": 3, "codes": 4, "suites": 2}
_TOKENS, _WIDTH = 32, 64
FIELDS = (*_BASE, "length", "width", "devices")
_FACTORS = (1, 2, 4)
_PROBLEMS = 48  # whose ground truths every run checks first
_REPEATS = 32  # of a question: more tokens than the longest prompt
SUPERLINEAR = 1.1
_SHORTEST = 0.01  # seconds
_FORCE = "--xla_force_host_platform_device_count"

# Field -> its values, and the seconds of each by stage.
Growth = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class _Point:
  """A run: what changes in the config, how large that is, on what devices."""

  changes: tuple[tuple[str, Any], ...]
  value: int
  devices: int = 0  # forced; 0: those there are


def check(fields: Iterable[str]) -> None:
  """Names a field that cannot grow.

  Raises:
    ValueError: it is unknown, or devices cannot be forced here.
  """
  for field in fields:
    if field not in FIELDS:
      raise ValueError(f"--grow: {field!r} is not one of {', '.join(FIELDS)}")
  if "devices" in fields and jax.default_backend() != "cpu":
    raise ValueError("--grow: devices are forced where jax runs on a CPU only")


def report(
  config: Any, fields: Sequence[str], warm_up: int, rounds: int
) -> Growth:
  """Measures, prints and returns how a config's stages grow."""
  growth, known = {}, {}
  with tempfile.TemporaryDirectory() as folder:
    for field in fields:
      points = [_point(field, n, config, folder) for n in _FACTORS]
      for point in points:
        key = dataclasses.replace(point, value=0)
        if key not in known:
          known[key] = _medians(config, point, warm_up, rounds)
      growth[field] = {
        "values": [point.value for point in points],
        "seconds": [known[dataclasses.replace(p, value=0)] for p in points],
      }
      print(f"\n{field}: {growth[field]['values']} done", flush=True)
  if growth:
    print("\n" + table(growth), flush=True)
  return growth


def _point(field: str, factor: int, config: Any, folder: str) -> _Point:
  """One of the runs of a field."""
  sizes = dict(_BASE)
  changes = {"max_train_problems": _PROBLEMS}
  value, devices = factor, 0
  if field in sizes:
    value = sizes[field] = factor * sizes[field]
  elif field == "devices":
    devices = factor
  else:
    tokens = _TOKENS * (factor if field == "length" else 1)
    width = _WIDTH * (factor if field == "width" else 1)
    changes |= _random_run(pathlib.Path(folder), width, tokens)
    value = tokens
    if field == "width":
      value = benchmark_ceilings.matrix_parameters(_model(width))
  changes |= {f"rollout.{name}": size for name, size in sizes.items()}
  return _Point(tuple(sorted(changes.items())), value, devices)


def _model(width: int) -> QwenConfig:
  heads = width // 32
  return QwenConfig(1024, width, 3 * width, 2, heads, -(-heads // 2), 32)


def _random_run(
  folder: pathlib.Path, width: int, tokens: int
) -> dict[str, Any]:
  """The changes that make texts so long, written by a model so wide."""
  model, config = folder / f"width{width}", _model(width)
  if not model.exists():
    params = qwen.init_params(config, jax.random.key(0))
    convert.save_pretrained(
      model, config, params, tokenizer_from=DATA / "code_llm"
    )
  questions = folder / "questions.jsonl"
  if not questions.exists():
    rows = problems.load_problems(DATA / "train.jsonl")[:_PROBLEMS]
    longer = [
      dataclasses.replace(row, question=f"{row.question} " * _REPEATS)
      for row in rows
    ]
    problems.save_problems(questions, longer)
  models = ("code.model", "test.model", "self_play_model")
  limits = ("max_prompt_tokens", "max_new_tokens")
  return {
    "train_problems": str(questions),
    **dict.fromkeys(models, str(model)),
    **{f"{role}.{x}": tokens for role in ("code", "test") for x in limits},
  }


def _medians(
  config: Any, point: _Point, warm_up: int, rounds: int
) -> dict[str, float]:
  """Seconds by stage of a run's steps after the first ones."""
  config = copy.deepcopy(config)
  with config.unlocked():
    config.update_from_flattened_dict(dict(point.changes))
  if not point.devices:
    return play_medians(config, warm_up, rounds)
  before = os.environ.get("XLA_FLAGS", "")
  kept = [flag for flag in before.split() if not flag.startswith(_FORCE)]
  os.environ["XLA_FLAGS"] = " ".join([*kept, f"{_FORCE}={point.devices}"])
  try:  # jax counts devices once a process
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(1, context) as process:
      return process.submit(play_medians, config, warm_up, rounds).result()
  finally:
    os.environ["XLA_FLAGS"] = before


def play_medians(config: Any, warm_up: int, rounds: int) -> dict[str, float]:
  """Plays, and takes the medians of the steps after the warm-up."""
  steps = list(play(config, warm_up + rounds))[warm_up:]
  return {
    stage: statistics.median(step.seconds[stage] for step in steps)
    for stage in (*STAGES, WHOLE)
  }


def slope(values: Sequence[float], seconds: Sequence[float]) -> float | None:
  """d log(seconds) / d log(value); None where seconds are too few to tell."""
  if min(seconds) < _SHORTEST:
    return None
  return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def slopes(growth: Growth) -> dict[str, dict[str, float | None]]:
  """Field -> stage -> slope."""
  return {
    field: {
      stage: slope(found["values"], [s[stage] for s in found["seconds"]])
      for stage in (WHOLE, *STAGES)
    }
    for field, found in growth.items()
  }


def table(growth: Growth) -> str:
  """Slopes in Markdown, and what is superlinear."""
  fitted = slopes(growth)
  heads = ["field", "values", WHOLE, *STAGES]
  lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
  steep = []
  for field, found in fitted.items():
    values = ", ".join(map(str, growth[field]["values"]))
    cells = ["-" if x is None else f"{x:.2f}" for x in found.values()]
    for at, (stage, x) in enumerate(found.items()):
      if x is not None and x > SUPERLINEAR:
        cells[at] = f"**{cells[at]}**"
        steep.append(f"{stage} over {field} ({x:.2f})")
    lines.append(f"| {' | '.join([field, values, *cells])} |")
  said = ", ".join(steep) or "nothing"
  return "\n".join([*lines, "", f"Superlinear: {said}"])
