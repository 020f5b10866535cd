"""One place for one running job: its warm zygotes and the child's pipe."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from codea1_jax.sandbox import zygote
from codea1_jax.sandbox.judge import JobState
from codea1_jax.sandbox.limits import Limits
from codea1_jax.sandbox.wire import FrameReader

_CHUNK = 1 << 16
_START_SECONDS = 30.0  # a start takes a fifth of a second on a free machine
_FRAME_HEAD = 512  # room for a frame's kind and an error's text
_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")


def start_python(
  module: str, socket_fd: int, hash_seed: str
) -> subprocess.Popen:
  """Starts `module.main(socket_fd, pid of this process)` in a bare Python.

  No site packages, no user site, no current directory on its path and nothing
  of our environment. `-E` and `-I` would do that too, but would also make it
  ignore the hash seed.
  """
  code = (
    f"import sys; sys.path.append(sys.argv[1]); "
    f"from codea1_jax.sandbox.{module} import main; "
    f"main({socket_fd}, {os.getpid()})"
  )
  environment = {
    name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ
  }
  # One arena: each thread's own would reserve address space that is limited.
  environment |= {"PYTHONHASHSEED": hash_seed, "MALLOC_ARENA_MAX": "1"}
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

  def __init__(self, hash_seed: int):
    self.socket, theirs = socket.socketpair()
    with theirs:
      # Never 0, which would turn off hash randomization altogether.
      self.process = start_python(
        "zygote", theirs.fileno(), str(101 + hash_seed)
      )
    self.socket.setblocking(False)
    self.isolation = ""  # known once it said hello
    self.start_deadline = time.monotonic() + _START_SECONDS
    self._buffer = b""

  @property
  def ready(self) -> bool:
    return bool(self.isolation)

  def receive(self) -> tuple | None:
    """Reads a hello or a report; the report where one is complete.

    Raises:
      EOFError: the zygote is dead.
    """
    try:
      data = self.socket.recv(_CHUNK)
    except BlockingIOError:
      return None
    except ConnectionError:
      data = b""
    if not data:
      raise EOFError("a worker died")
    self._buffer += data
    size = zygote.REPORT.size if self.ready else zygote.HELLO_BYTES
    if len(self._buffer) < size:
      return None
    message, self._buffer = self._buffer[:size], self._buffer[size:]
    if self.ready:
      return zygote.REPORT.unpack(message)
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


class Worker:
  """Runs one job at a time, in a zygote of the hash seed that it asks for."""

  def __init__(self, limits: Limits):
    self._limits = limits
    self._reader = FrameReader(0)
    self.zygotes: dict[int, Zygote] = {}
    self.job: JobState | None = None
    self.pipe = -1  # read end of the running child's result pipe
    self.running = False
    self.deadline = 0.0  # when the manager loses patience with the zygote

  def begin(self) -> None:
    """Hands the job to its zygote, which must be ready."""
    text = self.job.start()
    limits = self._limits
    request = zygote.REQUEST.pack(
      limits.load_cpu_s,
      limits.call_cpu_s,
      limits.wall_factor,
      limits.memory_mb << 20,
      self.job.num_pending,
      limits.max_open_files,
      self.job.hash_seed,
    )
    self._reader = FrameReader(limits.max_result_bytes + _FRAME_HEAD)
    self.pipe, theirs = os.pipe()
    os.set_blocking(self.pipe, False)
    self.running = True
    file = _anonymous_file(text)
    connection = self.zygotes[self.job.hash_seed].socket
    with contextlib.suppress(ConnectionError):  # receiving from it will tell
      socket.send_fds(connection, [request], [file, theirs])
    os.close(file)
    os.close(theirs)

  def read_pipe(self) -> bool:
    """Passes claims to the judge; False once there is nothing more to read.

    A child that floods the pipe or breaks the frames is not listened to any
    more; writing on then fails, and its limits still hold.
    """
    try:
      data = os.read(self.pipe, _CHUNK)
    except BlockingIOError:
      return True
    try:
      for frame in self._reader.feed(data):
        self.job.on_frame(frame)
    except ValueError:
      return False
    return bool(data)

  def close_pipe(self) -> None:
    if self.pipe >= 0:
      os.close(self.pipe)
      self.pipe = -1


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
