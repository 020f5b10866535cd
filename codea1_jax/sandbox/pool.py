"""The sandbox as the rest of the program sees it."""

import importlib.util
import math
import os
import pathlib
import threading
import time
from collections.abc import Sequence

from codea1_jax.sandbox import kernel, oracle
from codea1_jax.sandbox.client import ManagerClient
from codea1_jax.sandbox.isolation import LAYERS
from codea1_jax.sandbox.limits import (
  CheckJob,
  CheckResult,
  Job,
  JobResult,
  Limits,
)
from codea1_jax.types import Status, Verdict


class SandboxPool:
  """Runs untrusted programs and says what became of each call.

  A context manager. `run` and `oracle` may be called from any thread; a lock
  lets one call through at a time. Where neither landlock nor namespaces keep
  programs from the memory of this process, it is hidden for good from all
  processes of the user: no debugger can attach then, and no core is dumped.
  """

  def __init__(
    self,
    workers: int | None = None,
    limits: Limits | None = None,
    float_tolerance: float = 0.0,
    allow_weak_isolation: bool = False,
    numpy: bool = False,
    without: Sequence[str] = (),
  ):
    """Starts the manager and its workers.

    Args:
      workers: jobs run side by side; the number of CPUs where None.
      limits: what one program may use.
      float_tolerance: relative or absolute difference that two floats may
        have and still be equal; 0 compares exactly.
      allow_weak_isolation: start even where the kernel offers no system call
        filter. Verdicts cannot be faked there either, but a program can then
        reach files, network and other processes of the same user.
      numpy: programs and tests find numpy imported; each fork then costs a
        little more.
      without: of "seccomp", "landlock" and "userns", layers not to use though
        the machine has them.

    Raises:
      ValueError: an argument is out of range, or there is no numpy.
      RuntimeError: no worker starts, or the isolation is weak.
    """
    self._workers = (os.cpu_count() or 1) if workers is None else workers
    if self._workers < 1:
      raise ValueError(f"SandboxPool: workers must be >= 1, got {workers}")
    if not 0 <= float_tolerance < 1:
      raise ValueError(
        f"SandboxPool: float_tolerance must be in [0, 1), got {float_tolerance}"
      )
    self._limits = limits or Limits()
    self._tolerance = float_tolerance
    self._cache = oracle.OracleCache()
    self._lock = threading.Lock()
    self._closed = False
    self._jobs, self._seconds = 0, 0.0
    unknown = set(without) - set(LAYERS)
    if unknown:
      raise ValueError(f"SandboxPool: without unknown layers {sorted(unknown)}")
    path = _numpy_path() if numpy else ""
    self._client = ManagerClient(
      self._limits, self._workers, path, tuple(without)
    )
    try:
      isolation = self._client.await_isolation()
      if "seccomp" not in isolation and not allow_weak_isolation:
        raise RuntimeError(
          f"sandbox: only {isolation} here, no system call filter (seccomp); "
          "allow_weak_isolation=True runs without one"
        )
      if not {"landlock", "userns"} & set(isolation.split("+")):
        kernel.hide_memory()  # /proc is open to programs, and answers are here
    except BaseException:
      self.close()
      raise

  def __enter__(self) -> "SandboxPool":
    return self

  def __exit__(self, *_) -> None:
    self.close()

  @property
  def description(self) -> str:
    """One line for the log, such as "sandbox: seccomp+landlock, 2 workers"."""
    plural = "s" if self._workers > 1 else ""
    return f"sandbox: {self._client.isolation}, {self._workers} worker{plural}"

  @property
  def usage(self) -> tuple[int, float]:
    """Jobs that have run so far, and the seconds that some were running."""
    return self._jobs, self._seconds

  def run(self, jobs: Sequence[Job]) -> list[JobResult]:
    """Runs jobs side by side; results in the order of the jobs.

    A program that ended `limits.max_deaths` processes has lost the rest of its
    calls: they get the verdict of the last.
    """
    with self._lock:
      return self._run(jobs, 0, self._tolerance)

  def check(self, jobs: Sequence[CheckJob]) -> list[CheckResult]:
    """Runs programs under tests that are programs; results in their order."""
    with self._lock:
      messages = [
        {
          "program": job.program,
          "entry_point": job.entry_point,
          "test": job.test,
          "cpu_s": job.cpu_s,
          "memory_mb": job.memory_mb,
        }
        for job in jobs
      ]
      return [
        CheckResult(_verdict(verdict), cpu_s)
        for _, cpu_s, verdict, *_ in self._send(messages)
      ]

  def oracle(self, jobs: Sequence[Job]) -> list[JobResult]:
    """Runs ground truths: what their calls return, where that is certain.

    Each program runs twice, in processes with other hash and random seeds, the
    second time with the calls in another order. A call is PASS, with its
    value, where both runs agree and the value is a literal without NaN; else it
    is INVALID, or whatever kept it from returning. No call is lost because
    others ended too many processes: it then runs in another job. Cached by
    content; `expected` is ignored.
    """
    with self._lock:
      results = {
        job: self._cache.get(job) for job in dict.fromkeys(map(_plain, jobs))
      }
      missing = [job for job, result in results.items() if result is None]
      for job, result in zip(missing, self._run_twice(missing)):
        self._cache.put(job, result)
        results[job] = result
      return [results[_plain(job)] for job in jobs]

  def close(self) -> None:
    """Ends all processes of the pool; calling it again does nothing."""
    self._closed = True
    self._client.stop()

  def _run_twice(self, jobs: list[Job]) -> list[JobResult]:
    size = self._limits.max_call_chars
    first = [oracle.checked(r, size) for r in self._run_out(jobs, 0)]
    again = {
      k: oracle.second_job(jobs[k], first[k])
      for k in range(len(jobs))
      if any(verdict.passed for verdict in first[k].calls)
    }
    second = dict(zip(again, self._run_out(list(again.values()), 1)))
    return [oracle.combine(first[k], second.get(k)) for k in range(len(jobs))]

  def _run_out(self, jobs: list[Job], seed: int) -> list[JobResult]:
    """Runs jobs, and the calls that were not run again in jobs of their own.

    Each ends `max_deaths` of them, so that so many rounds are enough; a child
    that stalls the manager ends fewer, and what is then left stays not run.
    """
    results = self._run(jobs, seed, 0.0)
    most = max((len(result.not_run) for result in results), default=0)
    for _ in range(math.ceil(most / self._limits.max_deaths)):
      again = {k: oracle.rest(jobs[k], r) for k, r in enumerate(results)}
      again = {k: job for k, job in again.items() if job.calls}
      more = self._run(list(again.values()), seed, 0.0)
      for k, result in zip(again, more):
        results[k] = oracle.joined(results[k], result)
    return results

  def _run(
    self, jobs: Sequence[Job], seed: int, tolerance: float
  ) -> list[JobResult]:
    messages = [
      {
        "program": job.program,
        "entry_point": job.entry_point,
        "calls": job.calls,
        "expected": job.expected or [None] * len(job.calls),
        "hash_seed": seed,
        "tolerance": tolerance,
      }
      for job in jobs
    ]
    return [_result(row) for row in self._send(messages)]

  def _send(self, messages: list[dict]) -> list[list]:
    if self._closed:
      raise ValueError("SandboxPool: run after close")
    started = time.monotonic()
    rows = self._client.run(messages)
    self._seconds += time.monotonic() - started
    self._jobs += len(rows)
    return rows


def _numpy_path() -> str:
  """The directory that numpy lies in, found without importing it."""
  spec = importlib.util.find_spec("numpy")
  if spec is None or spec.origin is None:
    raise ValueError("SandboxPool: numpy=True, but numpy is not installed")
  return str(pathlib.Path(spec.origin).parents[1])


def _plain(job: Job) -> Job:
  """The job as the oracle sees it."""
  return Job(job.program, job.entry_point, job.calls)


def _result(row: list) -> JobResult:
  _, cpu_s, load, calls, not_run = row
  verdicts = tuple(map(_verdict, calls))
  return JobResult(_verdict(load), verdicts, cpu_s, tuple(not_run))


def _verdict(row: list) -> Verdict:
  status, value, detail = row
  return Verdict(Status(status), value, detail)
