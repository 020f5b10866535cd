"""A warm interpreter that forks one child a job and watches over it.

It receives the job and the result pipe as descriptors and passes them on
unread, so that no child inherits anything of an earlier job. While a child runs
it reads the child's CPU clock; the child's own word is taken only for which
call it is in, and a lie there just moves seconds between its own calls: those
that had theirs are over when it ends.
"""

import contextlib
import dataclasses
import fcntl
import gc
import mmap
import os
import posix
import signal
import socket
import struct
import sys
import time
from typing import NamedTuple

from codea1_jax.sandbox import child, isolation, kernel, namespaces, proxy

# load_cpu_s, call_cpu_s, wall_factor, memory bytes, calls, open files,
# threads, seed
REQUEST = struct.Struct("<dddQQQQQ")
REPORT = struct.Struct("<Bid?Q")  # the fields of End
ENDED, CPU_LIMIT, WALL_LIMIT, THREAD_LIMIT, NO_CHILD = range(5)
OVERDUE = 5  # what the manager says of a child that its zygote let idle
HELLO_BYTES = 64  # the isolation's names, padded


class End(NamedTuple):
  """How a child ended, in its zygote's word: the child has none in it."""

  how: int
  status: int = 0  # as wait(2) tells it
  cpu_s: float = 0.0
  started: bool = True  # set up: from there on, a death is the program's own
  stage: int = 0  # the last call that had its CPU seconds, as the child claimed


_PRELOADED = (
  "abc base64 bisect calendar cmath collections collections.abc contextlib "
  "copy dataclasses datetime decimal enum fractions functools hashlib heapq "
  "inspect io itertools json math numbers operator pickle queue random re "
  "statistics string textwrap threading types typing unicodedata uuid warnings"
)
_JOB_FDS = [child.JOB_FD, child.RESULT_FD, proxy.PEER_FD]  # a peer: in checks
_LOWEST_OWN, _OWN_DESCRIPTORS = 10, 64
_SLOWEST_TICK, _FASTEST_TICK = 0.1, 0.005  # seconds between looks at a child


@dataclasses.dataclass(frozen=True)
class Request:
  """The limits of one job; the zygote knows no more of it."""

  load_cpu_s: float
  call_cpu_s: float
  wall_factor: float
  memory_bytes: int
  num_calls: int
  open_files: int
  threads: int
  random_seed: int

  @property
  def total_cpu_s(self) -> float:
    return self.load_cpu_s + self.num_calls * self.call_cpu_s


def main(
  socket_fd: int, manager_pid: int, numpy_path: str, without: str
) -> None:
  """Isolates itself once, then serves jobs until the manager hangs up.

  Args:
    socket_fd: the manager's.
    manager_pid: whose end is ours.
    numpy_path: where numpy lies; "" to do without.
    without: names of layers not to use, with spaces between.
  """
  unused = frozenset(without.split())
  for name in _PRELOADED.split():
    __import__(name)
  if numpy_path:
    sys.path.append(numpy_path)
    __import__("numpy")
    sys.path.remove(numpy_path)  # what else lies there is not for programs
  kernel.die_with_parent()
  if os.getppid() != manager_pid:
    return
  inside = kernel.IS_LINUX and "userns" not in unused and namespaces.enter()
  if inside:
    _move_inside(socket_fd)
  kernel.hide_memory()
  layers = isolation.prepare(inside, numpy_path, unused)
  if layers.ruleset is not None:
    layers = dataclasses.replace(layers, ruleset=_raised(layers.ruleset))
  connection = socket.socket(fileno=_raised(socket_fd))
  _silence()
  os.closerange(3, _LOWEST_OWN)
  _forget_the_project()
  connection.sendall(layers.names.encode().ljust(HELLO_BYTES))
  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
  progress = mmap.mmap(-1, mmap.PAGESIZE)
  started = mmap.mmap(-1, mmap.PAGESIZE)
  gc.collect()
  gc.freeze()
  while _serve(connection, layers, progress, started):
    pass


def _move_inside(socket_fd: int) -> None:
  """Continues in a new process, the first of the process namespace.

  The process outside stays as its keeper: it hands on its own end.
  """
  pid = os.fork()
  if pid == 0:
    kernel.die_with_parent()
    namespaces.scatter_process_ids()
    return
  os.close(socket_fd)

  def end_it(*_) -> None:
    with contextlib.suppress(ProcessLookupError):
      os.kill(pid, signal.SIGKILL)

  signal.signal(signal.SIGTERM, end_it)
  os.waitpid(pid, 0)
  os._exit(0)


def _raised(descriptor: int) -> int:
  """Moves a descriptor above the numbers that jobs arrive at."""
  moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST_OWN)
  os.close(descriptor)  # it may be any number, and no child may inherit it
  return moved


def _silence() -> None:
  """Gives this process standard streams of its own, which lead nowhere."""
  null = os.open(os.devnull, os.O_RDWR)
  for standard in (0, 1, 2):
    os.dup2(null, standard)
  os.close(null)


def _forget_the_project() -> None:
  """Leaves programs a plain interpreter with the standard library."""
  sys.path[:] = [path for path in sys.path if path not in sys.argv[1:]]
  for name in [name for name in sys.modules if name.startswith("codea1_jax")]:
    del sys.modules[name]
  sys.argv[:] = [""]
  os.register_at_fork = posix.register_at_fork  # see worker.start_python
  os.environ.clear()
  sys.dont_write_bytecode = True


def _serve(
  connection: socket.socket, layers, progress: mmap.mmap, started: mmap.mmap
) -> bool:
  """Runs one job; False once the manager is gone."""
  data, descriptors, _, _ = socket.recv_fds(connection, REQUEST.size, 3)
  # The lowest free numbers: all of the zygote's own were moved above them.
  if len(descriptors) < 2 or descriptors != _JOB_FDS[: len(descriptors)]:
    return False
  while len(data) < REQUEST.size:
    data += connection.recv(REQUEST.size - len(data))
  request = Request(*REQUEST.unpack(data))
  progress[:] = bytes(mmap.PAGESIZE)  # no message from one job to the next
  started[0] = 0
  try:
    pid = os.fork()
  except OSError:
    pid = -1
  if pid == 0:
    _become_child(layers, request, progress, started, descriptors[-1])
  for descriptor in descriptors:
    os.close(descriptor)
  end = End(NO_CHILD) if pid < 0 else _watch(pid, request, progress)
  if layers.filter is None and pid > 0:
    _sweep(pid, layers)
  connection.sendall(REPORT.pack(*end._replace(started=bool(started[0]))))
  return True


def _become_child(
  layers, request: Request, progress, started, last_fd: int
) -> None:
  """Everything between the fork and the exit of a child."""
  try:
    kernel.die_with_parent()
    _silence()  # flags set on the zygote's would be seen by the next job
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    if layers.filter is None:
      os.setpgid(0, 0)  # what it may fork is found again by its group
    isolation.put_on(
      layers, request.total_cpu_s, request.memory_bytes, request.open_files
    )
    os.closerange(last_fd + 1, _OWN_DESCRIPTORS)
    gc.enable()
    started[0] = 1
    started.close()  # out of the program's reach: it cannot take that back
    child.run(progress, request.random_seed)
  finally:
    os._exit(0)


def _watch(pid: int, request: Request, progress: mmap.mmap) -> End:
  """Waits for a child's end, or brings it about."""
  stage, budget = 0, request.load_cpu_s
  stage_cpu = cpu = idle = 0.0
  wall = time.monotonic()
  while True:
    left = budget - (cpu - stage_cpu)
    nap = min(_SLOWEST_TICK, max(_FASTEST_TICK, left / 2))
    _nap(nap)
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if done:
      cpu = usage.ru_utime + usage.ru_stime
      return End(ENDED, status, cpu, stage=stage)
    last_cpu, last_wall = cpu, wall
    cpu, wall = _cpu_seconds(pid), time.monotonic()
    claimed_stage, claimed_cpu = struct.unpack_from("<Qd", progress)
    if stage < claimed_stage <= request.num_calls:
      stage, budget = claimed_stage, request.call_cpu_s
      honest = last_cpu <= claimed_cpu <= cpu
      stage_cpu, idle = claimed_cpu if honest else last_cpu, 0.0
    if cpu - stage_cpu > budget:
      return End(CPU_LIMIT, *_kill(pid), stage=stage)
    # No limit of the kernel's counts the threads of root, or of one process.
    if len(_threads()) > request.threads:
      return End(THREAD_LIMIT, *_kill(pid), stage=stage)
    # A nap that took much longer than asked for was no fault of the child.
    if not _wants_to_run():
      idle += min(wall - last_wall, 2 * nap)
    if idle > budget * request.wall_factor:
      return End(WALL_LIMIT, *_kill(pid), stage=stage)


def _nap(seconds: float) -> None:
  """Sleeps until a child changes state, at most so long."""
  if hasattr(signal, "sigtimedwait"):
    signal.sigtimedwait({signal.SIGCHLD}, seconds)
  else:
    time.sleep(min(seconds, 0.002))


def _cpu_seconds(pid: int) -> float:
  """A process's CPU clock, all threads; 0 where only RLIMIT_CPU can tell."""
  if not kernel.IS_LINUX:
    return 0.0
  return time.clock_gettime(kernel.cpu_clock(pid))


def _threads() -> list[str]:
  """Paths of the child's threads under /proc; none where it does not tell.

  The child goes there by its number outside of our process namespace.
  """
  try:
    with open("/proc/thread-self/children", encoding="ascii") as file:
      (number,) = file.read().split()
    tasks = f"/proc/{number}/task"
    return [f"{tasks}/{thread}" for thread in os.listdir(tasks)]
  except (OSError, ValueError):
    return []


def _wants_to_run() -> bool:
  """Whether a thread of the child is ready: on a busy machine it only waits.

  False where /proc does not tell: then all time is idle.
  """
  for thread in _threads():
    with contextlib.suppress(OSError), open(f"{thread}/stat", "rb") as file:
      if file.read().rpartition(b")")[2].split()[0] == b"R":
        return True
  return False


def _kill(pid: int) -> tuple[int, float]:
  os.kill(pid, signal.SIGKILL)
  _, status, usage = os.wait4(pid, 0)
  return status, usage.ru_utime + usage.ru_stime


def _sweep(pid: int, layers) -> None:
  """Ends what a child without a system call filter may have forked."""
  with contextlib.suppress(OSError):
    if layers.namespaces:
      os.kill(-1, signal.SIGKILL)  # all of this process namespace
      while True:
        os.waitpid(-1, 0)
    os.killpg(pid, signal.SIGKILL)
