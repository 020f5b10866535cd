"""Contenders of `benchmark_sandbox`, and the CPU seconds that they take."""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from codea1_jax.sandbox import Job, SandboxPool
from codea1_jax.sandbox.isolation import LAYERS
from experiments.benchmark_sandbox_peers import PEERS
from experiments.benchmark_sandbox_programs import Program

OURS = {"ours": (), "ours without layers": LAYERS}
CONTENDERS = (*OURS, *PEERS)
_PEERS_FILE = pathlib.Path(__file__).with_name("benchmark_sandbox_peers.py")


class ContenderError(Exception):
  """A contender's failure in one line."""


@dataclasses.dataclass(frozen=True)
class Cost:
  """What some programs took."""

  programs: int
  cpu_s: float
  wall_s: float


def tree_cpu_s() -> float:
  """User and system seconds of this process and of all below it, so far."""
  return below_cpu_s() + _used(resource.RUSAGE_SELF)


def below_cpu_s() -> float:
  """User and system seconds of all processes below this one, so far.

  Those that ended are in the count of whoever waited for them; of those that
  run /proc tells. So managers and zygotes count like the children they fork.
  """
  tick = os.sysconf("SC_CLK_TCK")
  children: dict[int, list[int]] = {}
  seconds: dict[int, float] = {}
  for name in filter(str.isdigit, os.listdir("/proc")):
    with contextlib.suppress(OSError):  # it ended meanwhile
      stat = pathlib.Path("/proc", name, "stat").read_text(encoding="utf-8")
      fields = stat.rpartition(")")[2].split()
      children.setdefault(int(fields[1]), []).append(int(name))
      seconds[int(name)] = sum(map(int, fields[11:15])) / tick
  total, below = 0.0, list(children.get(os.getpid(), ()))
  while below:
    pid = below.pop()
    total += seconds[pid]
    below += children.get(pid, ())
  return total + _used(resource.RUSAGE_CHILDREN)


def _used(who: int) -> float:
  usage = resource.getrusage(who)
  return usage.ru_utime + usage.ru_stime


def timed(call: Callable, programs: int) -> tuple[object, Cost]:
  cpu, wall = tree_cpu_s(), time.perf_counter()
  result = call()
  wall = time.perf_counter() - wall
  return result, Cost(programs, tree_cpu_s() - cpu, wall)


def job(program: Program) -> Job:
  return Job(
    program.source, program.entry_point, program.calls, program.expected
  )


@contextlib.contextmanager
def warm_pool(workers: int, without: Sequence[str] = ()) -> Iterator:
  """A pool whose workers have started, and that has seen no program."""
  with SandboxPool(workers, allow_weak_isolation=True, without=without) as pool:
    # A worker takes a job before it has started: one each is enough.
    pool.run([Job("def f(): pass", "f", ("f()",))] * (workers or 99))
    yield pool


def measure_ours(
  programs: Sequence[Program], workers: int = 1, without: Sequence[str] = ()
) -> Cost:
  """A fresh pool each time, whose judge has parsed none of the calls."""
  jobs = list(map(job, programs))
  with warm_pool(workers, without) as pool:
    results, cost = timed(lambda: pool.run(jobs), len(jobs))
  _check([all(call.passed for call in r.calls) for r in results])
  return cost


def measure_peer(name: str, programs: Sequence[Program], python: str) -> Cost:
  """One turn of a peer in a process of its own.

  Raises:
    ContenderError: it ended, or says that a right program is wrong.
  """
  rows = [
    dataclasses.asdict(program) | {"asserts": program.asserts}
    for program in programs
  ]
  with subprocess.Popen(
    [python, str(_PEERS_FILE), name],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as process:

    def ask(line: str) -> str:
      process.stdin.write(line + "\n")
      process.stdin.flush()
      return process.stdout.readline()

    try:
      answer, cost = ask(json.dumps(rows)), None
      if answer:
        answer, cost = timed(lambda: ask("go"), len(rows))
    except BrokenPipeError:
      answer = ""
    if not answer:
      raise ContenderError(f"{name} ended with code {process.wait()}")
  _check(json.loads(answer))
  return cost


def measure(
  name: str, programs: Sequence[Program], evalplus_python: str | None
) -> Cost:
  """One turn of any contender, one program at a time."""
  if name in OURS:
    return measure_ours(programs, without=OURS[name])
  python = evalplus_python if name.startswith("evalplus") else sys.executable
  return measure_peer(name, programs, python)


def _check(passed: list[bool]) -> None:
  if not all(passed):
    raise ContenderError(f"{passed.count(False)} right programs did not pass")
