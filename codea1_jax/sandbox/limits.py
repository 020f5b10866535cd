"""What goes into the sandbox and what comes out of it."""

import dataclasses
import math

from codea1_jax.types import Verdict


@dataclasses.dataclass(frozen=True)
class Limits:
  """What one program may use. CPU seconds decide; wall time is a backstop."""

  call_cpu_s: float = 1.0  # CPU seconds of one call, all threads together
  load_cpu_s: float = 2.0  # CPU seconds to compile and run the module body
  wall_factor: float = 8.0  # idle wall seconds allowed = factor * CPU seconds
  memory_mb: int = 512  # address space above that of an empty worker
  max_deaths: int = 16  # processes one job may lose before its rest is given up
  max_result_bytes: int = 262_144  # of one encoded value
  max_result_items: int = 50_000  # scalars and containers in one value
  max_program_chars: int = 262_144
  max_call_chars: int = 262_144  # of one call, and of one expected value
  max_open_files: int = 64

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if not (isinstance(value, (int, float)) and 0 < value < math.inf):
        raise ValueError(
          f"Limits.{field.name} must be a positive number, got {value!r}"
        )


@dataclasses.dataclass(frozen=True)
class Job:
  """One program and the calls to make on it.

  Attributes:
    program: Python source that defines `entry_point`.
    entry_point: the name of the function that the calls call.
    calls: source texts such as "f([1, 2], k=3)", literal arguments only.
    expected: one literal source a call, None where the value is just to be
      returned. It stays in the judge: no process that runs code sees it.
  """

  program: str
  entry_point: str
  calls: tuple[str, ...]
  expected: tuple[str | None, ...] | None = None

  def __post_init__(self):
    if self.expected is not None and len(self.expected) != len(self.calls):
      raise ValueError(
        f"Job for {self.entry_point!r} has {len(self.calls)} calls and "
        f"{len(self.expected)} expected values"
      )


@dataclasses.dataclass(frozen=True)
class JobResult:
  """The verdict on the program itself, then one on each call, in order."""

  load: Verdict
  calls: tuple[Verdict, ...]
  cpu_s: float  # CPU seconds of all processes that the job took
