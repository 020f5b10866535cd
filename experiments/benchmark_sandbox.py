"""What a verdict costs: the sandbox beside other ways to run asserts.

  python -m experiments.benchmark_sandbox [--rounds=5] [--programs=200]
    [--evalplus_python=PATH] [--step] [--out=FILE]

Programs are the shipped problems' own with 1, 8 and 64 calls, all of which
pass. Contenders take turns, so that a busy machine is busy for all; each runs
one program at a time. CPU is user and system time of all processes, those of
our manager and zygotes and of this driver included (`tree_cpu_s`): on a shared
machine the steadier number. Our pools are new each turn, so that no call was
parsed before; starting them does not count. Slow ways run fewer programs a
turn. Ratios are medians over the rounds of the ratio within a round, to ours.

`--step` adds a training step of the paper's size, and its ground truths twice.
No jax here: some contenders fork.
"""

import dataclasses
import json
import pathlib
import statistics

from absl import app, flags

from experiments import benchmark_sandbox_contenders as contenders
from experiments import benchmark_sandbox_programs as programs
from experiments import command_line
from experiments.benchmark_flags import OUT, ROUNDS

_CALLS = (1, 8, 64)
_TARGETS = {8: 5.0, 64: 8.0}  # CPU ms of ours
_STEP_TARGET = 20.0  # CPU seconds
_FASTER = (  # than ours, times wall, at calls
  ("python -c per program", 8, 5.0),
  ("python -c per assert", 64, 100.0),
)
# Programs a turn, as a share of --programs.
_SHARES = {"multiprocessing spawn": 8, "python -c per program": 4}

_PROGRAMS = flags.DEFINE_integer("programs", 200, "Programs a turn.", 1)
_EVALPLUS = flags.DEFINE_string("evalplus_python", None, "Python with evalplus")
_STEP = flags.DEFINE_bool("step", False, "Measure a whole step too.")
_CODES = flags.DEFINE_integer("codes", 2048, "Programs of the step.", 8)


def run(rounds, count, evalplus_python, say=print):
  """[round][calls][contender] -> Cost; and [round] -> Costs of 1, 2 workers."""
  names = list(contenders.CONTENDERS)
  if not evalplus_python:
    names = [name for name in names if not name.startswith("evalplus")]
    say("evalplus untrusted_check skipped: no --evalplus_python")
  turns, scaling = [], []
  for seed in range(rounds):
    turns.append({})
    for calls in _CALLS:
      made = programs.make_programs(count, calls, seed)
      turns[-1][calls] = {
        name: contenders.measure(
          name, made[: _programs_a_turn(name, count, calls)], evalplus_python
        )
        for name in names
      }
    made = programs.make_programs(2 * count, 8, seed)
    scaling.append([contenders.measure_ours(made, w) for w in (1, 2)])
    say(f"round {seed + 1} of {rounds} done")
  return turns, scaling


def _programs_a_turn(name, count, calls):
  share = 4 * calls if "assert" in name else _SHARES.get(name, 1)
  return max(1, count // share)


def summarize(turns):
  """Contender -> calls -> medians: CPU and wall ms a program, x of ours."""
  lines = {}
  for name in turns[0][_CALLS[0]]:
    for calls in _CALLS:
      cell = lines.setdefault(name, {})[calls] = {}
      for clock in ("cpu", "wall"):
        each = [
          {who: getattr(c, f"{clock}_s") / c.programs for who, c in t.items()}
          for t in (turn[calls] for turn in turns)
        ]
        cell[f"{clock}_ms"] = 1e3 * statistics.median(t[name] for t in each)
        ratios = [t[name] / t["ours"] for t in each]
        cell[f"x_{clock}"] = statistics.median(ratios)
  return lines


def table(lines):
  """The summary in Markdown."""
  titles = [""]
  for n in _CALLS:
    calls = f"{n} call{'s' * (n > 1)}"
    titles += [f"{calls}: CPU ms", "x", "wall ms", "x"]
  rows = [titles, ["---"] * len(titles)]
  for name, cells in lines.items():
    row = [name]
    for x in cells.values():
      row += [f"{x['cpu_ms']:.2f}", f"{x['x_cpu']:.2f}"]
      row += [f"{x['wall_ms']:.2f}", f"{x['x_wall']:.2f}"]
    rows.append(row)
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def verdicts(lines, scaling):
  """A line for each target: what was found, and whether it is met."""
  ours = lines["ours"]
  for calls, target in _TARGETS.items():
    found = ours[calls]["cpu_ms"]
    yield f"CPU ms of {calls} calls", found, target, found <= target
  for name, calls, target in _FASTER:
    found = lines[name][calls]["x_wall"]
    yield f"times the speed of {name}", found, target, found >= target
  found = statistics.median(one.wall_s / two.wall_s for one, two in scaling)
  yield "speed of 2 workers to that of 1", found, 1.8, found >= 1.8


def step(codes, num_calls=64):
  """Costs of a step's codes and of two epochs of its ground truths."""
  made, truths = programs.make_step(codes // 8, 8, num_calls, 0)
  jobs, truths = (list(map(contenders.job, x)) for x in (made, truths))
  with contenders.warm_pool(None) as pool:
    # The zygotes of the second run of ground truths start when first needed.
    pool.oracle(list(map(contenders.job, programs.make_programs(9, 1, 1))))
    return {
      "step": contenders.timed(lambda: pool.run(jobs), len(jobs))[1],
      "ground truths": contenders.timed(
        lambda: pool.oracle(truths), len(truths)
      )[1],
      "ground truths again": contenders.timed(
        lambda: pool.oracle(truths), len(truths)
      )[1],
    }


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments: {argv[1:]}")
  try:
    turns, scaling = run(ROUNDS.value, _PROGRAMS.value, _EVALPLUS.value)
    costs = step(_CODES.value) if _STEP.value else {}
  except (OSError, contenders.ContenderError) as error:
    command_line.fail(error)
  lines = summarize(turns)
  print(f"\n{table(lines)}\n")
  found = list(verdicts(lines, scaling))
  for name, cost in costs.items():
    print(f"{name}: {cost.programs} programs x 64 calls,", end=" ")
    print(f"{cost.cpu_s:.2f} CPU s, {cost.wall_s:.2f} s wall")
  if costs and _CODES.value == 2048:
    seconds = costs["step"].cpu_s
    found.append(
      ("CPU s of a step", seconds, _STEP_TARGET, seconds <= _STEP_TARGET)
    )
  for name, value, target, met in found:
    print(
      f"{name}: {value:.2f}, target {target:g}: {'met' if met else 'MISSED'}"
    )
  if OUT.value:
    numbers = {"lines": lines, "turns": turns, "scaling": scaling} | costs
    text = json.dumps(numbers, default=dataclasses.asdict, indent=1)
    pathlib.Path(OUT.value).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
