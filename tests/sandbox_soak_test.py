"""Many mixed jobs, deaths among them: right verdicts, and nothing is left."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import sandbox_mix as mix

from codea1_jax.sandbox import SandboxPool

pytestmark = pytest.mark.skipif(
  not pathlib.Path("/proc/self/stat").exists(), reason="needs Linux's /proc"
)

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CHUNKS = 10
# Of one process in the second half. This process itself takes three more in
# the first, for 10,000 results at a time, and then not a page.
_GROWTH_MB = 1.0


class _Killer:
  """Kills workers, or the manager once, at random moments of a run."""

  def __init__(self, pool, seed: int, mean_s: float):
    self.kills = 0
    self._pool, self._mean_s = pool, mean_s
    self._random = random.Random(seed)
    self._stop = threading.Event()

  def during(self, run, manager: bool):
    """Calls `run` with a killer beside it, one kill at least."""
    self._stop.clear()
    thread = threading.Thread(target=self._work, args=(manager,))
    thread.start()
    try:
      return run()
    finally:
      self._stop.set()
      thread.join()

  def _work(self, manager: bool) -> None:
    first = True
    while first or not self._stop.is_set():
      mean_s = 0.2 if first else self._mean_s
      self._stop.wait(self._random.uniform(0.05, 2 * mean_s))
      target = self._pool._client._process
      if target is not None:
        self.kills += self._kill(target.pid, manager and first)
      first = False

  def _kill(self, manager_pid: int, manager: bool) -> bool:
    """SIGKILL for the manager, or for one of its zygotes."""
    pids = [
      pid
      for pid, fields in mix.stats().items()
      if fields[0] != "Z" and int(fields[1]) == manager_pid
    ]
    pids = [manager_pid] if manager else pids
    if pids:
      os.kill(self._random.choice(pids), signal.SIGKILL)
    return bool(pids)


def _soak(count: int, seed: int) -> dict:
  """Runs jobs in chunks; the counts and sizes that the tests look at."""
  wrong, infrastructure, sizes, left = [], 0, [], []
  with SandboxPool(workers=2, limits=mix.LIMITS) as pool:
    killer = _Killer(pool, seed, mean_s=count / 1500)
    jobs = mix.make_jobs(count, seed)
    for chunk in range(_CHUNKS):
      part = jobs[chunk::_CHUNKS]
      # The manager of the chunks from the third on is then always the same.
      results = killer.during(
        lambda part=part: pool.run([job for _, job in part]), chunk < 2
      )
      for (kind, _), result in zip(part, results):
        found = mix.statuses(result)
        if "infrastructure" in found:
          infrastructure += 1
        elif found != mix.KINDS[kind][1]:
          wrong.append((kind, found, result))
      pids = os.getpid(), pool._client._process.pid
      sizes.append([(pid, mix.resident_mb(pid)) for pid in pids])
      left.append((mix.num_descriptors(pids[1]), _lasting_zombies(pids[1])))
  return {
    "wrong": wrong,
    "infrastructure": infrastructure,
    "sizes": sizes,
    "left": left,
    "kills": killer.kills,
  }


def _lasting_zombies(manager: int) -> int:
  """Those that a manager leaves for longer than some of its ticks."""
  end = time.monotonic() + 5.0
  while (count := mix.num_zombies(manager)) and time.monotonic() < end:
    time.sleep(0.05)
  return count


def _check_soak(count: int, seed: int) -> None:
  files = mix.job_files()
  before = mix.below(os.getpid()), sorted(os.listdir("/proc/self/fd"))
  report = _soak(count, seed)
  print({name: report[name] for name in report if name != "wrong"})
  assert not report["wrong"], report["wrong"][:5]
  assert report["kills"] >= _CHUNKS
  # It takes two deaths to lose a job, and they rarely hit the same one.
  assert report["infrastructure"] <= report["kills"] // 4
  for (pid, early), (late_pid, late) in zip(
    report["sizes"][_CHUNKS // 2], report["sizes"][-1]
  ):
    assert pid == late_pid
    assert late - early < _GROWTH_MB
  # Of the manager between two runs, its zygotes' sockets included.
  for descriptors, zombies in report["left"]:
    assert descriptors <= 12 and not zombies
  assert mix.below(os.getpid()) <= before[0]
  assert sorted(os.listdir("/proc/self/fd")) == before[1]
  assert mix.job_files() == files


def test_three_thousand_mixed_jobs_and_kills():
  _check_soak(3_000, seed=0)


@pytest.mark.slow
def test_a_hundred_thousand_mixed_jobs_and_kills():
  _check_soak(int(os.environ.get("SANDBOX_SOAK_JOBS", 100_000)), seed=1)


_TRAINER = """
import sys
sys.path.append("tests")
import sandbox_mix as mix
from codea1_jax.sandbox import SandboxPool
with SandboxPool(workers=2, limits=mix.LIMITS) as pool:
  print(pool._client._process.pid, flush=True)
  for seed in range(1000):
    jobs = [job for _, job in mix.make_jobs(400, seed)]
    jobs += [mix.make_job(k, 0) for k in ("hangs", "sleeps", "flood")] * 20
    pool.run(jobs[::-1])
"""


def _sandbox_processes(parents: tuple[int, ...]) -> list[int]:
  """Managers and zygotes started by any of these, and what they forked.

  Known by their command lines, which name their starter and which a fork
  keeps: also when the starter is dead.
  """
  found = []
  for pid in mix.stats():
    try:
      line = pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
      continue
    if "codea1_jax.sandbox" in line and any(
      f", {p}, *(" in line for p in parents
    ):
      found.append(pid)
  return found


@pytest.mark.parametrize("seed", range(4))
def test_a_trainer_killed_under_a_mixed_load_leaves_nothing_running(seed):
  trainer = subprocess.Popen(
    [sys.executable, "-c", _TRAINER],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    text=True,
  )
  with trainer.stdout:
    manager = int(trainer.stdout.readline())
  time.sleep(random.Random(seed).uniform(0.0, 1.5))
  there = _sandbox_processes((trainer.pid, manager))
  trainer.kill()
  trainer.wait()
  assert manager in there and len(there) >= 2
  end = time.monotonic() + 5.0
  while left := _sandbox_processes((trainer.pid, manager)):
    assert time.monotonic() < end, left
    time.sleep(0.05)


@pytest.fixture
def busy_machine():
  """A function that starts two loops of normal priority."""
  loops = []

  def start():
    loops.extend(
      subprocess.Popen([sys.executable, "-c", "while True: pass"])
      for _ in range(2)
    )

  yield start
  for loop in loops:
    loop.kill()
    loop.wait()


def test_verdicts_do_not_depend_on_the_load_of_the_machine(busy_machine):
  kinds = list(mix.KINDS) * 2 + ["heavy", "hangs", "sleeps"] * 4
  random.Random(0).shuffle(kinds)
  jobs = [mix.make_job(kind, number) for number, kind in enumerate(kinds)]

  def verdicts(pool):
    return [(r.load.status, r.calls) for r in pool.run(jobs)]

  with SandboxPool(workers=2, limits=mix.LIMITS) as pool:
    alone = verdicts(pool)
    busy_machine()
    assert verdicts(pool) == alone
  found = [" ".join(call.status.value for call in calls) for _, calls in alone]
  assert found == [mix.KINDS[kind][1] for kind in kinds]
