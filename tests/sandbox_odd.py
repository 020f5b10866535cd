"""Honest programs that do unusual things; each f(1), f(2), f(3) is 90."""

ODD = {
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
  "locks, queues and worker threads": """
    import queue, threading
    def f(x):
      jobs, done, lock = queue.Queue(), [], threading.Lock()
      def work():
        while (job := jobs.get()) is not None:
          with lock: done.append(job * 2)
      threads = [threading.Thread(target=work) for _ in range(20)]
      for thread in threads: thread.start()
      for k in range(10): jobs.put(k)
      for _ in threads: jobs.put(None)
      for thread in threads: thread.join()
      return sum(done)
  """,
  "hundreds of short threads": """
    import threading
    def f(x):
      done = []
      threads = [
        threading.Thread(target=done.append, args=(k,)) for k in range(300)
      ]
      for thread in threads: thread.start()
      for thread in threads: thread.join()
      return len(done) - 210
  """,
  "asyncio of threads and subtasks": """
    import asyncio
    async def both():
      thread = asyncio.to_thread(sum, [40, 5])
      async with asyncio.TaskGroup() as group:
        task = group.create_task(asyncio.wait_for(asyncio.sleep(0, 45), 1))
      return await thread + task.result()
    def f(x): return asyncio.run(both())
  """,
  "a pair of sockets": """
    import socket
    def f(x):
      a, b = socket.socketpair()
      a.sendall(b"90")
      return int(b.recv(9))
  """,
  "signals to itself": """
    import signal
    def f(x):
      seen = []
      signal.signal(signal.SIGUSR1, lambda *a: seen.append(90))
      signal.raise_signal(signal.SIGUSR1)
      signal.alarm(0)
      return seen[0]
  """,
  "what it may not do, tried first": """
    import os, subprocess
    def attempt(action):
      try: action()
      except OSError: pass
    def f(x):
      attempt(lambda: subprocess.run(["true"], capture_output=True))
      attempt(lambda: open("/nowhere/cache", "w"))
      attempt(lambda: os.nice(0))
      return 90
  """,
  "copies and pickles of its own class": """
    import copy, dataclasses, pickle
    @dataclasses.dataclass(order=True)
    class Point:
      x: int
      y: int = 0
    def f(x):
      point = pickle.loads(pickle.dumps(copy.deepcopy(Point(90))))
      return max(point, Point(1)).x
  """,
  "caches and closures": """
    import functools, itertools
    @functools.lru_cache(maxsize=None)
    def count(n): return n if n < 2 else count(n - 1) + 1
    @functools.singledispatch
    def kind(value): return 0
    kind.register(int)(lambda value: 90)
    counter = itertools.count()
    def f(x):
      next(counter)
      return kind(count(200))
  """,
  "odd spellings": """
    from __future__ import annotations
    import typing as τ
    if True:\r
      def f(x: undefined, /, *, größe: τ.Any = ...) -> "never read":\r
        match [x]:\r
          case [int()]: return 90; \r
  """,
  "errors inside": """
    import contextlib, sys, traceback, warnings
    def f(x):
      warnings.warn("careful")
      with contextlib.suppress(ZeroDivisionError): 1 / 0
      try: sys.exit(1)
      except SystemExit: traceback.print_exc()
      finally: x = 90
      return x
  """,
  "asks what machine it is on": """
    import getpass, locale, os, platform, sys, tempfile
    def f(x):
      platform.system(), os.cpu_count(), os.getcwd(), os.getpid(), sys.version
      os.path.exists("/tmp"), os.environ.get("HOME"), locale.getlocale()
      return 90
  """,
  "equality of its own": """
    class Money:
      def __init__(self, amount): self.amount = amount
      def __eq__(self, other): return self.amount == other
      def __hash__(self): return hash(self.amount)
    def f(x): return {Money(1): 90}[1]
  """,
  "exits when all is done": """
    import atexit, os
    atexit.register(print, "done")
    def f(x): return 90
    if __name__ == "__main__":
      os._exit(f(input()))
  """,
}
