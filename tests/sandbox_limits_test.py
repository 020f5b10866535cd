"""Programs that try to go on for ever or to use everything: each one ends."""

import base64
import dataclasses
import resource
import textwrap
import time
import zlib

import pytest

from codea1_jax.sandbox import Job, Limits, SandboxPool
from codea1_jax.types import Status

_LIMITS = Limits(call_cpu_s=0.25, load_cpu_s=0.4, wall_factor=4.0, memory_mb=96)


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, limits=_LIMITS) as made:
    yield made


@pytest.fixture(scope="module")
def roomy_pool():
  """For what must not end by time: fresh pages can cost a busy machine more
  CPU time than `_LIMITS` has."""
  limits = dataclasses.replace(_LIMITS, call_cpu_s=5.0)
  with SandboxPool(workers=2, limits=limits) as made:
    yield made


# 200 MB, packed twice: some kilobytes.
_BOMB = base64.b64encode(zlib.compress(zlib.compress(bytes(2 * 10**8), 1)))

# Each misbehaves for x == 1 only; the second call must not suffer from it.
_HOGS = {
  "loop": ("timeout", "while x == 1: pass"),
  "swallowed exceptions": (
    "timeout",
    """
    while x == 1:
      try:
        while True: pass
      except BaseException: pass
    """,
  ),
  "ignored signals": (
    "timeout",
    """
    import signal
    for number in range(1, 65):
      try: signal.signal(number, signal.SIG_IGN)
      except (OSError, ValueError): pass
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while x == 1: pass
    """,
  ),
  "own timers": (
    "timeout",
    """
    import signal, time
    signal.signal(signal.SIGPROF, lambda *a: None)
    signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
    time.process_time = lambda: 0.0
    while x == 1: pass
    """,
  ),
  "large power": ("timeout", "return 9 ** 9 ** 9 if x == 1 else x"),
  "regex": (
    "timeout",
    "import re; x == 1 and re.match('(a+)+$', 'a' * 50 + 'b')",
  ),
  "busy threads": (
    "timeout",
    """
    import threading
    def spin():
      while True: pass
    if x == 1:
      threads = [threading.Thread(target=spin) for _ in range(4)]
      for thread in threads: thread.start()
      for thread in threads: thread.join()
    """,
  ),
  "sleep": ("timeout", "import time; x == 1 and time.sleep(1000)"),
  "deadlock": (
    "timeout",
    """
    import threading
    lock = threading.Lock()
    while x == 1: lock.acquire()
    """,
  ),
  "infinite generator": (
    "timeout",
    "import itertools; x == 1 and sum(itertools.repeat(1))",
  ),
  "stdout": ("timeout", "while x == 1: print('x' * 10**6)"),
  "input": ("error", "x == 1 and input()"),
  "doubling": ("memory", "text = 'x'\n    while x == 1: text += text"),
  "list": ("memory", "x == 1 and [0] * 10**9"),
  "zlib bomb": (
    "memory",
    """
    import base64, zlib
    if x == 1: zlib.decompress(zlib.decompress(base64.b64decode(BOMB)))
    """,
  ),
  "format width": ("memory", "x == 1 and f'{1:{10**9}}'"),
  "constant folding": ("memory", "exec('y = \"a\" * 10**9') if x == 1 else 0"),
  "python recursion": (
    "error timeout",
    """
    import sys
    sys.setrecursionlimit(10**9)
    def down(n): return [down(n)]
    if x == 1: return down(x)
    """,
  ),
  "C recursion": (
    "error timeout",
    """
    import sys
    sys.setrecursionlimit(10**9)
    if x == 1:
      deep = None
      for _ in range(10**6): deep = (deep,)
      return repr(deep)
    """,
  ),
  "parser bomb": ("error memory", "eval('(' * 10**5) if x == 1 else 0"),
  "result flood": (
    "error timeout",
    """
    import os
    while x == 1: os.write(4, b"x" * 65536)
    """,
  ),
  "flood of whole frames": (
    "error timeout",
    """
    import os
    while x == 1: os.write(4, bytes([1, 0, 0, 0, 83]) * 9999)
    """,
  ),
  "100 MB string": ("error", "return 'x' * 10**8 if x == 1 else x"),
  "large integer": ("error", "return 1 << 10**8 if x == 1 else x"),
  "self-containing list": (
    "error",
    """
    if x == 1:
      items = []
      items.append(items)
      return items
    """,
  ),
  "deep list": (
    "error",
    """
    items = []
    for _ in range(10**5): items = [items]
    if x == 1: return items
    """,
  ),
  "fork bomb": ("error", "import os\n    while x == 1: os.fork()"),
  "daemon": (
    "error",
    """
    import os
    if x == 1:
      if os.fork() == 0: os.setsid()
    """,
  ),
  "session": ("error", "import os; x == 1 and os.setsid()"),
  "multiprocessing": (
    "error",
    """
    import multiprocessing, time
    if x == 1: multiprocessing.Process(target=time.sleep, args=(99,)).start()
    """,
  ),
  "exec": ("error", "import os; x == 1 and os.execv('/bin/true', ['true'])"),
  "subprocess": ("error", "import subprocess; x == 1 and subprocess.run('ls')"),
  "thread bomb": (
    "error memory",
    """
    import threading, time
    while x == 1: threading.Thread(target=time.sleep, args=(9,)).start()
    """,
  ),
  "descriptor bomb": ("error", "import os\n    while x == 1: os.dup(0)"),
  "kill everything": ("error", "import os; x == 1 and os.kill(-1, 9)"),
  "kill the parent": (
    "error",
    "import os; x == 1 and os.kill(os.getppid(), 9)",
  ),
  "kill the group": ("error", "import os; x == 1 and os.killpg(0, 9)"),
  "kill by owner": (
    "error",
    """
    import fcntl, os
    a, b = os.pipe()
    if x == 1: fcntl.fcntl(a, fcntl.F_SETOWN, os.getppid())
    """,
  ),
  "kill itself": ("error", "import os; x == 1 and os.kill(os.getpid(), 9)"),
  "raised limits": (
    "error",
    """
    import resource
    if x == 1:
      resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    """,
  ),
  "file": ("error", "x == 1 and open('/tmp/left', 'w').write('x')"),
  "file in memory": (
    "error",
    "x == 1 and open('/dev/shm/left', 'w').write('x')",
  ),
  "memory file": ("error", "import os; x == 1 and os.memfd_create('x')"),
  "removed file": ("error", "import os; x == 1 and os.unlink('/tmp')"),
  "socket": ("error", "import socket; x == 1 and socket.socket()"),
  "lookup": (
    "error",
    "import socket; x == 1 and socket.getaddrinfo('localhost', 80)",
  ),
  "unix socket": ("error", "import socket; x == 1 and socket.socket(1, 1)"),
  "ptrace": (
    "error",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    if x == 1 and libc.ptrace(16, os.getppid(), 0, 0) != 0:
      raise OSError(ctypes.get_errno(), "ptrace")
    """,
  ),
  "exotic calls": (
    "error",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    if x == 1:
      # bpf, io_uring_setup, userfaultfd, unshare, mount, keyctl, shmget
      numbers = (321, 425, 323, 272, 165, 250, 29, 0x40000000 + 41)
      for number in numbers if os.uname().machine == "x86_64" else ():
        if libc.syscall(number, 0, 0, 0, 0, 0) != -1: return x
        if ctypes.get_errno() != 1: return x
      raise OSError("all refused")
    """,
  ),
}


@pytest.mark.parametrize("name", _HOGS)
def test_a_hog_loses_its_call_only(pool, roomy_pool, name):
  statuses, body = _HOGS[name]
  timed = "timeout" in statuses
  body = textwrap.indent(textwrap.dedent(f"    {body.strip()}"), "  ")
  program = f"BOMB = {_BOMB!r}\ndef f(x):\n{body}\n  return x\n"
  job = Job(program, "f", ("f(1)", "f(2)"), ("1", "2"))
  start = time.monotonic()
  (result,) = (pool if timed else roomy_pool).run([job])
  assert result.load.passed, result.load
  hog, other = result.calls
  assert hog.status.value in statuses.split(), hog
  assert other.passed, other
  assert result.cpu_s < (2.0 if timed else 6.0)
  assert time.monotonic() - start < (8.0 if timed else 30.0)


@pytest.fixture(scope="module")
def patient_pool():
  """One in which only CPU time can run out, however busy the machine is."""
  limits = dataclasses.replace(_LIMITS, wall_factor=100.0)
  with SandboxPool(workers=1, limits=limits) as made:
    yield made


def test_lies_about_progress_do_not_stop_the_clock(patient_pool):
  program = """
    import struct, sys
    def f(x):
      frame = sys._getframe()
      while "progress" not in frame.f_locals: frame = frame.f_back
      page = frame.f_locals["progress"]
      while x == 1: page[:16] = struct.pack("<Qd", 2, 1e308)
      return x
  """
  job = Job(textwrap.dedent(program), "f", ("f(1)", "f(2)"), ("1", "2"))
  (result,) = patient_pool.run([job])
  assert result.calls[0].detail == "CPU time above the limit"
  assert result.calls[1].passed
  assert result.cpu_s < 1.5  # the system's own limit would act after 2 s


def test_load_and_calls_have_budgets_of_their_own(patient_pool):
  program = """
    import time
    def burn(seconds):
      end = time.process_time() + seconds
      while time.process_time() < end: pass
    burn(0.2)
    def f(seconds):
      burn(seconds)
      return 0
  """
  calls = ("f(0.15)",) * 3 + ("f(0.35)",) + ("f(0.15)",)
  job = Job(textwrap.dedent(program), "f", calls, ("0",) * 5)
  (result,) = patient_pool.run([job])
  statuses = [verdict.status.value for verdict in result.calls]
  assert statuses == ["pass"] * 3 + ["timeout"] + ["pass"]
  assert 0.15 * 4 + 0.25 < result.cpu_s < 1.8


def test_a_limit_is_on_cpu_time_not_on_the_clock(pool):
  program = "import time\ndef f(x):\n  time.sleep(0.5)\n  return x"
  (result,) = pool.run([Job(program, "f", ("f(1)",), ("1",))])
  assert result.calls[0].passed and result.cpu_s < 0.2


def test_a_library_that_needs_threads_and_memory_fits():
  program = "def f(n): return len(bytearray(n << 20))"
  limits = Limits(memory_mb=100)
  with SandboxPool(workers=1, limits=limits) as pool:
    (result,) = pool.run([Job(program, "f", ("f(80)", "f(120)"))])
  assert result.calls[0].passed
  assert result.calls[1].status is Status.MEMORY


def test_low_limits_of_the_user_are_kept():
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
  try:
    program = "import resource\ndef f():\n  return resource.getrlimit(7)"
    with SandboxPool(workers=1, limits=Limits(max_open_files=32)) as pool:
      (result,) = pool.run([Job(program, "f", ("f()",))])
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
  assert result.calls[0].value == "(32, 32)"
