"""One place for one running job: its warm zygotes and the child's pipe."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from codea1_jax.sandbox.check import CheckState
from codea1_jax.sandbox.judge import JobState
from codea1_jax.sandbox.limits import Limits
from codea1_jax.sandbox.wire import FrameReader
from codea1_jax.sandbox.zygote import HELLO_BYTES, REPORT, REQUEST, End

PIPE_BYTES = 1 << 16  # what a pipe holds, and one reading takes
_START_SECONDS = 30.0  # a start takes a fifth of a second on a free machine
_FRAME_HEAD = 512  # room for a frame's kind and an error's text
_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")


def start_python(
  module: str, socket_fd: int, hash_seed: str, *arguments: str
) -> subprocess.Popen:
  """Starts `module.main(socket_fd, pid of this process, *arguments)` in a bare
  Python.

  No site packages, no user site, no current directory on its path and nothing
  of our environment. `-E` and `-I` would do that too, but would also make it
  ignore the hash seed.
  """
  # The library's own hooks (threading, random) would take a fifth of a child's
  # time, for nothing: a zygote has one thread, and each child gets its seed.
  code = (
    f"import os, sys; os.register_at_fork = lambda **hooks: None; "
    f"sys.path.append(sys.argv[1]); "
    f"from codea1_jax.sandbox.{module} import main; "
    f"main({socket_fd}, {os.getpid()}, *{arguments!r})"
  )
  environment = {
    name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ
  }
  environment |= {
    "PYTHONHASHSEED": hash_seed,
    # One arena: each thread's own would reserve address space that is limited.
    "MALLOC_ARENA_MAX": "1",
    # numpy's threads would end in a fork, and count as the child's.
    "OPENBLAS_NUM_THREADS": "1",
  }
  return subprocess.Popen(
    [sys.executable, "-s", "-S", "-P", "-B", "-c", code, _ROOT],
    stdin=subprocess.DEVNULL,
    pass_fds=(socket_fd,),
    env=environment,
    cwd="/",
    start_new_session=True,  # a Ctrl-C is the trainer's to handle
  )


class Zygote:
  """The manager's end of one zygote process."""

  def __init__(self, hash_seed: int, *arguments: str):
    self.socket, theirs = socket.socketpair()
    with theirs:
      # Never 0, which would turn off hash randomization altogether.
      self.process = start_python(
        "zygote", theirs.fileno(), str(101 + hash_seed), *arguments
      )
    self.socket.setblocking(False)
    self.isolation = ""  # known once it said hello
    self.start_deadline = time.monotonic() + _START_SECONDS
    self._buffer = b""

  @property
  def ready(self) -> bool:
    return bool(self.isolation)

  def receive(self) -> End | None:
    """Reads a hello or a report; the report where one is complete.

    Raises:
      EOFError: the zygote is dead.
    """
    try:
      data = self.socket.recv(PIPE_BYTES)
    except BlockingIOError:
      return None
    except ConnectionError:
      data = b""
    if not data:
      raise EOFError("a worker died")
    self._buffer += data
    size = REPORT.size if self.ready else HELLO_BYTES
    if len(self._buffer) < size:
      return None
    message, self._buffer = self._buffer[:size], self._buffer[size:]
    if self.ready:
      return End(*REPORT.unpack(message))
    self.isolation = message.decode().strip()
    return None

  def close(self) -> None:
    """Ends it and all it started."""
    self.process.terminate()
    self.socket.close()
    try:
      self.process.wait(2.0)
    except subprocess.TimeoutExpired:
      self.process.kill()
      self.process.wait()


class Run:
  """One child at work: whom its claims go to, and the pipe they come by."""

  def __init__(self, zygote: Zygote, part, limits: Limits, peer: int | None):
    """Hands a part of a job to its zygote, which must be ready."""
    self.part = part
    self.deadline = 0.0  # when the manager loses patience with the zygote
    self.num_claims = 0
    load_cpu_s, call_cpu_s, memory, calls = part.request
    request = REQUEST.pack(
      load_cpu_s,
      call_cpu_s,
      limits.wall_factor,
      memory,
      calls,
      limits.max_open_files,
      limits.max_threads,
      part.hash_seed,
    )
    self._reader = FrameReader(limits.max_result_bytes + _FRAME_HEAD)
    self.pipe, theirs = os.pipe()
    os.set_blocking(self.pipe, False)
    # Not to be opened again through /proc, for reading: frames are not to be
    # taken back.
    with contextlib.suppress(OSError):
      os.fchmod(theirs, 0)
    descriptors = [_anonymous_file(part.start()), theirs]
    passed = descriptors if peer is None else [*descriptors, peer]
    try:
      socket.send_fds(zygote.socket, [request], passed)
    except OSError:  # it is dead, or too many descriptors are on their way
      zygote.process.terminate()  # receiving from it will tell
    for descriptor in descriptors:
      os.close(descriptor)

  def read_pipe(self) -> int:
    """Passes claims to the judge; returns their bytes, -1 at the end.

    A child that floods the pipe or breaks the frames is not listened to any
    more; writing on then fails, and its limits still hold.
    """
    try:
      data = os.read(self.pipe, PIPE_BYTES)
    except BlockingIOError:
      return 0
    try:
      for frame in self._reader.feed(data):
        self.part.on_frame(frame)
        self.num_claims += 1
    except ValueError:
      return -1
    return len(data) or -1

  def close_pipe(self) -> None:
    if self.pipe >= 0:
      os.close(self.pipe)
      self.pipe = -1


class Worker:
  """Runs one job at a time, in zygotes of the hash seeds that it asks for."""

  def __init__(self, limits: Limits):
    self._limits = limits
    self.zygotes: dict[int, Zygote] = {}
    self.job: JobState | CheckState | None = None
    self.runs: dict[int, Run] = {}  # by hash seed

  def begin(self) -> None:
    """Starts the job's children, who share a socket where they are two."""
    parts = self.job.parts
    ends = socket.socketpair() if len(parts) > 1 else ()
    for part, peer in zip(parts, [*(end.fileno() for end in ends), None]):
      zygote = self.zygotes[part.hash_seed]
      self.runs[part.hash_seed] = Run(zygote, part, self._limits, peer)
    for end in ends:
      end.close()


def _anonymous_file(text: bytes) -> int:
  """A descriptor of a nameless file, which ends with the last of them."""
  if hasattr(os, "memfd_create"):
    descriptor = os.memfd_create("job", os.MFD_CLOEXEC)
  else:
    descriptor, name = tempfile.mkstemp()
    os.unlink(name)
  view = memoryview(text)
  while view:
    view = view[os.write(descriptor, view) :]
  return descriptor
