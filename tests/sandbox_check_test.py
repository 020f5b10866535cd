"""A program in one process under a test that is a program in another."""

import os
import random
import signal
import textwrap

import pytest

from codea1_jax.sandbox import CheckJob, Limits, SandboxPool
from codea1_jax.types import Status

_SECRET = f"secret-{random.getrandbits(60)}"
_TEST = f"""
def check(candidate):
  assert candidate(1) == [1, "{_SECRET}"]
  assert candidate(2) == [2, "{_SECRET}"]
"""
_RIGHT = f"def f(x): return [x, '{_SECRET}']"


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=2, limits=Limits(wall_factor=10.0)) as made:
    yield made


def _check(pool, program, test=_TEST, name="f", cpu_s=1.0, memory_mb=256):
  job = CheckJob(
    textwrap.dedent(program), name, textwrap.dedent(test), cpu_s, memory_mb
  )
  (result,) = pool.check([job])
  return result.verdict


def test_right_and_wrong(pool):
  results = pool.check(
    [
      CheckJob(program, "f", _TEST)
      for program in (_RIGHT, "def f(x): return [x, 'secret']") * 10
    ]
  )
  statuses = [result.verdict.status.value for result in results]
  assert statuses == ["pass", "fail"] * 10
  assert results[1].verdict.detail.startswith("test: AssertionError")
  assert all(0 < result.cpu_s < 0.2 for result in results)


@pytest.mark.parametrize(
  ("program", "status", "detail"),
  [
    ("def f(x", "invalid", "SyntaxError"),
    ("def g(x): pass", "invalid", "f is not defined"),
    ("1 / 0", "error", "ZeroDivisionError"),
    ("import os; os._exit(0)", "error", "exited with status 0"),
    ("import os\ndef f(x): os._exit(0)", "error", "exited with status 0"),
    ("def f(x): raise SystemExit(0)", "error", "SystemExit"),
    ("def f(x): return [x, f.y]", "error", "AttributeError"),
    ("while True: pass", "timeout", "CPU time"),
    ("def f(x):\n  while True: pass", "timeout", "CPU time"),
    ("def f(x): return [0] * 10**10", "memory", "MemoryError"),
    ("import ctypes\ndef f(x): ctypes.string_at(0)", "error", "SIGSEGV"),
    (
      "import os\ndef f(x): os.write(5, b'\\6\\0\\0\\0Vi\\1\\0\\0\\0')",
      "error",
      "RuntimeError: claim cut short",
    ),
    (
      "import os\ndef f(x): os.write(5, b'\\7\\0\\0\\0Vi\\1\\0\\0\\0a')",
      "error",
      "RuntimeError: bad claim",
    ),
    (
      "import os\ndef f(x):\n  text = b'x' * 10**6\n"
      "  os.write(5, len(text).to_bytes(4, 'little') + b'E' + text[1:])",
      "error",
      "xxx",
    ),
  ],
  ids=lambda value: str(value)[:30],
)
def test_whose_fault_it_is(pool, program, status, detail):
  verdict = _check(pool, program)
  assert verdict.status.value == status and detail in verdict.detail, verdict


@pytest.mark.parametrize(
  ("test", "status", "detail"),
  [
    ("def check(", "invalid", "test: SyntaxError"),
    ("def test(): pass", "invalid", "test: check is not defined"),
    ("1 / 0", "error", "test: ZeroDivisionError"),
    ("def check(c): 1 / 0", "error", "test: ZeroDivisionError"),
    ("def check(c): c(lambda: 0)", "error", "test: "),
    ("def check(c):\n  while True: pass", "timeout", "test: CPU time"),
    ("import os\ndef check(c): os._exit(0)", "error", "test: exited"),
    ("#" * 5_000_000, "invalid", "test too long"),
    (
      "import os\ndef check(c):\n  text = b'A' + b'\\xff' * 99_999\n"
      "  os.write(4, len(text).to_bytes(4, 'little') + text)\n  os._exit(0)",
      "fail",
      "test: \ufffd",
    ),
  ],
  ids=lambda value: str(value)[:30],
)
def test_a_bad_test_is_named(pool, test, status, detail):
  verdict = _check(pool, _RIGHT, test)
  assert verdict.status.value == status, verdict
  assert verdict.detail.startswith(detail), verdict
  assert len(verdict.detail) <= 250


# Each would pass if anything of the test, or of its verdict, were in reach.
_FAKES = {
  "equal to everything": """
    class Yes:
      def __eq__(self, other): return True
      def __iter__(self): return iter(self)
    def f(x): return Yes()
  """,
  "lying list": """
    class Yes(list):
      def __eq__(self, other): return True
    def f(x): return Yes()
  """,
  "lying element": """
    class Yes(str):
      def __eq__(self, other): return True
    def f(x): return [x, Yes()]
  """,
  "frames on every descriptor": """
    import os, struct
    def f(x):
      for fd in range(64):
        for body in (b"S", b"L", b"P", b"VT", b"G"):
          try: os.write(fd, struct.pack("<I", len(body)) + body)
          except OSError: pass
      return [x, ""]
  """,
  "frames at import": """
    import os, struct
    for body in (b"L", b"P", b"P"):
      os.write(4, struct.pack("<I", len(body)) + body)
    os._exit(0)
  """,
  "answers before the question": """
    import os, struct
    for _ in range(9):
      os.write(5, struct.pack("<I", 3) + b"tTN")
    def f(x): return [x, ""]
  """,
  "a broken answer": """
    import os, struct
    def f(x):
      os.write(5, struct.pack("<I", 1 << 31) + b"V" * 99)
      os._exit(0)
  """,
  "stolen arguments": """
    import gc, re, sys
    def f(x):
      found = []
      for container in gc.get_objects():
        for value in gc.get_referents(container):
          if isinstance(value, (str, bytes)):
            found += re.findall("secret-[0-9]+", str(value))
      return [x, found[-1] if found else ""]
  """,
  "patched modules": """
    import os, pickle, struct
    pickle.loads = pickle.dumps = struct.pack = lambda *a: b"VT"
    def f(x): return True
  """,
  "an exception of its own making": """
    class AssertionError(Exception): pass
    def f(x): raise AssertionError
  """,
}


@pytest.mark.parametrize("name", _FAKES)
def test_a_fake_gets_no_mark(pool, name):
  program = textwrap.dedent(_FAKES[name])
  fake, honest = pool.check(
    [CheckJob(p, "f", _TEST, cpu_s=1.0) for p in (program, _RIGHT)]
  )
  assert fake.verdict.status in (Status.FAIL, Status.ERROR), fake
  assert honest.verdict.passed


def test_a_test_that_swallows_everything_does_not_pass_a_dead_candidate(pool):
  test = """
    def check(candidate):
      try: candidate(1)
      except BaseException: pass
  """
  assert _check(pool, "def f(x): raise ValueError", test).passed
  verdict = _check(pool, "import os\ndef f(x): os._exit(0)", test)
  assert verdict.status is Status.ERROR
  assert verdict.detail == "exited with status 0"


@pytest.mark.parametrize(
  "test",
  [
    "def check(c): assert all(map(lambda x: c(x) == 'secret', [1, 2]))",
    "def check(c):\n  for got in map(c, [1, 2]): assert got == 'secret'",
  ],
)
def test_a_candidate_cannot_end_the_loops_of_its_test(pool, test):
  for name in ("StopIteration", "StopAsyncIteration", "GeneratorExit"):
    verdict = _check(pool, f"def f(x): raise {name}", test)
    assert verdict.status is Status.ERROR, verdict
    assert verdict.detail.startswith(name)


def test_who_dies_in_the_middle_of_an_answer_is_gone(pool):
  program = """
    import os
    def f(x):
      os.write(5, b"\\x99\\0\\0\\0V")
      os._exit(0)
  """
  test = """
    def check(candidate):
      try: candidate(1)
      except BaseException: pass
  """
  assert _check(pool, program, test).status is Status.ERROR


def test_a_late_answer_is_not_taken_for_the_next(pool):
  program = """
    import time
    def f(x):
      time.sleep(0.3 if x == 0 else 0)
      return x
  """
  test = """
    import signal
    class Late(Exception): pass
    def ring(*_): raise Late
    def check(candidate):
      signal.signal(signal.SIGALRM, ring)
      signal.setitimer(signal.ITIMER_REAL, 0.05)
      try: candidate(0)
      except Late: pass
      assert candidate(1) == 0
  """
  assert _check(pool, program, test).status is Status.ERROR


def test_threads_of_a_test_may_share_the_candidate(pool):
  test = """
    from concurrent.futures import ThreadPoolExecutor
    def check(candidate):
      with ThreadPoolExecutor(4) as threads:
        for k, got in enumerate(threads.map(candidate, range(60))):
          assert got == [k] * 300
  """
  assert _check(pool, "def f(x): return [x] * 300", test).passed


def test_values_and_arguments_travel_whole(pool):
  program = """
    import collections, re
    def f(kind, x=None):
      if kind == "echo": return x
      if kind == "count": return collections.Counter(x)
      if kind == "match": return re.match("a", "a")
      if kind == "change": x.append(1)
      if kind == "fill": x.append(object)
      if kind == "keys": x["b"] = 2
      if kind == "raise": raise KeyError("k")
  """
  test = """
    def check(candidate):
      for value in (1, 1.5, "a\\ud800", None, b"b", [(1, {2}), {"a": [()]}],
                    ["a"] * 100, frozenset("ab"), tuple(range(50)), 10**4000):
        back = candidate("echo", x=value)
        assert back == value and type(back) is type(value)
      assert candidate("count", "aab") == {"a": 2, "b": 1}
      match = candidate("match")
      assert match and match != candidate("match") and match is not None
      items, keys = [], {"a": 1}
      assert candidate("change", items) is None and items == [1]
      candidate("keys", x=keys)
      assert keys == {"a": 1, "b": 2}
      f("echo"), candidate.__name__ == "f"
      try: candidate("raise")
      except KeyError as error: pass
      else: assert False
      try: candidate("raise")
      except KeyError as error: return
  """
  assert _check(pool, program, test).passed


def test_what_a_call_hides_in_its_arguments_is_no_answer(pool):
  program = "def f(x):\n  x.append(object)\n  return 1"
  test = "def check(c):\n  x = []\n  assert c(x) == 1"
  verdict = _check(pool, program, test)
  assert verdict.status is Status.FAIL


def test_state_between_calls_is_kept_and_between_checks_is_not(pool):
  program = "seen = []\ndef f():\n  seen.append(0)\n  return len(seen)"
  test = "def check(c):\n  assert [c(), c(), c()] == [1, 2, 3]"
  for _ in range(3):
    assert _check(pool, program, test).passed


def test_numpy_is_there_when_asked_for():
  program = """
    import numpy as np
    def f(xs): return np.float64(sum(xs)), np.int64(2), np.bool_(True)
  """
  test = """
    import numpy as np
    import numpy.testing
    def check(candidate):
      total, two, yes = candidate([0.5, 0.25])
      assert np.allclose(total, 0.75) and two == 2 and yes is True
      assert type(total) is float
  """
  with SandboxPool(workers=1, numpy=True) as pool:
    assert _check(pool, program, test).passed
    text = "import os, numpy\ndef f(): return os.listdir(os.path.dirname(p))\n"
    text += "p = os.path.dirname(numpy.__file__)"
    if "landlock" in pool.description:
      verdict = _check(pool, text, "def check(c): c()")
      assert "PermissionError" in verdict.detail


def test_a_dead_worker_is_replaced_in_the_middle_of_a_check():
  program = "import time\ndef f():\n  time.sleep(0.5)\n  return 1"
  test = "def check(c): assert c() == 1"
  with SandboxPool(workers=1) as pool:
    assert _check(pool, "def f(): return 1", test).passed
    manager = pool._client._process.pid
    with open(f"/proc/{manager}/task/{manager}/children") as file:
      zygotes = [int(pid) for pid in file.read().split()]
    assert len(zygotes) == 2
    original, killed = pool._client._receive, []

    def receive():
      if not killed:
        killed.append(zygotes[1])
        os.kill(zygotes[1], signal.SIGKILL)
      return original()

    pool._client._receive = receive
    assert _check(pool, program, test).passed
    assert killed


def test_bad_arguments_are_refused():
  with pytest.raises(ValueError, match="cpu_s must be positive, got 0"):
    CheckJob("", "f", "", cpu_s=0)
  with pytest.raises(ValueError, match="without unknown layers"):
    SandboxPool(workers=1, without=("seccomp", "walls"))
