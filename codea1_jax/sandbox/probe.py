"""What this machine offers the sandbox, what follows from it, what does not.

  python -m codea1_jax.sandbox.probe [--without=LAYER,...]

Everything is really tried, each in a process of its own: what a kernel's
version promises, a container may forbid.
"""

import argparse
import contextlib
import mmap
import os
import resource
import select
import signal
import socket
import textwrap
import time
from collections.abc import Callable, Sequence

from codea1_jax import sandbox
from codea1_jax.sandbox import kernel, landlock, namespaces, seccomp
from codea1_jax.sandbox.isolation import LAYERS

_PATIENCE = 5.0  # seconds for a try, which takes milliseconds
_ALWAYS = sandbox.__doc__.partition("Not covered: ")[2]
_WITHOUT = {
  "seccomp": (
    "without seccomp a program can start others and call all of the kernel: it"
    " reaches files, network and processes of this user as far as the other"
    " layers let it, and can lower the limits of its worker (prlimit), in which"
    " later jobs run"
  ),
  "landlock": "without landlock a program reads every file that this user can",
  "userns": (
    "without userns a program shares the machine's processes, network and"
    " System V memory with others: only seccomp keeps it from them"
  ),
}


def _no_new_privs() -> None:
  kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
  if "NoNewPrivs:\t1" not in _read("/proc/self/status"):
    raise OSError("it does not last")


def _not_dumpable() -> None:
  kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
  if kernel.prctl(kernel.PR_GET_DUMPABLE) != 0:
    raise OSError("it does not last")


def _subreaper() -> None:
  kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
  if os.fork() == 0:
    os.fork()
    os._exit(0)
  os.wait()
  os.wait()  # ChildProcessError where the orphan went to somebody else


def _parent_death_signal() -> None:
  ours, theirs = os.pipe()
  if os.fork() == 0:
    if os.fork() == 0:
      kernel.die_with_parent()
      os.write(theirs, b".")
      time.sleep(2 * _PATIENCE)
    os.read(ours, 1)  # its parent dies once the signal is asked for
    os._exit(0)
  os.close(theirs)
  if not select.select([ours], [], [], _PATIENCE / 2)[0]:
    raise OSError("an orphan lives on")


def _seccomp() -> None:
  program = seccomp.build()
  kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
  seccomp.install(program)
  _expect_refusal(lambda: socket.socket().close())


def _landlock() -> str:
  ruleset = landlock.build()
  kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
  landlock.restrict(ruleset)
  _expect_refusal(lambda: os.close(os.open("/", os.O_RDONLY)))
  return f"ABI {landlock.abi()}"


def _namespace(name: str) -> None:
  before = os.readlink(f"/proc/self/ns/{name}")
  namespaces.unshare(name)
  if name == "pid":  # it is for children only
    pid = os.fork()
    if pid == 0:
      os._exit(os.getpid() != 1)
    inside = os.waitpid(pid, 0)[1] == 0
  else:
    inside = os.readlink(f"/proc/self/ns/{name}") != before
  if not inside:
    raise OSError("still in the old one")


def _memfd() -> None:
  descriptor = os.memfd_create("probe", os.MFD_CLOEXEC)
  os.write(descriptor, b"x")
  if os.pread(descriptor, 2, 0) != b"x":
    raise OSError("it does not hold what was written")


def _address_space_limit() -> None:
  resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
  try:
    mmap.mmap(-1, 1 << 31)
  except OSError:
    return
  raise OSError("it does not bind")


def _cpu_clock_of_a_child() -> None:
  pid = os.fork()
  if pid == 0:
    while True:
      pass
  while time.clock_gettime(kernel.cpu_clock(pid)) < 0.001:
    pass


def _list_of_children() -> None:
  pid = os.fork()
  if pid == 0:
    time.sleep(_PATIENCE)
  listed = _read("/proc/thread-self/children").split()
  if listed != [str(pid)]:
    raise OSError(f"lists {len(listed)} of 1 children")


PRIMITIVES: dict[str, Callable[[], str | None]] = {
  "seccomp filter": _seccomp,
  "landlock": _landlock,
  **{
    f"{name} namespace": lambda name=name: _namespace(name)
    for name in namespaces.FLAGS
  },
  "no_new_privs": _no_new_privs,
  "PR_SET_DUMPABLE": _not_dumpable,
  "subreaper": _subreaper,
  "parent death signal": _parent_death_signal,
  "memfd": _memfd,
  "RLIMIT_AS": _address_space_limit,
  "CPU clock of a child": _cpu_clock_of_a_child,
  "list of a thread's children": _list_of_children,
}


def _read(path: str) -> str:
  with open(path, encoding="ascii") as file:
    return file.read()


def _expect_refusal(call: Callable[[], None]) -> None:
  try:
    call()
  except PermissionError:
    return
  raise OSError("installed, and refuses nothing")


def attempt(primitive: Callable[[], str | None]) -> str:
  """ "yes", "yes (detail)" or "no (why)", as a child found out."""
  ours, theirs = os.pipe()
  pid = os.fork()
  if pid == 0:
    os.setpgid(0, 0)
    try:
      detail = primitive()
      text = f"yes ({detail})" if detail else "yes"
    except Exception as error:  # whatever keeps it from working is the answer
      text = f"no ({error})"
    os.write(theirs, text.encode())
    signal.pause()  # until its whole group is ended
  os.close(theirs)
  # No waiting for the end of the pipe: a grandchild may hold it.
  answered = select.select([ours], [], [], _PATIENCE)[0]
  text = os.read(ours, 1000).decode() if answered else "no (it hangs)"
  os.close(ours)
  with contextlib.suppress(ProcessLookupError):  # before it had its group
    os.killpg(pid, signal.SIGKILL)
  os.kill(pid, signal.SIGKILL)
  os.waitpid(pid, 0)
  return text or "no (the process died)"


def _tier(without: Sequence[str]) -> list[str]:
  """The description of a pool that really starts, and what it leaves open."""
  try:
    with sandbox.SandboxPool(
      workers=1, allow_weak_isolation=True, without=without
    ) as pool:
      tier = pool.description
  except RuntimeError as error:
    return [str(error)]
  holes = [*_ALWAYS.strip().rstrip(".").split(";")]
  holes += [text for name, text in _WITHOUT.items() if name not in tier]
  if "seccomp" not in tier:
    holes.append("a pool here starts with allow_weak_isolation=True only")
  lines = [tier, "", "Not covered:"]
  for hole in holes:
    text = " ".join(hole.split())
    lines += textwrap.wrap(f"- {text}", 80, subsequent_indent="  ")
  return lines


def report(without: Sequence[str] = ()) -> str:
  """All that the command prints."""
  user = "root" if os.getuid() == 0 else f"uid {os.getuid()}"
  lines = [f"{'user':28} {user}, {os.uname().release} {kernel.MACHINE}"]
  for name, primitive in PRIMITIVES.items():
    lines.append(f"{name:28} {attempt(primitive)}")
  return "\n".join([*lines, "", *_tier(without)])


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    "--without",
    default="",
    metavar="LAYER,...",
    help=f"layers of {', '.join(LAYERS)} that the pool shall not use",
  )
  without = [name for name in parser.parse_args().without.split(",") if name]
  unknown = sorted(set(without) - set(LAYERS))
  if unknown:
    parser.error(f"unknown layers {', '.join(unknown)}")
  print(report(without))


if __name__ == "__main__":
  main()
