"""What callers of the pool rely on: verdicts, order, the oracle, failures."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from codea1_jax.sandbox import Job, Limits, SandboxPool, wire
from codea1_jax.sandbox.client import ManagerClient
from codea1_jax.types import Status, Verdict

_QUICK = Limits(call_cpu_s=0.3, load_cpu_s=0.5, wall_factor=4.0)
_DOUBLE = "def f(x, k=2):\n  return x * k\n"


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, limits=_QUICK) as made:
    yield made


def _run(pool, program, calls, expected=None, entry_point="f"):
  job = Job(textwrap.dedent(program), entry_point, tuple(calls), expected)
  return pool.run([job])[0]


def _statuses(result):
  return [verdict.status.value for verdict in result.calls]


def _python(code):
  """Runs code with the repository's root as the current directory."""
  return subprocess.run(
    [sys.executable, "-c", code],
    cwd=pathlib.Path(__file__).resolve().parents[1],
    env={},
    capture_output=True,
    text=True,
    check=True,
    timeout=60,
  )


def _zygotes(pool):
  """Pids of the processes below the manager, the outermost of each worker."""
  manager = pool._client._process.pid
  with open(f"/proc/{manager}/task/{manager}/children") as file:
    return [int(pid) for pid in file.read().split()]


def test_usage_counts_jobs_and_the_seconds_they_take(pool):
  jobs, seconds = pool.usage
  slow = "import time\ndef f(x): time.sleep(0.1)"
  started = time.monotonic()
  pool.run([Job(slow, "f", ("f(1)",)), Job(_DOUBLE, "f", ("f(2)",))])
  pool.oracle([Job(_DOUBLE, "f", ("f(3)",))])
  now, now_s = pool.usage
  assert now - jobs == 4  # an oracle's job runs twice
  assert 0.1 <= now_s - seconds <= time.monotonic() - started
  time.sleep(0.05)
  assert pool.usage == (now, now_s)


def test_each_kind_of_call_verdict(pool):
  calls = ("f(2)", "f('a', k=3)", "f(1.5)", "f({})", "g(1)", "f(x)", "f(3)")
  expected = ("4", "'aa'", "3", "0", "1", "1", "no literal")
  result = _run(pool, _DOUBLE, calls, expected)
  assert result.load == Verdict(Status.PASS)
  assert _statuses(result) == [
    "pass",
    "fail",
    "pass",
    "error",
    "invalid",
    "invalid",
    "invalid",
  ]
  assert result.calls[0].value == "4"
  assert result.calls[1].value == "'aaa'"
  assert result.calls[3].detail.startswith("TypeError: unsupported operand")
  assert 0 < result.cpu_s < 0.3


def test_without_expected_values_calls_return_them(pool):
  result = _run(pool, "def f(*a, **k): return a, k", ("f(set(), b=[1.0])",))
  assert result.calls == (Verdict(Status.PASS, "((set(),), {'b': [1.0]})"),)
  one = _run(pool, _DOUBLE, ("f(1)", "f(1)"), ("3", None))
  assert _statuses(one) == ["fail", "pass"]


@pytest.mark.parametrize(
  ("program", "status", "detail"),
  [
    ("def f(x:", Status.INVALID, "SyntaxError"),
    ("def g(x): return x", Status.INVALID, "f is not defined"),
    ("f = 3", Status.INVALID, "f is not callable"),
    ("x = '\0'", Status.INVALID, "SyntaxError|ValueError"),
    ("x = '\ud800'", Status.INVALID, "UnicodeEncodeError"),
    ("(" * 9999, Status.INVALID, "SyntaxError"),
    ("x = " + "-" * 99_999 + "1", Status.INVALID, "Error"),
    ("#" * 300_000, Status.INVALID, "too long"),
    ("1 / 0", Status.ERROR, "ZeroDivisionError"),
    ("raise SystemExit(0)", Status.ERROR, "SystemExit"),
    ("import os; os._exit(0)", Status.ERROR, "exited with status 0"),
    ("while True: pass", Status.TIMEOUT, "CPU time"),
    ("x = [0] * 10**10", Status.MEMORY, "MemoryError"),
  ],
  ids=lambda value: str(value)[:20],
)
def test_a_program_that_does_not_load(pool, program, status, detail):
  result = _run(pool, program, ("f(1)", "not a call"), ("1", "1"))
  assert result.load.status is status
  assert any(part in result.load.detail for part in detail.split("|"))
  assert result.calls == (result.load, result.load)


def test_only_the_dying_call_is_lost(pool):
  program = """
    import os
    def f(x):
      if x == 2: os._exit(0)
      if x == 4:
        while True: pass
      return x
  """
  result = _run(pool, program, [f"f({k})" for k in range(6)], tuple("012345"))
  assert _statuses(result) == [
    "pass",
    "pass",
    "error",
    "pass",
    "timeout",
    "pass",
  ]
  assert result.cpu_s > 0.3


def test_deaths_of_one_job_are_bounded():
  limits = Limits(max_deaths=3)
  program = "import os\ndef f(x): os._exit(x)"
  with SandboxPool(workers=1, limits=limits) as pool:
    result = _run(pool, program, [f"f({k})" for k in range(6)])
  details = [verdict.detail for verdict in result.calls]
  assert details[:3] == [f"exited with status {k}" for k in range(3)]
  assert details[3:] == ["not run, after 3 ended processes"] * 3
  assert _statuses(result) == ["error"] * 6


def test_arguments_are_made_anew_for_each_call(pool):
  program = "def f(x):\n  x.append(0)\n  return x"
  result = _run(pool, program, ("f([1])", "f([1])"), ("[1, 0]", "[1, 0]"))
  assert _statuses(result) == ["pass", "pass"]


def test_results_keep_the_order_of_jobs(pool):
  jobs = [Job(_DOUBLE, "f", (f"f({k})",), (f"{2 * k}",)) for k in range(300)]
  values = [result.calls[0].value for result in pool.run(jobs)]
  assert values == [str(2 * k) for k in range(300)]
  assert pool.run([]) == []


def test_large_messages_do_not_lock_up(pool):
  text = "f('" + "x" * 50_000 + "', 1)"
  results = pool.run([Job(_DOUBLE, "f", (text, text))] * 200)
  assert all(len(v.value) == 50_002 for r in results for v in r.calls)


def test_a_small_claim_of_a_long_text_is_too_large(pool):
  program = """
    def f(x): return x if x else ['\\U000e0001' * 32] * 49_990
  """
  result = _run(pool, program, ("f(0)", "f(1)", "f(0)"), ("0", "1", None))
  assert _statuses(result) == ["error", "pass", "error"]
  assert result.calls[0] == Verdict(Status.ERROR, None, "result too large")


def test_a_message_that_is_too_large_is_lost_alone(monkeypatch):
  monkeypatch.setattr(wire, "MAX_MESSAGE", 20_000)  # of this process only
  program = "def f(x): return 'x' * x"
  jobs = [Job(program, "f", (f"f({n})",)) for n in (1, 10_000, 30_000, 2)]
  with SandboxPool(workers=1) as small:
    results = small.run(jobs)
  assert [r.load.status.value for r in results] == [
    "pass",
    "pass",
    "infrastructure",
    "pass",
  ]


def test_calls_may_share_the_verdict_on_their_program(monkeypatch):
  row = ["infrastructure", None, "result too large"]
  received = [[[0, 0.5, row, None, []]]]
  with SandboxPool(workers=1) as pool:
    monkeypatch.setattr(pool._client, "_receive", received.pop)
    result = _run(pool, _DOUBLE, ("f(1)", "f(2)"))
  assert result.calls == (result.load,) * 2
  assert result.load == Verdict(Status.INFRASTRUCTURE, None, row[2])


def test_float_tolerance():
  with SandboxPool(workers=1, float_tolerance=1e-6) as pool:
    result = _run(
      pool, "def f(x): return [0.1 + x]", ["f(0.2)"] * 2, ("[0.3]", "[0.4]")
    )
  assert _statuses(result) == ["pass", "fail"]


def test_no_flag_of_a_descriptor_is_left_to_the_next_job():
  program = """
    import fcntl
    def f(x):
      old = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in range(3)]
      for fd in range(3): fcntl.fcntl(fd, fcntl.F_SETFL, 0o6000)
      return old
  """
  with SandboxPool(workers=1) as one:
    first, second = (_run(one, program, ["f(1)"]).calls[0] for _ in range(2))
  assert first.passed and first == second


def test_a_dead_worker_is_replaced(pool):
  for pid in _zygotes(pool):
    os.kill(pid, signal.SIGKILL)
  results = pool.run([Job(_DOUBLE, "f", ("f(1)",), ("2",))] * 20)
  assert all(_statuses(result) == ["pass"] for result in results)


def test_a_dead_manager_is_replaced(pool):
  os.kill(pool._client._process.pid, signal.SIGKILL)
  results = pool.run([Job(_DOUBLE, "f", ("f(1)",), ("2",))] * 20)
  assert all(_statuses(result) == ["pass"] for result in results)


def test_a_job_that_kills_managers_is_infrastructure_alone(pool, monkeypatch):
  receive = pool._client._receive
  sent = []
  send = pool._client._send

  def recording_send(message):
    sent.append(message)
    send(message)

  def dying_receive():
    if any("killer" in m.get("program", "") for m in sent):
      sent.clear()
      raise EOFError("the sandbox manager died")
    return receive()

  monkeypatch.setattr(pool._client, "_send", recording_send)
  monkeypatch.setattr(pool._client, "_receive", dying_receive)
  good, bad = (Job(_DOUBLE + tail, "f", ("f(1)",)) for tail in ("", "# killer"))
  results = pool.run([good, good, bad, good, good])
  assert [r.load.status.value for r in results] == [
    "pass",
    "pass",
    "infrastructure",
    "pass",
    "pass",
  ]
  assert results[2].calls[0].status is Status.INFRASTRUCTURE


def test_weak_isolation_is_refused(monkeypatch):
  monkeypatch.setattr(ManagerClient, "await_isolation", lambda self: "landlock")
  with pytest.raises(RuntimeError, match="only landlock here"):
    SandboxPool(workers=1)
  with SandboxPool(workers=1, allow_weak_isolation=True):
    pass


def test_a_machine_on_which_no_worker_starts_is_an_error():
  code = (
    "import resource\n"
    "from codea1_jax.sandbox import SandboxPool\n"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))\n"
    "try: SandboxPool(workers=2)\n"
    "except RuntimeError as error: print(error)"
  )
  done = _python(code)
  assert done.stdout == ("sandbox: no sandbox worker starts on this machine\n")


def test_bad_arguments_are_refused(pool):
  with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
    SandboxPool(workers=0)
  with pytest.raises(ValueError, match="float_tolerance"):
    SandboxPool(float_tolerance=-1.0)
  with pytest.raises(ValueError, match="call_cpu_s must be a positive"):
    Limits(call_cpu_s=0)
  with pytest.raises(ValueError, match="2 calls and 1 expected"):
    Job("", "f", ("f(1)", "f(2)"), ("1",))


def test_description_and_close():
  pool = SandboxPool(workers=2)
  assert pool.description.startswith("sandbox: ")
  assert pool.description.endswith(", 2 workers")
  pool.close()
  pool.close()
  with pytest.raises(ValueError, match="after close"):
    pool.run([])


def test_works_from_the_repository_with_only_the_current_directory():
  code = (
    "from codea1_jax.sandbox import *\n"
    "with SandboxPool(workers=1) as pool:\n"
    "  result, = pool.run([Job('def f(): return 7', 'f', ('f()',))])\n"
    "  print(result.calls[0].value)"
  )
  done = _python(code)
  assert done.stdout == "7\n"
