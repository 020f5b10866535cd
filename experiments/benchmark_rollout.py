"""Sampling speed beside transformers (PyTorch) and google-tunix, on a CPU.

  python -m experiments.benchmark_rollout --sizes=A,B [--model=DIR]
    [--tunix_python=PATH] [--rounds=5] [--out=FILE]

The same weights, prompts, stop tokens and limit for all; temperature 1, no
truncation. `--sizes` are random weights with random prompts; a 64th of the
vocabulary are stop tokens, so that lengths spread as a coin's would. `--model`
is a real model, asked the shipped problems, with its own stop tokens. Every
contender lives in its own process; they take turns, so that a busy machine is
busy for all. The first round warms up and compiles, and is told apart. Ctrl-C
ends the rounds early, and the whole ones count.

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
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from absl import app, flags

from experiments import benchmark_ceilings, benchmark_jobs, command_line
from experiments.benchmark_flags import OUT, ROUNDS
from experiments.benchmark_workers import Worker, WorkerError

BASELINE = "transformers:float32"
CONTENDERS = tuple(
  f"{kind}:{dtype}"
  for kind in ("ours", "transformers", "tunix")
  for dtype in ("float32", "bfloat16")
)

_SIZES = flags.DEFINE_list("sizes", "A", "Of A and B; may be empty.")
_MODEL = flags.DEFINE_string("model", None, "Directory of a real model.")
_CONTENDERS = flags.DEFINE_list(
  "contenders",
  "ours:float32,ours:bfloat16,transformers:float32,tunix:float32",
  "NAME:DTYPE of ours, transformers, tunix, in the order of their turns.",
)
_TUNIX = flags.DEFINE_string("tunix_python", None, "Python that has tunix.")
_PROMPTS = flags.DEFINE_integer(
  "prompts", None, "How many; 64 at A, 16 at B, 4 for a model.", 1
)
_SAMPLES = flags.DEFINE_integer("samples", 8, "Samples a prompt.", 1)
_NEW = flags.DEFINE_integer("max_new_tokens", 128, "Limit of a sample.", 2)
_ROWS = flags.DEFINE_integer(
  "max_rows", 128, "Rows in our decode loop at once.", 1
)
_PEER_ROWS = flags.DEFINE_integer(
  "peer_rows", 512, "Rows in a batch of the other contenders.", 1
)


def _say(line: str) -> None:
  print(line, file=sys.stderr, flush=True)


def _start(
  name: str, job: benchmark_jobs.Job, tunix_python: str | None, say: Callable
) -> Worker | None:
  """A loaded contender, or the reason why there is none."""
  kind, dtype = name.split(":")
  if kind == "tunix" and not tunix_python:
    say(f"{name} skipped: no --tunix_python")
    return None
  worker = None
  try:
    worker = Worker(kind, tunix_python if kind == "tunix" else None)
    worker.ask({"job": dataclasses.asdict(job) | {"dtype": dtype}})
  except (WorkerError, OSError) as error:
    say(f"{name} skipped: {error}")
    if worker:
      worker.close()
    return None
  return worker


def _turn(worker: Worker, job: benchmark_jobs.Job, seed: int) -> dict[str, Any]:
  """One measurement; the tokens are checked, only lengths are kept."""
  before = worker.cpu_total_s  # since then it has only waited
  answer = worker.ask({"call": "sample", "arguments": [seed]})
  rows = answer.pop("result")
  benchmark_jobs.check_rows(job, rows)
  answer["idle_cpu_s"] = answer["cpu_total_s"] - answer["cpu_s"] - before
  answer["lengths"] = [len(row) for row in rows]
  if worker.kind == "ours":
    prefill = worker.ask({"call": "prefill", "arguments": [seed]})
    answer |= {f"prefill_{key}": prefill[key] for key in ("wall_s", "cpu_s")}
  return answer


def _take_turns(
  machine: Worker,
  workers: dict[str, Worker],
  job: benchmark_jobs.Job,
  rounds: int,
  say: Callable,
) -> dict[str, Any]:
  """The rounds of `run`; who fails leaves, an interrupt ends them early."""
  turns = {name: [] for name in workers}
  ceilings = []
  try:
    for seed in range(rounds + 1):
      for name, worker in list(workers.items()):
        try:
          turns[name].append(_turn(worker, job, seed))
        except WorkerError as error:
          say(f"{name} given up in round {seed}: {error}")
          workers.pop(name).close()
          turns.pop(name)
      if seed:  # not in the warm-up
        measured = machine.ask({"call": "measure", "arguments": []})
        ceilings.append(measured["result"])
      say(f"round {seed} of {rounds} done")
  except KeyboardInterrupt:
    if not ceilings:
      raise
    say(f"interrupted: {len(ceilings)} rounds count")
  whole = len(ceilings) + 1
  turns = {name: answers[:whole] for name, answers in turns.items()}
  return {"turns": turns, "ceilings": ceilings}


def run(
  job: benchmark_jobs.Job,
  contenders: Sequence[str],
  rounds: int,
  *,
  tunix_python: str | None = None,
  say: Callable = _say,
) -> dict[str, Any]:
  """Measures the contenders in turns, whole rounds only.

  Returns:
    {"turns": {contender: answers of all rounds, the warm-up first},
     "ceilings": the measured rates of every round after it}
  """
  machine = Worker("ceilings")
  workers = {}
  try:
    machine.ask({"job": {"sizes": benchmark_jobs.read_sizes(job)}})
    for name in contenders:
      worker = _start(name, job, tunix_python, say)
      if worker:
        workers[name] = worker
    return _take_turns(machine, workers, job, rounds, say)
  finally:
    for worker in [machine, *workers.values()]:
      worker.close()


def _median_rates(ceilings, clock: str) -> dict[str, float]:
  return {
    name: statistics.median(rates[name][clock] for rates in ceilings)
    for name in ceilings[0]
  }


def _share(job: benchmark_jobs.Job, name: str, turns, ceilings, clock: str):
  """Median share of the ceiling that our decode loop reaches, what binds."""
  dtype = name.split(":")[1]
  rates = _median_rates(ceilings, clock)
  prefill = statistics.median(turn[f"prefill_{clock}_s"] for turn in turns)
  shares, binds = [], ""
  for turn in turns:
    work = benchmark_ceilings.decode_work(
      benchmark_jobs.read_config(job),
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
    ratios = [a / b for a, b in zip(line["speeds"], base["speeds"])]
    line["ratio_wall"] = statistics.median(ratios)
    ratios = [b / a for a, b in zip(line["cpu_ms"], base["cpu_ms"])]
    line["ratio_cpu"] = statistics.median(ratios)
  return lines


_COLUMNS = (
  ("contender", lambda name, line: name),
  ("tokens/s", lambda name, line: f"{line['tokens_per_s']:.0f}"),
  ("lowest-highest", lambda _, x: f"{x['lowest']:.0f}-{x['highest']:.0f}"),
  ("x wall", lambda _, line: _number(line.get("ratio_wall"), ".2f")),
  ("CPU ms/token", lambda _, line: f"{line['cpu_ms_per_token']:.2f}"),
  ("x CPU", lambda _, line: _number(line.get("ratio_cpu"), ".2f")),
  ("length", lambda _, line: f"{line['mean_length']:.1f}"),
  ("warm-up s", lambda _, line: f"{line['warm_up_s']:.1f}"),
  ("peak GiB", lambda _, line: f"{line['peak_gib']:.2f}"),
  ("of ceiling, wall", lambda _, line: _share_cell(line, "wall")),
  ("of ceiling, CPU", lambda _, line: _share_cell(line, "cpu")),
)


def _number(value: float | None, form: str) -> str:
  return "" if value is None else format(value, form)


def _share_cell(line: dict[str, Any], clock: str) -> str:
  if f"share_{clock}" not in line:
    return ""
  return f"{line[f'share_{clock}']:.0%} ({line[f'binds_{clock}']})"


def table(lines: dict[str, dict[str, Any]]) -> str:
  """The summary in Markdown."""
  rows = [[title for title, _ in _COLUMNS], ["---"] * len(_COLUMNS)]
  for name, line in lines.items():
    rows.append([cell(name, line) for _, cell in _COLUMNS])
  return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def describe(job: benchmark_jobs.Job) -> str:
  """What was asked, in a line or two."""
  config = benchmark_jobs.read_config(job)
  lengths = [len(prompt) for prompt in job.prompts]
  return (
    f"vocab {config.vocab_size}, hidden {config.hidden_size},"
    f" {config.num_layers} layers, {config.num_heads} heads of"
    f" {config.head_dim}, {config.num_kv_heads} kv heads, mlp"
    f" {config.intermediate_size}; {len(lengths)} prompts of {min(lengths)} to"
    f" {max(lengths)} tokens x {job.num_samples} samples, up to"
    f" {job.max_new_tokens} new tokens, {len(job.stop_ids)} stop tokens; at"
    f" most {job.max_rows} rows at once in ours, {job.peer_rows} in the others"
  )


def _report(title: str, job: benchmark_jobs.Job) -> dict[str, Any]:
  """Runs, prints and returns the numbers of one model."""
  print(f"\n### {title}\n{describe(job)}\n", flush=True)
  load = os.getloadavg()[0]
  measured = run(
    job, _CONTENDERS.value, ROUNDS.value, tunix_python=_TUNIX.value
  )
  lines = summarize(job, measured)
  rates = _median_rates(measured["ceilings"], "wall")
  print(table(lines))
  idle = sum(t["idle_cpu_s"] for x in measured["turns"].values() for t in x[1:])
  rates = ", ".join(f"{name} {x / 1e9:.1f} G/s" for name, x in rates.items())
  print(
    f"\nCeilings: {rates}. CPU that waiting contenders burnt: {idle:.1f} s."
    f" Load average {load:.1f} before, {os.getloadavg()[0]:.1f} after.",
    flush=True,
  )
  return {"title": title, "job": describe(job), "lines": lines} | measured


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments: {argv[1:]}")
  setting = benchmark_jobs.Setting(
    num_samples=_SAMPLES.value,
    max_new_tokens=_NEW.value,
    max_rows=_ROWS.value,
    peer_rows=_PEER_ROWS.value,
    prompts=_PROMPTS.value,
  )
  reports = []
  try:
    for name in _SIZES.value:
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
    _SIZES,
    lambda names: set(names) <= set(benchmark_jobs.SIZES),
    f"must be of {', '.join(benchmark_jobs.SIZES)}",
  )
  flags.register_validator(
    _CONTENDERS,
    lambda names: set(names) <= set(CONTENDERS),
    f"must be of {', '.join(CONTENDERS)}",
  )
  app.run(main, flags_parser=command_line.parse)
