"""Several hosts, one run: who writes, and what each has seen for all.

Every host runs the same program on the same values: it draws the same
questions, applies the same update of the book, dispatches the same steps on
the global devices. Only what the outside decides has to be told: verdicts (a
host's sandbox runs its part of the programs), mistakes, signals.
"""

import os
import pickle
import sys
import traceback
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from codea1_jax.sandbox import Job, JobResult, SandboxPool

HEARTBEAT_S = 20  # how long a silent host counts as alive


class HostError(ValueError):
  """A mistake on another host."""


def connect(
  coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Makes this process one of several; before anything touches a device.

  Args:
    coordinator: HOST:PORT of process 0; None where a cluster's manager (TPU
      pods, Slurm, Kubernetes) tells all three.
    num_processes: how many there are.
    process_id: which of them this is.

  Raises:
    RuntimeError: the others do not come within five minutes.
  """
  jax.distributed.initialize(
    coordinator,
    num_processes,
    process_id,
    heartbeat_timeout_seconds=HEARTBEAT_S,
  )


def leave(error: Exception) -> None:
  """Ends this process at once, if it is one of several: a clean exit would wait
  for the others, and one of them may be what has gone."""
  if jax.process_count() == 1:
    return
  traceback.print_exception(error)
  first, *_ = str(error).splitlines() or [""]
  print(
    "error: this host cannot go on, perhaps since another host has gone:"
    f" {type(error).__name__}: {first}",
    file=sys.stderr,
    flush=True,
  )
  os._exit(1)


class Hosts:
  """The hosts of a run. Every method but `fail` is called by all of them."""

  def __init__(self):
    self.index, self.count = jax.process_index(), jax.process_count()

  @property
  def writes(self) -> bool:
    """Whether this host keeps the run's files; one does."""
    return self.index == 0

  def gather(self, value: Any) -> list[Any]:
    """Each host's value, on all of them.

    Raises:
      HostError: another host has called `fail`.
    """
    if self.count == 1:
      return [value]
    found = [pickle.loads(data) for data in _exchange(pickle.dumps((value,)))]
    for index, message in enumerate(found):
      if isinstance(message, str):
        raise HostError(f"host {index}: {message}")
    return [message[0] for message in found]

  def first(self, value: Any) -> Any:
    """The value that host 0 has."""
    return self.gather(value)[0]

  def fail(self, message: str) -> None:
    """Raises HostError on all others, at their next or present `gather`."""
    if self.count > 1:
      _exchange(pickle.dumps(message))

  def share(self, pool: SandboxPool) -> "SandboxPool | SharedPool":
    """The pool, where there are several hosts as one of theirs."""
    return pool if self.count == 1 else SharedPool(pool, self)


class SharedPool:
  """A sandbox a host: each runs its part of the jobs, all know the results."""

  def __init__(self, pool: SandboxPool, hosts: Hosts):
    self._pool, self._hosts = pool, hosts

  @property
  def description(self) -> str:
    return f"{self._pool.description}, one of {self._hosts.count} hosts'"

  @property
  def usage(self) -> tuple[int, float]:
    """As SandboxPool.usage, of this host's."""
    return self._pool.usage

  def run(self, jobs: Sequence[Job]) -> list[JobResult]:
    """As SandboxPool.run."""
    owners = [at % self._hosts.count for at in range(len(jobs))]
    return self._divide(self._pool.run, jobs, owners)

  def oracle(self, jobs: Sequence[Job]) -> list[JobResult]:
    """As SandboxPool.oracle; a program is always the same host's, which may
    still know what it returns."""
    owners = [
      zlib.crc32(job.program.encode()) % self._hosts.count for job in jobs
    ]
    return self._divide(self._pool.oracle, jobs, owners)

  def _divide(self, run: Callable, jobs, owners: Sequence[int]):
    mine = [job for job, o in zip(jobs, owners) if o == self._hosts.index]
    parts = [iter(part) for part in self._hosts.gather(run(mine))]
    return [next(parts[owner]) for owner in owners]


def _exchange(data: bytes) -> list[bytes]:
  """Each host's bytes, by way of the devices."""
  sizes = multihost_utils.process_allgather(np.array(len(data)))
  padded = np.zeros(int(sizes.max()), np.uint8)
  padded[: len(data)] = np.frombuffer(data, np.uint8)
  rows = multihost_utils.process_allgather(padded)
  return [row[:size].tobytes() for row, size in zip(rows, sizes.reshape(-1))]
