"""The few system calls that Python has no name for, by ctypes."""

import ctypes
import os
import platform
import sys

IS_LINUX = sys.platform.startswith("linux")
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(
  platform.machine(), platform.machine()
)

PR_SET_PDEATHSIG = 1
PR_GET_DUMPABLE = 3
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
# Made once, not in each child: header and three empty sets of two words.
_CAPABILITIES = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()


def prctl(option: int, *arguments: int) -> int:
  """prctl(2); raises OSError where the kernel refuses."""
  if not IS_LINUX:
    raise OSError("prctl: not a Linux kernel")
  padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
  return _check(_libc.prctl(option, *padded), f"prctl {option}")


def syscall(number: int, *arguments) -> int:
  """syscall(2) with integers and ctypes pointers; raises OSError."""
  values = [
    ctypes.c_long(value) if isinstance(value, int) else value
    for value in arguments
  ]
  return _check(
    _libc.syscall(ctypes.c_long(number), *values), f"syscall {number}"
  )


def _check(result: int, what: str) -> int:
  if result < 0:
    error = ctypes.get_errno()
    raise OSError(error, f"{what}: {os.strerror(error)}")
  return result


def drop_capabilities() -> None:
  """Empties all capability sets: root is then an owner of files, no more."""
  if MACHINE not in _CAPSET:
    raise OSError(f"capset: unknown machine {MACHINE}")
  syscall(_CAPSET[MACHINE], _CAPABILITIES, _NO_CAPABILITIES)


def hide_memory() -> None:
  """Lets no other process of the same user read or trace this one."""
  if IS_LINUX:
    prctl(PR_SET_DUMPABLE, 0)


def cpu_clock(pid: int) -> int:
  """The id of a process's CPU clock, as clock_getcpuclockid(3) makes it."""
  return (~pid << 3) | 2


def die_with_parent() -> None:
  """Asks for SIGKILL when the parent dies; nothing where that is unknown."""
  if IS_LINUX:
    prctl(PR_SET_PDEATHSIG, 9)
