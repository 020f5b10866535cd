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
  max_result_bytes: int = 262_144  # of one value, encoded; characters, written
  max_result_items: int = 50_000  # scalars and containers in one value
  max_program_chars: int = 262_144
  max_call_chars: int = 262_144  # of one call, and of one expected value
  max_check_chars: int = 4_194_304  # of a check's program, and of its test
  max_open_files: int = 64
  max_threads: int = 512  # looked at ten times a second: a bomb is cut short

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
  """The verdict on the program itself, then one on each call, in order.

  Calls after the last process that the job may lose share its verdict; their
  numbers are in `not_run`.
  """

  load: Verdict
  calls: tuple[Verdict, ...]
  cpu_s: float  # CPU seconds of all processes that the job took
  not_run: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class CheckJob:
  """One program and a test that is itself a program, such as EvalPlus rows.

  The test runs in one process and the program in another. In the test the
  program's function is a proxy: it sends arguments and receives what came back
  as plain data, an opaque mark where it is none.

  Attributes:
    program: Python source that defines `entry_point`.
    entry_point: the function's name; where the test does not define that name
      itself, it stands for the proxy there.
    test: Python source that defines `check(candidate)`, which raises unless
      the candidate is right.
    cpu_s: CPU seconds of the program with all of its calls; the test has as
      many for itself.
    memory_mb: address space of each above that of an empty worker.
  """

  program: str
  entry_point: str
  test: str
  cpu_s: float = 10.0
  memory_mb: int = 4096

  def __post_init__(self):
    for name in ("cpu_s", "memory_mb"):
      value = getattr(self, name)
      if not 0 < value < math.inf:
        raise ValueError(f"CheckJob.{name} must be positive, got {value!r}")


@dataclasses.dataclass(frozen=True)
class CheckResult:
  """What became of one program under its test.

  FAIL where the test's own assertion failed, ERROR where the program or the
  test raised or the program ended itself, INVALID where one of them does not
  compile or lacks its function; `detail` says which.
  """

  verdict: Verdict
  cpu_s: float  # CPU seconds of both processes
