"""Honest programs that do unusual things: the sandbox must not mind."""

import textwrap

import pytest

from codea1_jax.sandbox import Job, Limits, SandboxPool

_CALLS = ("f(1)", "f(2)", "f(3)")


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=1, limits=Limits(wall_factor=20.0)) as made:
    yield made


_HONEST = {
  "thread pool": """
    from concurrent.futures import ThreadPoolExecutor
    def f(x):
      with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(lambda y: y * 2, range(10)))
  """,
  "asyncio": """
    import asyncio
    async def slow(x):
      await asyncio.sleep(0.001)
      return x
    async def both(): return sum(await asyncio.gather(slow(40), slow(50)))
    def f(x): return asyncio.run(both())
  """,
  "many modules": """
    import datetime, decimal, hashlib, random, uuid, zoneinfo, csv, logging
    from dataclasses import dataclass
    from typing import NamedTuple
    @dataclass
    class Point:
      x: int
    class Pair(NamedTuple):
      a: int
    def f(x):
      random.seed(1)
      uuid.uuid4()
      hashlib.sha256(b"a").hexdigest()
      datetime.datetime.now()
      return Point(int(decimal.Decimal("80"))).x + Pair(10).a
  """,
  "prints": """
    import sys
    def f(x):
      print("working" * 1000)
      sys.stdout.write("more")
      return 90
  """,
  "main block": """
    def f(x): return 90
    if __name__ == "__main__":
      print(f(int(input())))
  """,
  "mutation of its argument": """
    def f(x):
      x = [x]
      x.append(90)
      return x.pop()
  """,
  "coding cookie": "# -*- coding: latin-1 -*-\ndef f(x): return 90",
  "optional import": """
    try:
      import numpy as np
    except ImportError:
      np = None
    def f(x): return 90
  """,
  "module globals": """
    memo = {}
    def f(x):
      global last
      last = memo.setdefault(x, 90)
      return last
  """,
  "deep recursion": """
    import sys
    sys.setrecursionlimit(10_000)
    def down(n): return 0 if n == 0 else 1 + down(n - 1)
    def f(x): return down(5000) - 4910
  """,
  "reads the time and sleeps": """
    import time
    def f(x):
      time.sleep(0.01)
      return 90 if time.time() > 0 else 0
  """,
  "temporary buffers": """
    import io, tempfile
    def f(x):
      buffer = io.StringIO()
      buffer.write("90")
      return int(buffer.getvalue())
  """,
  "own names of builtins": """
    def len(x): return 90
    def f(x): return len(x)
  """,
  "callable object": """
    class F:
      def __call__(self, x): return 90
    f = F()
  """,
}


@pytest.mark.parametrize("name", _HONEST)
def test_honest_but_unusual_programs_pass(pool, name):
  job = Job(textwrap.dedent(_HONEST[name]), "f", _CALLS, ("90",) * 3)
  (result,) = pool.run([job])
  assert [verdict.detail for verdict in result.calls] == [""] * 3
  assert all(verdict.passed for verdict in result.calls)
