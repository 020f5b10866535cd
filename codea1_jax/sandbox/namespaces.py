"""A private view of processes, network and IPC for one zygote."""

import contextlib
import os

from codea1_jax.sandbox import kernel

_UNSHARE = {"x86_64": 272, "aarch64": 97}
FLAGS = {
  "user": 0x10000000,
  "pid": 0x20000000,
  "net": 0x40000000,
  "ipc": 0x08000000,
  "uts": 0x04000000,
}


def enter() -> bool:
  """Leaves the host's namespaces, keeping user and group ids; says if it did.

  The caller's next child becomes the first process of the new process
  namespace: when that one dies, the kernel kills everything inside.
  """
  # Tried in a child first: half a namespace would be worse than none.
  pid = os.fork()
  if pid == 0:
    status = 1
    try:
      unshare(*FLAGS)
      if os.fork() == 0:
        os._exit(0)
      status = os.waitstatus_to_exitcode(os.wait()[1])
    finally:
      os._exit(status)
  if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
    return False
  unshare(*FLAGS)
  return True


def unshare(*names: str) -> None:
  """Enters new namespaces, a user namespace always among them.

  Raises:
    OSError: the kernel refuses.
    KeyError: a machine not known.
  """
  uid, gid = os.getuid(), os.getgid()
  flags = {FLAGS[name] for name in ("user", *names)}
  kernel.syscall(_UNSHARE[kernel.MACHINE], sum(flags))
  _write("/proc/self/setgroups", "deny")
  _write("/proc/self/uid_map", f"{uid} {uid} 1")
  _write("/proc/self/gid_map", f"{gid} {gid} 1")


def scatter_process_ids() -> None:
  """Numbers new processes from anywhere on: two zygotes must not agree on what
  a program finds its own number to be.
  """
  start = 300 + int.from_bytes(os.urandom(2), "little") % 20_000
  with contextlib.suppress(OSError):  # where /proc/sys is read-only
    _write("/proc/sys/kernel/ns_last_pid", str(start))


def _write(path: str, text: str) -> None:
  with open(path, "w", encoding="ascii") as file:
    file.write(text)
