"""Which files a child may read: the standard library, and nothing else."""

import ctypes
import os
import struct
import sysconfig

from codea1_jax.sandbox import kernel

# The same numbers on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # how many file rights it knows
_LATEST_RIGHTS = 16
_NET_RIGHTS = 0b11  # bind and connect, from ABI 4
_SCOPES = 0b11  # abstract sockets and signals, from ABI 6

_SYSTEM_PATHS = (
  "/usr/lib",
  "/usr/lib64",
  "/lib",
  "/lib64",
  "/usr/share/zoneinfo",
  "/etc/ld.so.cache",
  "/etc/localtime",
  "/dev/null",
  "/dev/zero",
  "/dev/urandom",
)
_NOT_STANDARD = ("site-packages", "dist-packages")


def abi() -> int:
  """The kernel's version of landlock; OSError where it has none."""
  if not kernel.IS_LINUX:
    raise OSError("landlock: not a Linux kernel")
  return kernel.syscall(_CREATE_RULESET, None, 0, 1)


def build(numpy_path: str = "") -> int:
  """A descriptor of the rules, to be made once and used by every child.

  Args:
    numpy_path: directory whose numpy may be read too; "" for none.

  Raises:
    OSError: the kernel has no landlock.
  """
  version = abi()
  rights = (1 << _RIGHTS_BY_ABI.get(version, _LATEST_RIGHTS)) - 1
  attributes = struct.pack("<Q", rights)
  if version >= 4:
    attributes += struct.pack("<Q", _NET_RIGHTS)
  if version >= 6:
    attributes += struct.pack("<Q", _SCOPES)
  buffer = ctypes.create_string_buffer(attributes, len(attributes))
  ruleset = kernel.syscall(
    _CREATE_RULESET, ctypes.byref(buffer), len(attributes), 0
  )
  extra = [os.path.join(numpy_path, name) for name in ("numpy", "numpy.libs")]
  paths = [(path, _READ_FILE | _READ_DIR) for path in extra if numpy_path]
  for path, allowed in [*_readable(), *paths]:
    _allow(ruleset, path, allowed)
  return ruleset


def _readable() -> list[tuple[str, int]]:
  """Paths below which a child may read, with the rights it gets there.

  A library directory's own listing is open, so that imports work, while the
  packages installed inside it are not: the project may be one of them.
  """
  paths = [(path, _READ_FILE | _READ_DIR) for path in _SYSTEM_PATHS]
  for name in ("stdlib", "platstdlib"):
    library = sysconfig.get_path(name)
    if library and os.path.isdir(library):
      paths.append((library, _READ_DIR))
      paths += [
        (os.path.join(library, entry), _READ_FILE | _READ_DIR)
        for entry in os.listdir(library)
        if entry not in _NOT_STANDARD
      ]
      above = os.path.dirname(library)  # libssl and such of a private Python
      paths += [
        (os.path.join(above, entry), _READ_FILE)
        for entry in os.listdir(above)
        if entry.startswith("lib") and ".so" in entry
      ]
  return paths


def _allow(ruleset: int, path: str, rights: int) -> None:
  """Adds one path; one that is not there has nothing to protect."""
  try:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
  except OSError:
    return
  try:
    if not os.path.isdir(path):
      rights &= ~_READ_DIR
    rule = ctypes.create_string_buffer(struct.pack("<Qi", rights, descriptor))
    kernel.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
  finally:
    os.close(descriptor)


def restrict(ruleset: int) -> None:
  """Binds this process to the rules for ever; needs no_new_privs."""
  kernel.syscall(_RESTRICT_SELF, ruleset, 0)
