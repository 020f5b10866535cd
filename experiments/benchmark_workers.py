"""Both ends of a pipe: a contender alone in a process, and its driver.

  python -m experiments.benchmark_workers NAME

A request is a line of JSON on standard input, the answer a line on standard
output. The first request is the job (of benchmark_jobs or benchmark_update_jobs
as a dict), the others say what to do: {"call": "sample", "arguments": [seed]}.
The answer has the result, and wall and CPU seconds of the call.

Only the standard library is imported before the job has come, see
`benchmark_contenders` and `benchmark_update_contenders`.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

from experiments import benchmark_contenders, benchmark_update_contenders

CONTENDERS = (
  benchmark_contenders.CONTENDERS | benchmark_update_contenders.CONTENDERS
)


def cpu_seconds() -> float:
  usage = resource.getrusage(resource.RUSAGE_SELF)
  return usage.ru_utime + usage.ru_stime


def _peak_bytes() -> int:
  """Peak resident memory.

  Not ru_maxrss where Linux has the better number: it survives exec, so that a
  small child of a large parent would report the parent's.
  """
  try:
    with open("/proc/self/status", encoding="utf-8") as status:
      lines = dict(line.split(":", 1) for line in status)
    return 1024 * int(lines["VmHWM"].split()[0])
  except (OSError, KeyError):
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _answer(function, *arguments) -> dict[str, Any]:
  """The result of a call with its cost, or its error in one line."""
  wall, cpu = time.perf_counter(), cpu_seconds()
  try:
    result = function(*arguments)
  except Exception as error:  # whatever a library raises, the driver says it
    text = " ".join(str(error).split())
    return {"error": f"{type(error).__name__}: {text}"}
  return {
    "result": result,
    "wall_s": time.perf_counter() - wall,
    "cpu_s": cpu_seconds() - cpu,
    "cpu_total_s": cpu_seconds(),  # tells what it burnt between two calls
    "peak_bytes": _peak_bytes(),
  }


class WorkerError(Exception):
  """A worker's own error, or that it is gone, in one line."""


class Worker:
  """The driver's end: a contender's process, asked one thing at a time."""

  def __init__(self, kind: str, python: str | None = None):
    self.kind = kind
    self.cpu_total_s = 0.0  # of the process, when it last answered
    self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - see close
    root = pathlib.Path(__file__).parents[1]
    path = os.pathsep.join(
      filter(None, (str(root), os.environ.get("PYTHONPATH")))
    )
    self._process = subprocess.Popen(
      [python or sys.executable, "-m", "experiments.benchmark_workers", kind],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._errors,
      text=True,
      # An OpenMP pool that spins while it waits would slow the others' turns.
      env=os.environ | {"PYTHONPATH": path, "OMP_WAIT_POLICY": "passive"},
    )

  def ask(self, request: dict[str, Any]) -> dict[str, Any]:
    """Waits for the answer.

    Raises:
      WorkerError: the call failed, or the process ended.
    """
    try:
      self._process.stdin.write(json.dumps(request) + "\n")
      self._process.stdin.flush()
      line = self._process.stdout.readline()
    except BrokenPipeError:
      line = ""
    if not line:
      raise WorkerError(
        f"ended with code {self._process.wait()}: {self._last()}"
      )
    answer = json.loads(line)
    if "error" in answer:
      raise WorkerError(answer["error"])
    self.cpu_total_s = answer["cpu_total_s"]
    return answer

  def _last(self) -> str:
    """The last line that the process wrote to its standard error."""
    self._errors.seek(0)
    return (self._errors.read().strip().splitlines() or ["no message"])[-1]

  def close(self) -> None:
    """Ends the process, whatever it does."""
    self._process.kill()
    self._process.wait()
    self._process.stdin.close()
    self._process.stdout.close()
    self._errors.close()


def main() -> None:
  # Libraries may print; only answers may reach the driver.
  answers = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)
  calls = {}

  def build(job: dict[str, Any]) -> None:
    calls.update(CONTENDERS[sys.argv[1]](job))

  for line in sys.stdin:
    request = json.loads(line)
    if "job" in request:
      answer = _answer(build, request["job"])
    else:
      answer = _answer(calls[request["call"]], *request["arguments"])
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
  main()
