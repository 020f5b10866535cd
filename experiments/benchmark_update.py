"""Speed and memory of an update beside PyTorch, TRL and google-tunix, on a CPU.

  python -m experiments.benchmark_update --sizes=A,B [--rounds=5]
    [--trl_python=PATH] [--tunix_python=PATH] [--contenders=...] [--out=FILE]

The same random weights and the same batch for all: 8 prompts (`--prompts`) of
64 tokens with 8 completions (`--samples`) of 128 tokens each, log-probs of
behavior and reference given; clipped surrogate + KL, gradients clipped by norm,
AdamW; weights, gradients and moments in float32. Before anything counts, and in
every round after, loss and gradient norm must agree (benchmark_update_jobs), or
the run ends with an error. How the contenders take turns: benchmark_rounds.

A contender is FAMILY:DTYPE[:OPTION=VALUE...], DTYPE that of the compute:
  ours   make_update with grpo_loss; micro_batch_size, scan_layers, remat,
         chunk_size (0: none); share_prompts, the slots behind a prompt
  torch  transformers' model, the loss and AdamW in eager PyTorch;
         micro_batch_size; bfloat16 by autocast
  trl    the same with the loss of TRL's GRPOTrainer
  tunix  its trainer's step with its GRPO loss

Ratios are medians over the rounds of the ratio within a round, to
torch:float32; above 1 is faster. MFU is the share of the matmul rate, measured
in the same rounds in the same dtype, that the operations an update needs at
least (benchmark_ceilings) come to. CPU is user and system time of the process,
peak memory the process's own, which includes loading.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from experiments import (
  benchmark_jobs,
  benchmark_rounds,
  benchmark_update_jobs,
  command_line,
)
from experiments.benchmark_flags import OUT, ROUNDS
from experiments.benchmark_rounds import Contender, median_ratio, number
from experiments.benchmark_workers import Worker, WorkerError

BASELINE = "torch:float32"
_BOTH = ("float32", "bfloat16")
_READERS = {
  "micro_batch_size": int,
  "scan_layers": lambda text: bool(int(text)),
  "remat": str,
  "chunk_size": int,
  "share_prompts": int,
}
FAMILIES = {  # -> dtypes, options
  "ours": (_BOTH, tuple(_READERS)),
  "torch": (_BOTH, ("micro_batch_size",)),
  "trl": (_BOTH[:1], ("micro_batch_size",)),
  "tunix": (_BOTH[:1], ()),
}
TARGETS = {BASELINE: 1.05, "tunix:float32": 1.4}  # speed of ours
_SHARED_TARGET = 1.5  # of shared prompts scored once
_READ_BYTES = (2**22, 2**22)  # of rates that an update is not measured by

DEFAULT = (  # of --contenders
  "ours:float32:micro_batch_size=4",
  "ours:bfloat16:micro_batch_size=4",
  "ours:float32:micro_batch_size=1:share_prompts=8",
  "torch:float32",
  "torch:float32:micro_batch_size=4",
  "trl:float32",
  "tunix:float32",
)

_TRL = flags.DEFINE_string("trl_python", None, "Python that has TRL.")


def read_contender(name: str) -> Contender:
  """The contender of a name as `--contenders` has it, its job still without
  what all of them are asked.

  Raises:
    ValueError: no such family, dtype, option or value.
  """
  family, _, rest = name.partition(":")
  dtype, *settings = rest.split(":")
  dtypes, known = FAMILIES.get(family, ((), ()))
  if dtype not in dtypes:
    offered = [f"{f}:{d}" for f, (ds, _) in FAMILIES.items() for d in ds]
    raise ValueError(f"contender {name!r} is none of {', '.join(offered)}")
  options = {}
  for setting in settings:
    option, _, value = setting.partition("=")
    if option not in known:
      raise ValueError(
        f"contender {name!r}: {option!r} is no option of {family}, which has"
        f" {', '.join(known) or 'none'}"
      )
    try:
      options[option] = _READERS[option](value)
    except ValueError:
      raise ValueError(f"contender {name!r}: {option} = {value!r}") from None
  job = {"dtype": dtype, "options": options}
  return Contender(name, f"{family}_update", job)


def run(
  job: benchmark_update_jobs.Job,
  contenders: Sequence[str],
  rounds: int,
  *,
  pythons: Mapping[str, str | None],
  say: benchmark_rounds.Say = benchmark_rounds.say_aside,
) -> dict[str, Any]:
  """Measures the contenders in turns, see `benchmark_rounds.run`."""
  return benchmark_rounds.run(
    [
      dataclasses.replace(one, job=dataclasses.asdict(job) | one.job)
      for one in map(read_contender, contenders)
    ],
    _turn,
    rounds,
    read_bytes=_READ_BYTES,
    pythons=pythons,
    check=lambda answers: benchmark_update_jobs.check_agreement(
      {name: answer["result"] for name, answer in answers.items()}
    ),
    say=say,
  )


def _turn(worker: Worker, index: int) -> dict[str, Any]:
  """An update; two of them to warm up, since tunix compiles twice."""
  answer = benchmark_rounds.ask(worker, "update")
  if not index:
    again = benchmark_rounds.ask(worker, "update")
    answer = again | {
      clock: answer[clock] + again[clock] for clock in ("wall_s", "cpu_s")
    }
  return answer


def summarize(
  job: benchmark_update_jobs.Job, measured: dict[str, Any]
) -> benchmark_rounds.Lines:
  """Contender -> the numbers of its line in the table."""
  rates = {
    clock: benchmark_rounds.median_rates(measured["ceilings"], clock)
    for clock in ("wall", "cpu")
  }
  lines = {}
  for name, (warm_up, *turns) in measured["turns"].items():
    dtype = name.split(":")[1]
    line = lines[name] = {
      "warm_up_s": warm_up["wall_s"],
      "peak_gib": turns[-1]["peak_bytes"] / 2**30,
    }
    for clock, rate in rates.items():
      seconds = [turn[f"{clock}_s"] for turn in turns]
      line[f"{clock}_seconds"] = seconds
      line[f"{clock}_s"] = statistics.median(seconds)
      least = job.operations() / rate[f"matmul_{dtype}"]
      line[f"mfu_{clock}"] = least / line[f"{clock}_s"]
  for line in lines.values():
    line |= _ratios(line, lines.get(BASELINE))
  return lines


def _ratios(line, base):
  """Speed and memory beside the baseline's, if it ran."""
  if base is None:
    return {}
  return {
    f"ratio_{clock}": median_ratio(
      base[f"{clock}_seconds"], line[f"{clock}_seconds"]
    )
    for clock in ("wall", "cpu")
  } | {"ratio_peak": line["peak_gib"] / base["peak_gib"]}


def verdicts(lines: benchmark_rounds.Lines) -> list[str]:
  """A line for each target of the first float32 contender of ours, and of the
  first one that shares prompts."""
  names = [name for name in lines if name.startswith("ours:float32")]
  sharing = [name for name in names if "share_prompts" in name]
  said = []
  if sharing and BASELINE in lines:
    found = lines[sharing[0]]["ratio_wall"]
    found = _verdict(f"x {BASELINE}", found, ">=", _SHARED_TARGET)
    said.append(f"{sharing[0]}: {found}")
  alone = [name for name in names if name not in sharing]
  return said + (_plain_verdicts(alone[0], lines) if alone else [])


def _plain_verdicts(name, lines):
  ours, said = lines[name], []
  for other, target in TARGETS.items():
    if other in lines:
      found = median_ratio(lines[other]["wall_seconds"], ours["wall_seconds"])
      said.append(_verdict(f"x {other}", found, ">=", target))
  if BASELINE in lines:
    found = ours["ratio_peak"]
    said.append(_verdict(f"peak memory / {BASELINE}", found, "<=", 1 / 3))
  return [f"{name}: {line}" for line in said]


def _verdict(name, found, sign, target):
  met = found >= target if sign == ">=" else found <= target
  outcome = "met" if met else "MISSED"
  return f"{name} {found:.2f}, target {sign} {target:.2f}: {outcome}"


_COLUMNS = (
  ("contender", lambda name, line: name),
  ("s", lambda _, line: f"{line['wall_s']:.2f}"),
  (
    "lowest-highest",
    lambda _, line: "{:.2f}-{:.2f}".format(
      min(line["wall_seconds"]), max(line["wall_seconds"])
    ),
  ),
  ("x wall", lambda _, line: number(line.get("ratio_wall"), ".2f")),
  ("CPU s", lambda _, line: f"{line['cpu_s']:.2f}"),
  ("x CPU", lambda _, line: number(line.get("ratio_cpu"), ".2f")),
  ("MFU, wall", lambda _, line: f"{line['mfu_wall']:.0%}"),
  ("MFU, CPU", lambda _, line: f"{line['mfu_cpu']:.0%}"),
  ("warm-up s", lambda _, line: f"{line['warm_up_s']:.1f}"),
  ("peak GiB", lambda _, line: f"{line['peak_gib']:.2f}"),
  ("x memory", lambda _, line: number(line.get("ratio_peak"), ".2f")),
)


def _report(
  title: str, job: benchmark_update_jobs.Job, contenders: Sequence[str]
) -> dict[str, Any]:
  """Runs, prints and returns the numbers of one model."""
  print(f"\n### {title}\n{job.describe()}\n", flush=True)
  load = os.getloadavg()[0]
  pythons = {"trl": _TRL.value, "tunix": benchmark_rounds.TUNIX.value}
  measured = run(job, contenders, ROUNDS.value, pythons=pythons)
  lines = summarize(job, measured)
  print(benchmark_rounds.markdown(_COLUMNS, lines) + "\n")
  for line in verdicts(lines):
    print(line)
  print("\n" + benchmark_rounds.circumstances(measured, load), flush=True)
  return {"title": title, "job": job.describe(), "lines": lines} | measured


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments: {argv[1:]}")
  setting = benchmark_update_jobs.Setting(
    prompts=benchmark_rounds.PROMPTS.value or 8,
    samples=benchmark_rounds.SAMPLES.value,
    completion_tokens=benchmark_rounds.NEW_TOKENS.value,
  )
  reports, contenders = [], benchmark_rounds.CONTENDERS.value or DEFAULT
  try:
    list(map(read_contender, contenders))  # before long work
    for name in benchmark_rounds.SIZES.value:
      with tempfile.TemporaryDirectory() as directory:
        config = benchmark_jobs.SIZES[name].config
        job = benchmark_update_jobs.random_job(directory, config, setting)
        reports.append(_report(f"Size {name}", job, contenders))
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
  app.run(main, flags_parser=command_line.parse)
