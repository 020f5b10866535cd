"""Rounds in which contenders take turns, and the table of what they needed.

A contender is a process of its own (benchmark_workers). All of them are asked
in every round, so that a busy machine is busy for all; the first round warms up
and compiles, and is told apart. Ctrl-C ends the rounds early, and the whole
ones count.
"""

import dataclasses
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from experiments.benchmark_workers import Worker, WorkerError

SIZES = flags.DEFINE_list("sizes", "A", "Of A and B; may be empty.")
CONTENDERS = flags.DEFINE_list(
  "contenders", None, "In the order of their turns."
)
PROMPTS = flags.DEFINE_integer(
  "prompts", None, "How many; by default what the benchmark says.", 1
)
SAMPLES = flags.DEFINE_integer("samples", 8, "Samples a prompt.", 1)
NEW_TOKENS = flags.DEFINE_integer(
  "max_new_tokens", 128, "Limit of a sample.", 2
)
TUNIX = flags.DEFINE_string("tunix_python", None, "Python that has tunix.")

Say = Callable[[str], None]
# (worker, round) -> its answer, with whatever the caller makes of it.
Turn = Callable[[Worker, int], dict[str, Any]]
Lines = dict[str, dict[str, Any]]  # contender -> the numbers of its line


def say_aside(line: str) -> None:
  print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Contender:
  """Who computes what: `name` is "FAMILY:...", `kind` is the worker's."""

  name: str
  kind: str
  job: dict[str, Any]

  @property
  def family(self) -> str:
    return self.name.split(":")[0]


def ask(worker: Worker, call: str, *arguments: Any) -> dict[str, Any]:
  """The answer, with the CPU that the worker burnt while it waited."""
  before = worker.cpu_total_s
  answer = worker.ask({"call": call, "arguments": list(arguments)})
  answer["idle_cpu_s"] = answer["cpu_total_s"] - answer["cpu_s"] - before
  return answer


def _start(
  contender: Contender, pythons: Mapping[str, str | None], say: Say
) -> Worker | None:
  """A loaded contender, or the reason why there is none."""
  name, family = contender.name, contender.family
  if family in pythons and not pythons[family]:
    say(f"{name} skipped: no --{family}_python")
    return None
  worker = None
  try:
    worker = Worker(contender.kind, pythons.get(family))
    worker.ask({"job": contender.job})
  except (WorkerError, OSError) as error:
    say(f"{name} skipped: {error}")
    if worker:
      worker.close()
    return None
  return worker


def _take_turns(machine, workers, turn, rounds, check, say):
  """The rounds of `run`; who fails leaves, an interrupt ends them early."""
  turns = {name: [] for name in workers}
  ceilings = []
  try:
    for index in range(rounds + 1):
      for name, worker in list(workers.items()):
        try:
          turns[name].append(turn(worker, index))
        except WorkerError as error:
          say(f"{name} given up in round {index}: {error}")
          workers.pop(name).close()
          turns.pop(name)
      check({name: answers[-1] for name, answers in turns.items()})
      if index:  # not in the warm-up
        measured = machine.ask({"call": "measure", "arguments": []})
        ceilings.append(measured["result"])
      say(f"round {index} of {rounds} done")
  except KeyboardInterrupt:
    if not ceilings:
      raise
    say(f"interrupted: {len(ceilings)} rounds count")
  whole = len(ceilings) + 1
  turns = {name: answers[:whole] for name, answers in turns.items()}
  return {"turns": turns, "ceilings": ceilings}


def run(
  contenders: Iterable[Contender],
  turn: Turn,
  rounds: int,
  *,
  read_bytes: Sequence[int],
  pythons: Mapping[str, str | None],
  check: Callable[[dict[str, dict[str, Any]]], None] = lambda answers: None,
  say: Say = say_aside,
) -> dict[str, Any]:
  """Measures the contenders in turns, whole rounds only.

  Args:
    contenders: in the order of their turns.
    turn: one measurement.
    rounds: those that count.
    read_bytes: sizes of the arrays whose read rates are measured.
    pythons: family -> the interpreter that has it; None: it does not run.
    check: takes contender -> answer of every round, and raises.
    say: takes lines about progress, and about who does not run and why.

  Returns:
    {"turns": {contender: answers of all rounds, the warm-up first},
     "ceilings": the measured rates of every round after it}
  """
  machine = Worker("ceilings")
  workers = {}
  try:
    machine.ask({"job": {"sizes": read_bytes}})
    for contender in contenders:
      worker = _start(contender, pythons, say)
      if worker:
        workers[contender.name] = worker
    return _take_turns(machine, workers, turn, rounds, check, say)
  finally:
    for worker in [machine, *workers.values()]:
      worker.close()


def median_rates(
  ceilings: Sequence[Mapping[str, Mapping[str, float]]], clock: str
) -> dict[str, float]:
  """The machine's rates by `clock`, "wall" or "cpu"."""
  return {
    name: statistics.median(rates[name][clock] for rates in ceilings)
    for name in ceilings[0]
  }


def median_ratio(above: Iterable[float], below: Iterable[float]) -> float:
  """Median over the rounds of the ratio within a round."""
  return statistics.median(a / b for a, b in zip(above, below))


def markdown(
  columns: Sequence[tuple[str, Callable[[str, dict[str, Any]], str]]],
  lines: Lines,
) -> str:
  """A table of (title, (contender, numbers) -> cell) columns."""
  rows = [[title for title, _ in columns], ["---"] * len(columns)]
  for name, line in lines.items():
    rows.append([cell(name, line) for _, cell in columns])
  return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def number(value: float | None, form: str) -> str:
  return "" if value is None else format(value, form)


def circumstances(measured: dict[str, Any], load_before: float) -> str:
  """What the machine could do meanwhile, and what else it had to."""
  rates = median_rates(measured["ceilings"], "wall")
  rates = ", ".join(f"{name} {x / 1e9:.1f} G/s" for name, x in rates.items())
  idle = sum(t["idle_cpu_s"] for x in measured["turns"].values() for t in x[1:])
  return (
    f"Ceilings: {rates}. CPU that waiting contenders burnt: {idle:.1f} s."
    f" Load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after."
  )
