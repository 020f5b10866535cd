"""Bodies of f(x) that go on for ever or use everything, for x == 1 only."""

HOGS = {
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
  "thread bomb": (
    "error memory",
    """
    import threading, time
    while x == 1: threading.Thread(target=time.sleep, args=(9,)).start()
    """,
  ),
  "descriptor bomb": ("error", "import os\n    while x == 1: os.dup(0)"),
  "swallowed memory errors": (
    "timeout",
    """
    kept = []
    while x == 1:
      try: kept.append(bytearray(10**7))
      except MemoryError: pass
    """,
  ),
  "sleep in small pieces": (
    "timeout",
    "import time\n    while x == 1: time.sleep(0.001)",
  ),
  "wait for a child": ("error", "import os; x == 1 and os.wait()"),
  "wait for input by poll": (
    "timeout",
    """
    import os, select
    a, b = os.pipe()
    if x == 1: select.select([a], [], [])
    """,
  ),
  "busy while the main thread is gone": (
    "timeout",
    """
    import ctypes, platform, threading
    def spin():
      while True: pass
    if x == 1:
      threading.Thread(target=spin).start()
      number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
      ctypes.CDLL(None).syscall(number, 0)
    """,
  ),
  "asleep while the main thread is gone": (
    "timeout",
    """
    import ctypes, platform, threading, time
    if x == 1:
      threading.Thread(target=time.sleep, args=(999,)).start()
      number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
      ctypes.CDLL(None).syscall(number, 0)
    """,
  ),
  "loop in a destructor": (
    "timeout",
    """
    class Last:
      def __del__(self):
        while True: pass
    if x == 1: last = Last(); del last
    """,
  ),
  "loop in C": (
    "timeout",
    "import collections, itertools\n"
    "    x == 1 and collections.deque(itertools.repeat(1), maxlen=0)",
  ),
  "loop while it is printed": (
    "timeout",
    """
    class Error(Exception):
      def __str__(self):
        while True: pass
    if x == 1: raise Error
    """,
  ),
  "bytearray": (
    "memory",
    "data = bytearray(1)\n    while x == 1: data.extend(bytes(len(data)))",
  ),
  "list of everything": (
    "memory",
    "import itertools; x == 1 and list(itertools.repeat(0, 10**9))",
  ),
  "mapping": ("error memory", "import mmap; x == 1 and mmap.mmap(-1, 1 << 34)"),
  "percent width": ("memory", "x == 1 and '%*d' % (10**9, 1)"),
  "join": ("memory", "x == 1 and ','.join(['x' * 10**6] * 10**4)"),
  "a long string many times": (
    "error memory",
    "return ['x' * 20_000] * 5000 if x == 1 else x",
  ),
  "frozensets in each other": (
    "fail",
    """
    inner = frozenset()
    for _ in range(90): inner = frozenset([inner])
    if x == 1: return inner
    """,
  ),
  "shift": ("error memory", "x == 1 and 1 << (1 << 40)"),
  "a million digits": (
    "timeout",
    """
    import sys
    sys.set_int_max_str_digits(0)
    while x == 1: len(str(7 ** 10**6))
    """,
  ),
  "a million digits read": ("error", "x == 1 and int('9' * 10**6)"),
  "colliding integers": (
    "timeout",
    "x == 1 and {k * (2**61 - 1) for k in range(10**6)}",
  ),
  "recursion of a parser in C": (
    "error",
    "import json; x == 1 and json.loads('[' * 10**6)",
  ),
  "recursion of a pattern": (
    "error memory timeout",
    "import re; x == 1 and re.compile('(' * 10**5 + ')' * 10**5)",
  ),
  "recursion of repr": (
    "error timeout",
    """
    import sys
    sys.setrecursionlimit(10**9)
    class Deep:
      def __repr__(self): return repr([Deep()])
    if x == 1: return repr(Deep())
    """,
  ),
  "recursion in a thread with a small stack": (
    "error timeout memory",
    """
    import sys, threading
    sys.setrecursionlimit(10**9)
    threading.stack_size(32768)
    def down(): return sorted([1, 2], key=lambda k: down())
    if x == 1:
      thread = threading.Thread(target=down)
      thread.start(); thread.join(); raise OSError("it ended")
    """,
  ),
  "long sum in source": (
    "error memory timeout",
    "exec('y = ' + '1+' * 10**5 + '1') if x == 1 else 0",
  ),
  "dict that holds itself": (
    "error",
    "if x == 1: d = {}; d[0] = d; return d",
  ),
  "a million items": ("error", "return [None] * 10**6 if x == 1 else x"),
  "lists shared a million times": (
    "error",
    """
    items = [0]
    for _ in range(60): items = [items, items]
    if x == 1: return items
    """,
  ),
  "100 MB of bytes": ("error", "return bytes(10**8 // 2) if x == 1 else x"),
  "standard output by descriptor": (
    "timeout",
    """
    import os
    data = bytes(1 << 20)
    while x == 1:
      try: os.write(1, data)
      except OSError: pass
    """,
  ),
  "result never read": (
    "error timeout",
    """
    import os
    while x == 1:
      try: os.write(4, bytes(1 << 16))
      except OSError: pass
    """,
  ),
  "bomb of small threads": (
    "error memory",
    """
    import threading, time
    threading.stack_size(32768)
    while x == 1: threading.Thread(target=time.sleep, args=(99,)).start()
    """,
  ),
  "pipe bomb": ("error", "import os\n    while x == 1: os.pipe()"),
  "socket bomb": (
    "error",
    """
    import socket
    kept = []
    while x == 1: kept.append(socket.socketpair())
    """,
  ),
}
