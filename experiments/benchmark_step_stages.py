"""Whole steps, stage by stage, and the least that each stage could take.

Stages are "rollout code" and "rollout test" (sampling alone), sandbox, score
and update as the metrics `time/*` have them, and the rest: prompts, parsing,
rewards, the book. The least, all work on as many devices as the run has:

  rollout   prefill's operations / matmul rate, and of decoding the larger of
            operations / matmul rate and (weights + keys and values) / their
            read rates: benchmark_ceilings, rows as long as they were
  sandbox   CPU seconds of its processes / cores
  score,    operations / matmul rate
  update
  rest      nothing

Operations are those of the metrics `flops/*`: no padding, each row with a
prompt of its own, so that scoring shared prompts once may beat the ceiling.
Rates are measured after every step, in the dtype of the compute.
"""

import collections
import dataclasses
import functools
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codea1_jax import assembly, flops, trainer
from codea1_jax.player import Player, Samples
from codea1_jax.run_log import Stop
from codea1_jax.usage import Clock, Compilations, Usage
from experiments import benchmark_ceilings
from experiments.benchmark_ceilings import Work
from experiments.benchmark_sandbox_contenders import below_cpu_s

STAGES = ("rollout code", "rollout test", "sandbox", "score", "update", "rest")
WHOLE = "step"
_IDLE_TARGET = 0.1  # of the devices
_READ_BYTES = (2**22, 2**30)  # least and most; less would measure the call


@dataclasses.dataclass(frozen=True)
class Step:
  """What one step took, and the work in it."""

  seconds: dict[str, float]  # by stage, and WHOLE
  works: dict[str, list[Work]]  # by stage; one follows the other
  sandbox_cpu_s: float
  idle_share: float  # of the devices
  programs: int  # compiled in it
  read_bytes: tuple[int, int]  # of the weights, of a cache half full
  rates: dict[str, float] = dataclasses.field(default_factory=dict)


class _Watch:
  """Times what players draw, and keeps it."""

  def __init__(self):
    self.clock = Clock()
    self.draws: list[tuple[Player, Samples]] = []

  def players(self, run: assembly.Run) -> assembly.Run:
    """The run with its players watched."""
    return dataclasses.replace(
      run,
      **{
        role: dataclasses.replace(
          player, draw=functools.partial(self._draw, player)
        )
        for role, player in (("code", run.code), ("test", run.test))
      },
    )

  def _draw(self, player, params, prompts, *arguments, **named):
    with self.clock.stage(f"rollout {player.role}"):
      drawn = player.draw(params, prompts, *arguments, **named)
    self.draws.append((player, Samples(prompts, drawn)))
    return drawn


def play(config: Any, count: int) -> Iterator[Step]:
  """So many steps of the config's run from its start, one after the other.

  Raises:
    ValueError: a bad config, or one whose roles do their stages at once.
  """
  if config.placement == "split":
    raise ValueError(
      "placement = split: both roles' stages run at once, which seconds by"
      " stage do not show; colocated is measured"
    )
  with (
    tempfile.TemporaryDirectory() as workdir,
    Compilations() as compilations,
    assembly.open_run(config, workdir) as run,
  ):
    state, usage = run.initial_state(), Usage(run, compilations)
    for _ in range(count):
      watch = _Watch()
      programs = compilations.metrics["compile/programs"]
      cpu_s = below_cpu_s()
      with usage.step():
        state, numbers, _ = trainer.STEPS[config.method](
          watch.players(run), state, Stop()
        )
      cpu_s = below_cpu_s() - cpu_s
      numbers = numbers | usage.metrics(numbers)
      yield Step(
        stage_seconds(numbers, watch.clock.metrics),
        _works(numbers, watch.draws, config.rollout.max_rows),
        cpu_s,
        numbers["idle/device"],
        compilations.metrics["compile/programs"] - programs,
        _read_bytes(watch.draws, config),
      )


def stage_seconds(
  numbers: Mapping[str, float], drawn: Mapping[str, float]
) -> dict[str, float]:
  """Seconds by stage of a step with such metrics, and WHOLE."""
  found = {**numbers, **drawn}
  whole = numbers["time/step_s"]
  seconds = {name: found.get(f"time/{name}_s", 0.0) for name in STAGES}
  seconds["rest"] = whole - sum(seconds.values())
  return seconds | {WHOLE: whole}


def _works(numbers, draws, max_rows: int) -> dict[str, list[Work]]:
  """The operations and reads of the stages that use devices."""
  works = collections.defaultdict(list)
  for player, samples in draws:
    works[f"rollout {player.role}"] += rollout_works(player, samples, max_rows)
  for stage in ("score", "update"):
    needed = sum(
      numbers.get(f"{role}/flops/{stage}", 0) for role in ("code", "test")
    )
    works[stage].append(Work(float(needed), 0.0, 0.0))
  return dict(works)


def rollout_works(
  player: Player, samples: Samples, max_rows: int
) -> tuple[Work, Work]:
  """Of the prompts' pass, and of decoding; every group reads the weights."""
  model, groups = player.policy.model_config, player.parallel.num_groups
  prompts = list(map(len, samples.prompts))
  prefill = flops.sequences(model, np.array(prompts), 0)
  decode = benchmark_ceilings.decode_work(
    model,
    prompts,
    [len(c.tokens) for row in samples.completions for c in row],
    num_samples=len(samples.completions[0]),
    max_rows=groups * max_rows,
    itemsize=jnp.dtype(model.dtype).itemsize,
  )
  needed = player.drawn(samples)["flops/rollout"] - prefill
  return Work(float(prefill), 0.0, 0.0), dataclasses.replace(
    decode,
    operations=float(needed),
    weight_bytes=groups * decode.weight_bytes,
  )


def _read_bytes(draws, config) -> tuple[int, int]:
  """Sizes of the arrays whose read rates stand for the largest draw's."""
  weights, caches = [0], [0]
  for player, samples in draws:
    model = player.policy.model_config
    itemsize = jnp.dtype(model.dtype).itemsize
    rows = len(samples.prompts) * len(samples.completions[0])
    rows = min(rows, config.rollout.max_rows)
    weights.append(itemsize * benchmark_ceilings.matrix_parameters(model))
    tokens = rows * config[player.role].max_new_tokens // 2
    caches.append(itemsize * benchmark_ceilings.kv_elements(model) * tokens)
  least, most = _READ_BYTES
  return tuple(min(most, max(least, *x)) for x in (weights, caches))


def measure(config: Any, warm_up: int, rounds: int) -> list[Step]:
  """The steps after the first ones, each with the machine's rates after it."""
  steps = []
  for index, step in enumerate(play(config, warm_up + rounds)):
    if index >= warm_up:
      measured = benchmark_ceilings.measure(*step.read_bytes)
      factor = 1 if jax.default_backend() == "cpu" else jax.device_count()
      rates = {name: factor * rate["wall"] for name, rate in measured.items()}
      steps.append(dataclasses.replace(step, rates=rates))
  return steps


def least(step: Step, dtype: str, cores: int) -> dict[str, tuple[float, str]]:
  """The least seconds by stage and in all, and what the longest part of them
  is bound by."""
  found = {"sandbox": (step.sandbox_cpu_s / cores, "CPU")}
  for stage, works in step.works.items():
    bounds = [
      benchmark_ceilings.bound_seconds(work, step.rates, dtype)
      for work in works
    ]
    found[stage] = sum(seconds for seconds, _ in bounds), max(bounds)[1]
  found["rest"] = 0.0, ""
  total = sum(seconds for seconds, _ in found.values())
  return found | {WHOLE: (total, max(found.values())[1])}


def summarize(
  steps: Sequence[Step], dtype: str, cores: int
) -> dict[str, dict[str, Any]]:
  """Stage -> medians over the steps; stages that took no time are left out."""
  bounds = [least(step, dtype, cores) for step in steps]
  whole = statistics.median(step.seconds[WHOLE] for step in steps)
  lines = {}
  for stage in (*STAGES, WHOLE):
    seconds = [step.seconds[stage] for step in steps]
    if not any(seconds):
      continue
    needed = [bound[stage][0] for bound in bounds]
    median = statistics.median(seconds)
    lines[stage] = {
      "s": median,
      "lowest_s": min(seconds),
      "highest_s": max(seconds),
      "of_the_step": median / whole,
      "least_s": statistics.median(needed),
      "bound_by": statistics.mode(bound[stage][1] for bound in bounds),
      "of_the_ceiling": statistics.median(
        need / took for need, took in zip(needed, seconds)
      ),
    }
  return lines


def table(lines: Mapping[str, Mapping[str, Any]]) -> str:
  """The summary in Markdown."""
  rows = [
    "| stage | s | lowest-highest | of the step | least s | bound by |"
    " of the ceiling |",
    "|---|---|---|---|---|---|---|",
  ]
  for stage, x in lines.items():
    spread = f"{x['lowest_s']:.3f}-{x['highest_s']:.3f}"
    ceiling = [""] * 3
    if stage != "rest":
      share = f"{x['of_the_ceiling']:.0%}"
      ceiling = [f"{x['least_s']:.3f}", x["bound_by"], share]
    cells = [stage, f"{x['s']:.3f}", spread, f"{x['of_the_step']:.0%}"]
    rows.append(f"| {' | '.join(cells + ceiling)} |")
  return "\n".join(rows)


def report(config: Any, warm_up: int, rounds: int) -> dict[str, Any]:
  """Measures, prints and returns the numbers of a config's steps."""
  load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
  steps = measure(config, warm_up, rounds)
  lines = summarize(steps, config.compute.dtype, cores)
  print(table(lines) + "\n")
  idle = statistics.median(step.idle_share for step in steps)
  met = "met" if idle <= _IDLE_TARGET else "MISSED"
  print(f"Devices idle {idle:.2f}, target <= {_IDLE_TARGET:.2f}: {met}")
  rates = ", ".join(
    f"{name} {statistics.median(s.rates[name] for s in steps) / 1e9:.1f} G/s"
    for name in steps[0].rates
  )
  programs = sum(step.programs for step in steps)
  print(
    f"{len(steps)} steps of {config.compute.dtype}, {programs} programs"
    f" compiled in them. {cores} cores, {jax.device_count()} x"
    f" {jax.devices()[0].device_kind}: {rates}. Load average {load:.1f} before,"
    f" {os.getloadavg()[0]:.1f} after.",
    flush=True,
  )
  return {
    "lines": lines,
    "idle_share": idle,
    "cores": cores,
    "steps": [dataclasses.asdict(step) for step in steps],
  }
