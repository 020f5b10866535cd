"""What a child may do: prepared once by the zygote, put on by each child."""

import contextlib
import dataclasses
import math
import os
import resource
import socket

from codea1_jax.sandbox import kernel, landlock, seccomp

LAYERS = ("seccomp", "landlock", "userns")


@dataclasses.dataclass(frozen=True)
class Isolation:
  """The layers that this machine offers; None or False where it has none."""

  filter: bytes | None
  ruleset: int | None  # a descriptor
  namespaces: bool
  base_bytes: int  # address space of an empty worker

  @property
  def names(self) -> str:
    """Such as "seccomp+landlock+userns"; "rlimits" where there is no more."""
    there = self.filter is not None, self.ruleset is not None, self.namespaces
    names = [name for name, has in zip(LAYERS, there) if has]
    return "+".join(names) or "rlimits"


def prepare(
  namespaces: bool,
  numpy_path: str = "",
  unused: frozenset[str] = frozenset(),
) -> Isolation:
  """Builds every layer, tries each in a child, keeps those that held.

  Args:
    namespaces: whether this process is inside its own.
    numpy_path: where numpy lies, if programs may read it.
    unused: layers not even to try.
  """
  program = ruleset = None
  if "seccomp" not in unused:
    with contextlib.suppress(OSError):
      program = seccomp.build()
  if "landlock" not in unused:
    with contextlib.suppress(OSError):
      ruleset = landlock.build(numpy_path)
  if program is not None and not _holds(program, None):
    program = None
  if ruleset is not None and not _holds(None, ruleset):
    os.close(ruleset)
    ruleset = None
  return Isolation(program, ruleset, namespaces, _address_space())


def _holds(program: bytes | None, ruleset: int | None) -> bool:
  """Whether a child under one layer is refused what that layer refuses."""
  pid = os.fork()
  if pid == 0:
    status = 1
    try:
      _bind(program, ruleset)
      status = 0 if _refused(program is not None) else 2
    finally:
      os._exit(status)
  return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _refused(by_seccomp: bool) -> bool:
  """Tries what a child must never manage."""
  try:
    if by_seccomp:
      socket.socket().close()
    else:
      os.close(os.open("/", os.O_RDONLY))
  except PermissionError:
    return True
  return False


def _address_space() -> int:
  """Bytes of address space in use, 0 where the system does not say."""
  try:
    with open("/proc/self/statm", encoding="ascii") as file:
      return int(file.read().split()[0]) * resource.getpagesize()
  except OSError:
    return 0


def put_on(
  isolation: Isolation, cpu_s: float, memory_bytes: int, open_files: int
) -> None:
  """Limits and locks this process for ever. CPU seconds here are a backstop."""
  seconds = math.ceil(cpu_s) + 1
  for kind, amount in (
    (resource.RLIMIT_CPU, seconds),
    (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_NOFILE, open_files),
  ):
    _limit(kind, amount)
  total = isolation.base_bytes + memory_bytes
  # macOS knows the limit by name only, and refuses to set it.
  with contextlib.suppress(OSError, ValueError):
    _limit(resource.RLIMIT_AS, total)
  if kernel.IS_LINUX:
    _bind(isolation.filter, isolation.ruleset)


def _limit(kind: int, amount: int) -> None:
  """Sets soft and hard limit, keeping a lower hard limit that is there."""
  hard = resource.getrlimit(kind)[1]
  if hard != resource.RLIM_INFINITY:
    amount = min(amount, hard)
  resource.setrlimit(kind, (amount, amount))


def _bind(program: bytes | None, ruleset: int | None) -> None:
  """The kernel's layers, the system call filter last: it forbids the rest."""
  kernel.drop_capabilities()
  kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
  if ruleset is not None:
    landlock.restrict(ruleset)
  if program is not None:
    seccomp.install(program)
