"""What the sandbox leaves behind: nothing, whoever dies first."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import process_tree as tree
import pytest

from codea1_jax.sandbox import Job, Limits, SandboxPool

pytestmark = pytest.mark.skipif(
  not pathlib.Path("/proc/self/stat").exists(), reason="needs Linux's /proc"
)

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_ECHO = Job("def f(x): return x", "f", ("f(1)",), ("1",))
_SLEEP = Job("import time\ndef f(): time.sleep(1000)", "f", ("f()",))
_TRAINER = """
import sys, threading, time
from codea1_jax.sandbox import Job, Limits, SandboxPool
pool = SandboxPool(workers=2, limits=Limits(wall_factor=1000.0))
pool.oracle([Job("def f(x): return x", "f", ("f(1)",))])
bodies = ["time.sleep(1000)", "[0 for _ in iter(int, 1)]"]
jobs = [Job("import time\\ndef f(): " + body, "f", ("f()",)) for body in bodies]
threading.Thread(target=pool.run, args=(jobs,), daemon=True).start()
time.sleep(0.3)
print("running", flush=True)
{ending}
"""


def _start_trainer(ending):
  process = subprocess.Popen(
    [sys.executable, "-c", _TRAINER.format(ending=ending)],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == "running\n"
  below = tree.below(process.pid)
  assert len(below) >= 5  # a manager, zygotes of two kinds, two children
  return process, below


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_trainer_leaves_nothing_running(signal_number):
  process, below = _start_trainer("time.sleep(100)")
  process.send_signal(signal_number)
  process.wait()
  process.stdout.close()
  assert tree.wait_until(lambda: not tree.running(below), 5.0)


@pytest.mark.parametrize("ending", ["sys.exit(0)", "raise ValueError"])
def test_a_trainer_that_forgets_to_close_leaves_nothing(ending):
  process, below = _start_trainer("sys.stderr.close();" + ending)
  process.wait(10.0)
  process.stdout.close()
  assert tree.wait_until(lambda: not tree.running(below), 5.0)


def test_a_killed_manager_leaves_nothing_running():
  process, below = _start_trainer("time.sleep(100)")
  manager = [
    p for p, (parent, _) in tree.processes().items() if parent == process.pid
  ]
  os.kill(manager[0], signal.SIGKILL)
  try:
    assert tree.wait_until(lambda: not tree.running(below), 5.0)
  finally:
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_manager_that_judges_for_ever_ends():
  code = """
import os, socket, time
from codea1_jax.sandbox import manager
manager._TURN_CPU_S = 0.2
ours, theirs = socket.socketpair()
stalled = manager.Manager(theirs, os.getppid())
def stall():
  while True: pass
stalled._handlers[theirs.fileno()] = stall
ours.send(b"x")
stalled.serve()
"""
  ended = subprocess.run(
    [sys.executable, "-c", code], cwd=_ROOT, timeout=30, check=False
  )
  assert ended.returncode == -signal.SIGPROF


def test_close_leaves_no_process_zombie_or_descriptor():
  before = tree.below(os.getpid()), sorted(os.listdir("/proc/self/fd"))
  pool = SandboxPool(workers=2)
  pool.oracle([_ECHO])
  pool.run([_ECHO] * 50)
  assert len(tree.below(os.getpid()) - before[0]) >= 5
  pool.close()
  assert tree.wait_until(lambda: tree.below(os.getpid()) <= before[0], 2.0)
  assert sorted(os.listdir("/proc/self/fd")) == before[1]


def test_an_interrupted_run_leaves_nothing_and_can_go_on(monkeypatch):
  def interrupt():
    time.sleep(0.2)
    raise KeyboardInterrupt

  before = tree.below(os.getpid())
  limits = Limits(wall_factor=1000.0)
  with SandboxPool(workers=1, limits=limits) as pool:
    with monkeypatch.context() as patch:
      patch.setattr(pool._client, "_receive", interrupt)
      with pytest.raises(KeyboardInterrupt):
        pool.run([_SLEEP])
    assert tree.wait_until(lambda: tree.below(os.getpid()) <= before, 5.0)
    assert pool.run([_ECHO])[0].calls[0].passed


def test_many_jobs_and_deaths_leave_no_descriptor_and_no_zombie():
  """With room for 40 descriptors a leak of one a job would end the manager."""
  code = """
import resource
from codea1_jax.sandbox import Job, SandboxPool
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
die = Job("import os\\ndef f(x): os._exit(0)", "f", ("f(1)", "f(2)"))
echo = Job("def f(x): return x", "f", ("f(1)",), ("1",))
with SandboxPool(workers=1) as pool:
  manager = pool._client._process.pid
  results = pool.run([die, echo] * 50)
  assert all(r.calls[0].passed for r in results[1::2])
  assert pool._client._process.pid == manager
  print(manager)
"""
  process = subprocess.Popen(
    [sys.executable, "-c", code], cwd=_ROOT, stdout=subprocess.PIPE, text=True
  )
  zombies = set()
  while process.poll() is None:
    states, below = tree.processes(), tree.below(process.pid)
    zombies |= {p for p in below if states.get(p, (0, ""))[1] == "Z"}
    time.sleep(0.05)
  assert process.returncode == 0
  assert process.stdout.read().strip().isdigit()
  process.stdout.close()
  assert len(zombies) < 20  # seen in passing; 150 children died


def test_a_child_that_waits_for_a_cpu_is_not_idle():
  if not pathlib.Path("/proc/thread-self/children").exists():
    pytest.skip("this kernel does not list children")
  code = """
import os, signal, time
from codea1_jax.sandbox import zygote
for body in (lambda: [None for _ in iter(int, 1)], lambda: time.sleep(99)):
  pid = os.fork()
  if pid == 0: body()
  time.sleep(0.3)
  print(zygote._wants_to_run(), end=" ")
  os.kill(pid, signal.SIGKILL)
  os.wait()
"""
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout == "True False "
