"""Sampling speed beside transformers (PyTorch) and google-tunix, on a CPU.

  python -m experiments.benchmark_rollout --sizes=A,B [--model=DIR]
    [--tunix_python=PATH] [--rounds=5] [--out=FILE]

The same weights, prompts, stop tokens and limit for all; temperature 1, no
truncation. `--sizes` are random weights with random prompts; a 64th of the
vocabulary are stop tokens, so that lengths spread as a coin's would. `--model`
is a real model, asked the shipped problems, with its own stop tokens.
`--contenders` are NAME:DTYPE of ours, transformers and tunix; how they take
turns: benchmark_rounds.

Tokens a second count sampled tokens, the stop included (each contender draws
its own: `length` is their mean). CPU is user and system time of the process, on
a shared machine the steadier number. Ratios are medians over the rounds of the
ratio within a round, to transformers:float32. Peak memory is the process's.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from absl import app, flags

from experiments import (
  benchmark_ceilings,
  benchmark_jobs,
  benchmark_rounds,
  command_line,
)
from experiments.benchmark_flags import OUT, ROUNDS
from experiments.benchmark_rounds import median_ratio, number
from experiments.benchmark_workers import Worker, WorkerError

BASELINE = "transformers:float32"
CONTENDERS = tuple(
  f"{kind}:{dtype}"
  for kind in ("ours", "transformers", "tunix")
  for dtype in ("float32", "bfloat16")
)

DEFAULT = (  # of --contenders
  "ours:float32",
  "ours:bfloat16",
  "transformers:float32",
  "tunix:float32",
)

_MODEL = flags.DEFINE_string("model", None, "Directory of a real model.")
_ROWS = flags.DEFINE_integer(
  "max_rows", 128, "Rows in our decode loop at once.", 1
)
_PEER_ROWS = flags.DEFINE_integer(
  "peer_rows", 512, "Rows in a batch of the other contenders.", 1
)


def _turn(worker: Worker, job: benchmark_jobs.Job, seed: int) -> dict[str, Any]:
  """One measurement; the tokens are checked, only lengths are kept."""
  answer = benchmark_rounds.ask(worker, "sample", seed)
  rows = answer.pop("result")
  benchmark_jobs.check_rows(job, rows)
  answer["lengths"] = [len(row) for row in rows]
  if worker.kind == "ours":
    prefill = worker.ask({"call": "prefill", "arguments": [seed]})
    answer |= {f"prefill_{key}": prefill[key] for key in ("wall_s", "cpu_s")}
  return answer


def run(
  job: benchmark_jobs.Job,
  contenders: Sequence[str],
  rounds: int,
  *,
  tunix_python: str | None = None,
  say: benchmark_rounds.Say = benchmark_rounds.say_aside,
) -> dict[str, Any]:
  """Measures contenders NAME:DTYPE in turns, see `benchmark_rounds.run`."""
  parts = [(name, *name.split(":")) for name in contenders]
  return benchmark_rounds.run(
    [
      benchmark_rounds.Contender(
        name, kind, dataclasses.asdict(job) | {"dtype": dtype}
      )
      for name, kind, dtype in parts
    ],
    lambda worker, seed: _turn(worker, job, seed),
    rounds,
    read_bytes=benchmark_jobs.read_sizes(job),
    pythons={"tunix": tunix_python},
    say=say,
  )


def _share(job: benchmark_jobs.Job, name: str, turns, ceilings, clock: str):
  """Median share of the ceiling that our decode loop reaches, what binds."""
  dtype = name.split(":")[1]
  rates = benchmark_rounds.median_rates(ceilings, clock)
  prefill = statistics.median(turn[f"prefill_{clock}_s"] for turn in turns)
  shares, binds = [], ""
  for turn in turns:
    work = benchmark_ceilings.decode_work(
      benchmark_jobs.read_config(job.model),
      [len(prompt) for prompt in job.prompts],
      turn["lengths"],
      num_samples=job.num_samples,
      max_rows=job.max_rows,
      itemsize=jnp.dtype(dtype).itemsize,
    )
    bound, binds = benchmark_ceilings.bound_seconds(work, rates, dtype)
    shares.append(bound / (turn[f"{clock}_s"] - prefill))
  return statistics.median(shares), binds


def summarize(
  job: benchmark_jobs.Job, measured: dict[str, Any]
) -> dict[str, dict[str, Any]]:
  """Contender -> the numbers of its line in the table."""
  lines = {}
  for name, (warm_up, *turns) in measured["turns"].items():
    tokens = [sum(turn["lengths"]) for turn in turns]
    speeds = [n / turn["wall_s"] for n, turn in zip(tokens, turns)]
    cpu_ms = [1e3 * turn["cpu_s"] / n for n, turn in zip(tokens, turns)]
    lines[name] = {
      "tokens_per_s": statistics.median(speeds),
      "lowest": min(speeds),
      "highest": max(speeds),
      "cpu_ms_per_token": statistics.median(cpu_ms),
      "mean_length": sum(tokens) / sum(len(t["lengths"]) for t in turns),
      "warm_up_s": warm_up["wall_s"],
      "peak_gib": turns[-1]["peak_bytes"] / 2**30,
      "speeds": speeds,
      "cpu_ms": cpu_ms,
    }
    if name.startswith("ours:"):
      for clock in ("wall", "cpu"):
        share, binds = _share(job, name, turns, measured["ceilings"], clock)
        lines[name] |= {f"share_{clock}": share, f"binds_{clock}": binds}
  base = lines.get(BASELINE)
  for line in lines.values() if base else ():
    line["ratio_wall"] = median_ratio(line["speeds"], base["speeds"])
    line["ratio_cpu"] = median_ratio(base["cpu_ms"], line["cpu_ms"])
  return lines


_COLUMNS = (
  ("contender", lambda name, line: name),
  ("tokens/s", lambda name, line: f"{line['tokens_per_s']:.0f}"),
  ("lowest-highest", lambda _, x: f"{x['lowest']:.0f}-{x['highest']:.0f}"),
  ("x wall", lambda _, line: number(line.get("ratio_wall"), ".2f")),
  ("CPU ms/token", lambda _, line: f"{line['cpu_ms_per_token']:.2f}"),
  ("x CPU", lambda _, line: number(line.get("ratio_cpu"), ".2f")),
  ("length", lambda _, line: f"{line['mean_length']:.1f}"),
  ("warm-up s", lambda _, line: f"{line['warm_up_s']:.1f}"),
  ("peak GiB", lambda _, line: f"{line['peak_gib']:.2f}"),
  ("of ceiling, wall", lambda _, line: _share_cell(line, "wall")),
  ("of ceiling, CPU", lambda _, line: _share_cell(line, "cpu")),
)


def _share_cell(line: dict[str, Any], clock: str) -> str:
  if f"share_{clock}" not in line:
    return ""
  return f"{line[f'share_{clock}']:.0%} ({line[f'binds_{clock}']})"


def table(lines: dict[str, dict[str, Any]]) -> str:
  """The summary in Markdown."""
  return benchmark_rounds.markdown(_COLUMNS, lines)


def describe(job: benchmark_jobs.Job) -> str:
  """What was asked, in a line or two."""
  config = benchmark_jobs.read_config(job.model)
  lengths = [len(prompt) for prompt in job.prompts]
  return (
    f"{benchmark_jobs.describe_model(config)}; {len(lengths)} prompts"
    f" of {min(lengths)} to {max(lengths)} tokens x {job.num_samples} samples,"
    f" up to {job.max_new_tokens} new tokens, {len(job.stop_ids)} stop tokens;"
    f" at most {job.max_rows} rows at once in ours, {job.peer_rows} in the"
    " others"
  )


def _report(title: str, job: benchmark_jobs.Job) -> dict[str, Any]:
  """Runs, prints and returns the numbers of one model."""
  print(f"\n### {title}\n{describe(job)}\n", flush=True)
  load = os.getloadavg()[0]
  measured = run(
    job,
    benchmark_rounds.CONTENDERS.value or DEFAULT,
    ROUNDS.value,
    tunix_python=benchmark_rounds.TUNIX.value,
  )
  lines = summarize(job, measured)
  print(table(lines))
  print("\n" + benchmark_rounds.circumstances(measured, load), flush=True)
  return {"title": title, "job": describe(job), "lines": lines} | measured


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments: {argv[1:]}")
  setting = benchmark_jobs.Setting(
    num_samples=benchmark_rounds.SAMPLES.value,
    max_new_tokens=benchmark_rounds.NEW_TOKENS.value,
    max_rows=_ROWS.value,
    peer_rows=_PEER_ROWS.value,
    prompts=benchmark_rounds.PROMPTS.value,
  )
  reports = []
  try:
    for name in benchmark_rounds.SIZES.value:
      with tempfile.TemporaryDirectory() as directory:
        size = benchmark_jobs.SIZES[name]
        job = benchmark_jobs.random_job(directory, size, setting)
        reports.append(_report(f"Size {name}", job))
    if _MODEL.value:
      job = benchmark_jobs.model_job(_MODEL.value, setting)
      reports.append(_report(pathlib.Path(_MODEL.value).name, job))
    if OUT.value:
      text = json.dumps(reports, indent=1)
      pathlib.Path(OUT.value).write_text(text + "\n", encoding="utf-8")
  except (OSError, ValueError, WorkerError) as error:
    command_line.fail(error)


if __name__ == "__main__":
  flags.register_validator(
    benchmark_rounds.SIZES,
    lambda names: set(names) <= set(benchmark_jobs.SIZES),
    f"must be of {', '.join(benchmark_jobs.SIZES)}",
  )
  flags.register_validator(
    benchmark_rounds.CONTENDERS,
    lambda names: set(names or ()) <= set(CONTENDERS),
    f"must be of {', '.join(CONTENDERS)}",
  )
  app.run(main, flags_parser=command_line.parse)
