"""Every attack in every tier of isolation that this machine offers.

A tier is what is left after some layers are taken away, as on another machine.
What differs between them is said here: only landlock closes files, and without
a system call filter nothing but the verdicts is promised.
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import textwrap

import process_tree as tree
import pytest
import sandbox_batches as batches

from codea1_jax.sandbox import CheckJob, Job, SandboxPool, kernel
from codea1_jax.types import Status

pytestmark = pytest.mark.skipif(
  not kernel.IS_LINUX, reason="only Linux has more than one tier"
)

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_NOBODY = 65534
_ALL = batches.TIERS + batches.WEAK_TIERS


def _name(without):
  return "without " + " ".join(without) if without else "all layers"


@pytest.fixture(autouse=True)
def nothing_is_left():
  """After a test no process of its pools runs or waits to be collected.

  As subreaper this process is given whatever the pools leave behind.
  """
  before = tree.below(os.getpid())
  kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
  yield
  gone = tree.wait_until(lambda: tree.below(os.getpid()) <= before, 5.0)
  kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 0)
  assert gone, tree.below(os.getpid()) - before


@pytest.mark.parametrize("without", _ALL, ids=_name)
def test_no_tier_gives_a_fake_a_mark_or_takes_one_from_the_honest(without):
  layers, complaints = batches.verdicts(without)
  assert complaints == {}
  assert not any(layer in layers for layer in without)


# With all layers every hog has a test of its own in sandbox_limits_test.py.
@pytest.mark.parametrize(
  "without",
  [
    pytest.param(tier, marks=[] if len(tier) == 2 else pytest.mark.slow)
    for tier in batches.TIERS
  ],
  ids=_name,
)
def test_a_system_call_filter_holds_hogs_without_the_other_layers(without):
  with SandboxPool(workers=1, without=without) as pool:
    if "seccomp" not in pool.description:
      pytest.skip("this machine has no system call filter")
  assert batches.limits(without) == {}


def test_statements_that_are_attacks_are_no_tests():
  assert batches.suites() == {}


def test_uncertain_oracles_are_worth_nothing():
  with SandboxPool(workers=2, limits=batches.TIGHT) as pool:
    assert batches.oracles(pool) == {}


def _other_python():
  """The command of a Python that an unprivileged user can run here."""
  of_the_system = shutil.which("python3", path=os.defpath)
  for python in dict.fromkeys((sys.executable, of_the_system)):
    if python is None:
      continue
    with contextlib.suppress(OSError, subprocess.SubprocessError):
      _as_nobody([python, "-B", "-c", "import sandbox_batches"])
      return [python, "-B"]
  pytest.skip("another user cannot read Python or this repository")


def _as_nobody(command):
  return subprocess.run(
    command,
    cwd="/",
    env={"PYTHONPATH": f"{_ROOT}:{_ROOT / 'tests'}"},
    user=_NOBODY,
    group=_NOBODY,
    extra_groups=[],
    capture_output=True,
    text=True,
    check=True,
    timeout=300,
  ).stdout


@pytest.mark.skipif(os.getuid() != 0, reason="all tests are unprivileged")
@pytest.mark.parametrize(
  "without",
  [
    pytest.param(tier, marks=[] if len(tier) > 1 else pytest.mark.slow)
    for tier in _ALL
  ],
  ids=_name,
)
def test_an_unprivileged_user_is_as_safe(without):
  command = [*_other_python(), str(_ROOT / "tests" / "sandbox_batches.py")]
  layers, complaints = json.loads(_as_nobody([*command, *without]))
  assert complaints == {}
  assert layers != "sandbox: rlimits, 2 workers" or len(without) == 3


@pytest.mark.parametrize("without", _ALL, ids=_name)
def test_only_landlock_closes_files(without, tmp_path):
  """Elsewhere a program can read what its user can: that is the difference."""
  secret = tmp_path / "file"
  secret.write_text("x")
  calls = (f"f({str(secret)!r})", "f('/etc/passwd')", "f('/proc/self/maps')")
  job = Job("def f(path): return open(path).read(1) != ''", "f", calls)
  with SandboxPool(1, without=without, allow_weak_isolation=True) as pool:
    closed = "landlock" in pool.description
    (result,) = pool.run([job])
  assert [verdict.passed for verdict in result.calls] == [not closed] * 3


@pytest.mark.parametrize("without", batches.TIERS, ids=_name)
def test_no_datagram_reaches_a_socket_of_the_machine(without, tmp_path):
  """Landlock does not see it: a connected pair could send to any socket."""
  program = """
    import socket
    def f(path):
      a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
      return a.sendto(b"escaped", path)
  """
  path = str(tmp_path / "socket")
  job = Job(textwrap.dedent(program), "f", (f"f({path!r})",))
  with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
    listener.bind(path)
    listener.setblocking(False)
    with SandboxPool(1, without=without, allow_weak_isolation=True) as pool:
      if "seccomp" not in pool.description:
        pytest.skip("this machine has no system call filter")
      (result,) = pool.run([job])
    with pytest.raises(BlockingIOError):
      listener.recv(99)
  assert "PermissionError" in result.calls[0].detail


def test_who_takes_its_own_frames_back_is_not_our_failure():
  """Without a system call filter: it may then open its pipe for reading."""
  steal = """
import os
os.chmod("/proc/self/fd/4", 0o600)
back = os.open("/proc/self/fd/4", os.O_RDONLY | os.O_NONBLOCK)
def take():
  try: os.read(back, 1 << 16)
  except BlockingIOError: pass
take()
"""
  pairs = [
    (f"{steal}def f(x): take()", "def check(c): c(1)"),
    (
      "def f(x): return x",
      f"{steal}def check(c):\n  take()\n  assert c(1) == 1",
    ),
  ]
  jobs = [CheckJob(program, "f", test, cpu_s=1.0) for program, test in pairs]
  with SandboxPool(2, without=("seccomp",), allow_weak_isolation=True) as pool:
    verdicts = [result.verdict for result in pool.check(jobs * 10)]
  assert Status.INFRASTRUCTURE not in [v.status for v in verdicts], verdicts
