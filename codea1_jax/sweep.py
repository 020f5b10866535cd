"""Many runs of one config: which, under which names, and how they are run.

A config file's `sweep(add)` calls `add(changes)` once a run, with fields and
values such as {"rewards.alpha": 0.5, "seed": 1}; grid, zipped, drawn and
with_seeds make such dictionaries.
"""

import dataclasses
import fcntl
import hashlib
import itertools
import json
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from codea1_jax import jsonl

Changes = dict[str, Any]
SEED = "seed"  # the field that runs of one setting differ in
_LONGEST_NAME = 120
_LAST_LINES = 5  # of a failed run's output


def grid(fields: Mapping[str, Sequence[Any]]) -> list[Changes]:
  """Every combination; the last field changes fastest."""
  combined = itertools.product(*fields.values())
  return [dict(zip(fields, values)) for values in combined]


def zipped(fields: Mapping[str, Sequence[Any]]) -> list[Changes]:
  """The first values together, the second ones, ...; ValueError where the
  lists are of different lengths."""
  rows = zip(*fields.values(), strict=True)
  return [dict(zip(fields, values)) for values in rows]


def drawn(
  count: int,
  fields: Mapping[str, Callable[[np.random.Generator], Any]],
  seed: int = 0,
) -> list[Changes]:
  """`count` random ones, of distributions such as `log_uniform`."""
  rng = np.random.default_rng(seed)
  return [
    {name: draw(rng) for name, draw in fields.items()} for _ in range(count)
  ]


def log_uniform(low: float, high: float) -> Callable:
  """Of a positive range, each factor as likely; to three digits."""
  bounds = np.log(low), np.log(high)
  return lambda rng: float(f"{np.exp(rng.uniform(*bounds)):.3g}")


def choice(values: Sequence[Any]) -> Callable:
  """One of the values."""
  return lambda rng: values[rng.integers(len(values))]


def with_seeds(settings: Sequence[Changes], count: int) -> list[Changes]:
  """Each setting under the seeds 0 to count - 1."""
  return [s | {SEED: seed} for s in settings for seed in range(count)]


@dataclasses.dataclass(frozen=True, eq=False)  # changes have no hash
class SweepRun:
  """One run of a sweep."""

  name: str  # of its directory: what is special about it
  changes: Changes
  workdir: pathlib.Path
  num_steps: int

  @property
  def steps_done(self) -> int:
    path = self.workdir / "metrics.jsonl"
    return len(jsonl.read_jsonl(path)) if path.exists() else 0

  @property
  def done(self) -> bool:
    """Whether it was evaluated after its last step."""
    path = self.workdir / "eval.jsonl"
    rows = jsonl.read_jsonl(path) if path.exists() else []
    return bool(rows) and rows[-1]["step"] == self.num_steps

  def state(self, failed: Mapping[str, int]) -> str:
    """For people; `failed` holds exit codes."""
    if self.done:
      return "done"
    code = f"failed ({failed[self.name]})" if self.name in failed else ""
    if not self.steps_done:
      return code or "not begun"
    return f"{code or 'stopped'} at step {self.steps_done} of {self.num_steps}"


def name_runs(all_changes: Sequence[Changes]) -> list[str]:
  """Names from fields and values, the fields as short as they stay distinct.

  Raises:
    ValueError: two runs are the same, or there is none.
  """
  if not all_changes:
    raise ValueError("the sweep has no runs")
  fields = dict.fromkeys(name for changes in all_changes for name in changes)
  short = {name: _shortest(name, fields) for name in fields}
  names = []
  for changes in all_changes:
    text = ",".join(f"{short[k]}={v}" for k, v in changes.items()) or "default"
    safe = re.sub(r"[^\w.=,+-]+", "_", text)
    if len(safe) > _LONGEST_NAME:
      digest = hashlib.sha256(text.encode()).hexdigest()[:8]
      safe = f"{safe[:_LONGEST_NAME]}_{digest}"
    names.append(safe)
  if twice := [name for name in names if names.count(name) > 1]:
    raise ValueError(f"the sweep has two runs {twice[0]}")
  return names


def run_all(
  runs: Sequence[SweepRun],
  command: Callable[[SweepRun], list[str]],
  logs: pathlib.Path,
  parallel: int = 1,
  max_failures: int = 0,
) -> dict[str, int]:
  """Runs what is not done, each in a process of its own; one that fails leaves
  the others alone.

  SIGINT and SIGTERM are passed on, so that the runs save and stop, and no
  further one begins.

  Args:
    runs: of the sweep.
    command: what starts a run, or goes on with it.
    logs: the directory of the runs' output, NAME.log.
    parallel: processes at a time.
    max_failures: after so many no further run begins; 0: all are tried.

  Returns:
    The exit code of each that failed.
  """
  waiting = [run for run in runs if not run.done]
  running: dict[SweepRun, subprocess.Popen] = {}
  failed: dict[str, int] = {}
  logs.mkdir(parents=True, exist_ok=True)
  with _Signals() as signals:
    while running or waiting:
      for run, process in list(running.items()):
        if process.poll() is not None:
          del running[run]
          _report(run, process.returncode, logs, signals.asked)
          if process.returncode:
            failed[run.name] = process.returncode
      stop = signals.asked or 0 < max_failures <= len(failed)
      if stop:
        waiting.clear()
      while waiting and len(running) < parallel:
        run = waiting.pop(0)
        process = _start(run, command(run), logs)
        if process:
          running[run] = process
      signals.pass_on(running.values())
      time.sleep(0.05)
  return failed


class _Signals:
  """Counts SIGINT and SIGTERM and passes each on, the second one as SIGKILL."""

  def __init__(self):
    self.asked = 0
    self._sent = 0
    self._previous: dict[int, Any] = {}

  def __enter__(self) -> "_Signals":
    for number in (signal.SIGINT, signal.SIGTERM):
      self._previous[number] = signal.signal(number, self._ask)
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def _ask(self, number, frame) -> None:
    self.asked += 1

  def pass_on(self, processes) -> None:
    if self.asked > self._sent:
      self._sent = self.asked
      number = signal.SIGTERM if self.asked == 1 else signal.SIGKILL
      for process in processes:
        process.send_signal(number)


def _start(run: SweepRun, command, logs) -> subprocess.Popen | None:
  """None where another process is at it: a sweep that was killed leaves its
  runs behind, and two must not write into one directory."""
  with open(logs / f"{run.name}.lock", "w") as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      _say(f"{run.name}: another process is running it")
      return None
    with open(logs / f"{run.name}.log", "ab") as log:
      # The process keeps the lock for as long as it lives.
      process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=(lock.fileno(),),
        start_new_session=True,
      )
  _say(f"{run.name}: begins at step {run.steps_done} of {run.num_steps}")
  return process


def _report(run: SweepRun, code: int, logs, stopping: int) -> None:
  if code == 0:
    _say(f"{run.name}: {run.state({})}")
    return
  path = logs / f"{run.name}.log"
  lines = path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
  _say("\n  ".join([f"{run.name}: failed ({code}), see {path}", *lines]))


def _say(text: str) -> None:
  print(text, file=sys.stderr, flush=True)


def _shortest(name: str, fields) -> str:
  """The shortest end of a field's name that no other field has."""
  parts = name.split(".")
  for size in range(1, len(parts) + 1):
    end = parts[-size:]
    if sum(other.split(".")[-size:] == end for other in fields) == 1:
      return ".".join(end)
  return name


def write_failures(path: pathlib.Path, failed: Mapping[str, int]) -> None:
  path.write_text(json.dumps(dict(failed), indent=2) + "\n")


def read_failures(path: pathlib.Path) -> dict[str, int]:
  """Exit codes of the last call; {} before the first."""
  return json.loads(path.read_text()) if path.exists() else {}


def settings(
  runs: Sequence[SweepRun],
) -> Iterator[tuple[Changes, list[SweepRun]]]:
  """Runs that differ in nothing but the seed, under what they share."""
  found: dict[str, tuple[Changes, list[SweepRun]]] = {}
  for run in runs:
    shared = {k: v for k, v in run.changes.items() if k != SEED}
    found.setdefault(repr(shared), (shared, []))[1].append(run)
  yield from found.values()
