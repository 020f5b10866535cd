"""Programs that try to go on for ever or to use everything: each one ends."""

import dataclasses
import resource
import textwrap
import time

import pytest
import sandbox_batches as batches
from sandbox_escapes import ESCAPES
from sandbox_hogs import HOGS

from codea1_jax.sandbox import Job, Limits, SandboxPool
from codea1_jax.types import Status

_LIMITS = batches.TIGHT


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, limits=_LIMITS) as made:
    yield made


@pytest.fixture(scope="module")
def roomy_pool():
  with SandboxPool(workers=2, limits=batches.PATIENT) as made:
    yield made


@pytest.mark.parametrize("name", HOGS | ESCAPES)
def test_a_hog_loses_its_call_only(pool, roomy_pool, name):
  statuses, body = (HOGS | ESCAPES)[name]
  timed = batches.is_timed(statuses)
  start = time.monotonic()
  (result,) = (pool if timed else roomy_pool).run([batches.hog_job(body)])
  assert batches.complaint_on_hog(statuses, result) == ""
  assert time.monotonic() - start < (8.0 if timed else 30.0)


@pytest.fixture(scope="module")
def patient_pool():
  """One in which only CPU time can run out, however busy the machine is."""
  limits = dataclasses.replace(_LIMITS, wall_factor=100.0)
  with SandboxPool(workers=1, limits=limits) as made:
    yield made


@pytest.mark.slow
def test_lies_about_progress_are_not_our_own_failure():
  program = """
    import struct, sys, time
    def f(x):
      frame = sys._getframe()
      while "progress" not in frame.f_locals: frame = frame.f_back
      page = frame.f_locals["progress"]
      for number in range(2, 9) if x == 1 else ():
        time.sleep(7)  # the manager, who sees no claim, waits for 25 seconds
        page[:16] = struct.pack("<Qd", number, time.process_time())
      return x
  """
  limits = Limits(call_cpu_s=0.1, load_cpu_s=0.1, wall_factor=90.0)
  calls = tuple(f"f({k})" for k in range(1, 10))
  job = Job(textwrap.dedent(program), "f", calls)
  with SandboxPool(workers=1, limits=limits) as pool:
    (result,) = pool.run([job])
  assert {verdict.status for verdict in result.calls} == {Status.TIMEOUT}


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
  # It claimed the second call's CPU seconds too, which are then spent.
  assert {v.detail for v in result.calls} == {"CPU time above the limit"}
  assert result.cpu_s < 1.5  # the system's own limit would act after 2 s


def test_lies_about_progress_do_not_multiply_the_clock():
  """Each child claims to be in call after call, and answers none."""
  program = """
    import os, struct, sys, time
    def f(x):
      frame = sys._getframe()
      while "progress" not in frame.f_locals: frame = frame.f_back
      page = frame.f_locals["progress"]
      for number in range(2, 17):
        start = time.process_time()
        while time.process_time() < start + 0.08: pass
        page[:16] = struct.pack("<Qd", number, time.process_time())
      os._exit(0)
  """
  limits = Limits(call_cpu_s=0.1, load_cpu_s=0.1, wall_factor=100.0)
  calls = tuple(f"f({k})" for k in range(16))
  with SandboxPool(workers=1, limits=limits) as pool:
    (result,) = pool.run([Job(textwrap.dedent(program), "f", calls)])
  assert not any(verdict.passed for verdict in result.calls)
  assert result.cpu_s < 16 * 0.1 + 16 * 0.02  # 15 children would take 18 s


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


def test_threads_are_counted():
  program = """
    import threading
    def f(n):
      gate = threading.Event()
      threads = [threading.Thread(target=gate.wait) for _ in range(n)]
      for thread in threads: thread.start()
      gate.wait(0.5)
      gate.set()
      return n
  """
  limits = Limits(max_threads=32, wall_factor=20.0)
  job = Job(textwrap.dedent(program), "f", ("f(20)", "f(60)"), ("20", "60"))
  with SandboxPool(workers=1, limits=limits) as pool:
    (result,) = pool.run([job])
  assert result.calls[0].passed
  assert result.calls[1].detail == "over 32 threads"
