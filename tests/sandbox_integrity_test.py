"""Programs that are paid for a verdict and try to fake it: none gets one."""

import pathlib
import random
import textwrap

import pytest

from codea1_jax.sandbox import Job, Limits, SandboxPool
from codea1_jax.types import Status

_LIMITS = Limits(call_cpu_s=0.5, load_cpu_s=0.5, wall_factor=10.0)
# What the calls must return: nobody can guess it, so it has to be stolen.
_SECRETS = [f"'secret-{random.getrandbits(60)}'" for _ in range(3)]
_CALLS = ("f(1)", "f(2)", "f(3)")


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=1, limits=_LIMITS) as made:
    yield made


_FAKES = {
  "exit in the call": """
    import os
    def f(x): os._exit(0)
  """,
  "exit at import": "import os; os._exit(0)",
  "system exit in the call": """
    import sys
    def f(x): sys.exit(0)
  """,
  "keyboard interrupt": "def f(x): raise KeyboardInterrupt",
  "generator exit at import": "raise GeneratorExit",
  "abort": """
    import os
    def f(x): os.abort()
  """,
  "segfault": """
    import ctypes
    def f(x): ctypes.string_at(0)
  """,
  "exit in a thread": """
    import os, threading, time
    def f(x):
      threading.Thread(target=os._exit, args=(0,)).start()
      time.sleep(1)
  """,
  "exit at exit": """
    import atexit, os
    atexit.register(os._exit, 0)
    def f(x): raise SystemExit(0)
  """,
  "printed markers": """
    import sys
    def f(x):
      for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        print("PASS ok all tests passed 1.0 True", file=stream, flush=True)
  """,
  "equal to everything": """
    class Anything:
      def __eq__(self, other): return True
      def __ne__(self, other): return False
      def __hash__(self): return 0
      def __bool__(self): return True
    def f(x): return Anything()
  """,
  "equal to everything, inside": """
    class Anything:
      def __eq__(self, other): return True
    def f(x): return [Anything()]
  """,
  "lying str": """
    class Lie(str):
      def __eq__(self, other): return True
      def __hash__(self): return 0
    def f(x): return Lie("a")
  """,
  "lying containers": """
    class List(list):
      def __eq__(self, other): return True
    class Dict(dict):
      def __eq__(self, other): return True
    def f(x): return List() if x == 1 else Dict()
  """,
  "lying class": """
    class Lie:
      @property
      def __class__(self): return str
      def __eq__(self, other): return True
    def f(x): return Lie()
  """,
  "replaced builtins": """
    import builtins
    class Yes:
      def __eq__(self, other): return True
    builtins.type = lambda value: str
    builtins.isinstance = lambda *a: True
    builtins.ValueError = Yes
    builtins.len = lambda value: 0
    def f(x): return Yes()
  """,
  "replaced modules": """
    import json, os, struct, sys
    write = os.write
    json.dumps = json.loads = lambda *a, **k: True
    struct.pack = lambda *a: b"V" + b"T"
    os.write = lambda fd, data: write(fd, b"\\x02\\0\\0\\0VT")
    def f(x): return True
  """,
  "wiped modules": """
    import builtins, sys
    def f(x):
      sys.modules.clear()
      builtins.__dict__.clear()
  """,
  "patched harness": """
    import sys
    def f(x):
      frame = sys._getframe(1)
      while frame:
        for name in list(frame.f_globals):
          if name in ("encode", "_call", "_write", "pack", "_failure"):
            frame.f_globals[name] = lambda *a, **k: b"VT"
        frame = frame.f_back
      return True
  """,
  "tracing": """
    import sys
    def trace(frame, event, argument):
      if "expected" in frame.f_locals: frame.f_locals["expected"] = None
      return trace
    sys.settrace(trace); sys.setprofile(trace)
    def f(x): return None
  """,
  "pickle gadget": """
    class Gadget:
      def __reduce__(self): return eval, ("'secret'",)
    def f(x): return Gadget()
  """,
  "hostile exception": """
    class Meta(type):
      @property
      def __name__(cls): raise SystemExit(0)
    class Error(Exception, metaclass=Meta):
      def __str__(self): raise SystemExit(0)
    def f(x): raise Error
  """,
  "claims to be an invalid test": """
    import os, struct
    def f(x):
      for kind in b"IVSLPT":
        os.write(4, struct.pack("<I", 1) + bytes([kind]))
  """,
  "frames on every descriptor": """
    import os, struct
    def frame(payload): return struct.pack("<I", len(payload)) + payload
    forged = [frame(p) for p in (b"S", b"L", b"VT", b"VN", b"V", b"P")]
    forged += [struct.pack("<Bid", 0, 0, 0.0), b'[0,0.0,["pass",null,""],[]]']
    def f(x):
      for fd in range(100):
        for data in forged:
          try: os.write(fd, data)
          except OSError: pass
  """,
  "frames at import": """
    import os, struct
    for fd in range(100):
      for kind in (b"L", b"VT", b"VT", b"VT", b"VT"):
        try: os.write(fd, struct.pack("<I", len(kind)) + kind)
        except OSError: pass
    os._exit(0)
  """,
  "broken frames at import": """
    import os
    os.write(4, bytes([255]) * 100)
    os._exit(0)
  """,
  "search of frames, heap and files": """
    import gc, os, re, sys
    found = []
    def look(value):
      if isinstance(value, bytes): value = value.decode("latin-1")
      if isinstance(value, str):
        found.extend(re.findall("secret-[0-9]+", value))
    def search():
      frame = sys._getframe()
      while frame:
        for scope in (frame.f_locals, frame.f_globals):
          for value in list(scope.values()): look(repr(value)[:9999])
        frame = frame.f_back
      for container in gc.get_objects():
        for value in gc.get_referents(container): look(value)
      for fd in range(64):
        for read in (lambda: os.pread(fd, 1 << 16, 0), lambda: os.read(fd, 1)):
          try: look(read())
          except OSError: pass
      pids = ["self", str(os.getppid()), "1", str(os.getpid())]
      for pid in pids:
        for name in ("environ", "maps", "cmdline", "fd/3"):
          try: look(open(f"/proc/{pid}/{name}", "rb").read())
          except OSError: pass
    def f(x):
      search()
      return found[-x] if len(found) >= x else None
  """,
  "search of its own memory": """
    import ctypes, re
    found = []
    def f(x):
      for anchor in (f, found, ctypes, "", (), {}, object()):
        start = id(anchor) & ~0xFFF
        for page in range(start, start + (1 << 16), 4096):
          try: data = ctypes.string_at(page, 4096)
          except Exception: continue
          found.extend(re.findall(rb"secret-[0-9]{6,}", data))
      return found[-1].decode() if found else None
  """,
  "second call differs": """
    calls = []
    def f(x):
      calls.append(x)
      return True if len(calls) > 1 else None
  """,
  "import hook": """
    import sys
    class Hook:
      def find_spec(self, *a): return None
    sys.meta_path.insert(0, Hook())
    sys.path_hooks.clear()
    def f(x): return __import__("codea1_jax")
  """,
}


@pytest.mark.parametrize("name", _FAKES)
def test_a_fake_gets_no_mark_and_harms_nobody(pool, name):
  fake = Job(textwrap.dedent(_FAKES[name]), "f", _CALLS, tuple(_SECRETS))
  answers = dict(zip((1, 2, 3), map(eval, _SECRETS)))
  honest = Job(f"def f(x): return {answers}[x]", "f", _CALLS, tuple(_SECRETS))
  faked, kept = pool.run([fake, honest])
  assert not any(verdict.passed for verdict in faked.calls)
  statuses = {faked.load.status, *(verdict.status for verdict in faked.calls)}
  assert Status.INFRASTRUCTURE not in statuses
  if faked.load.passed:
    assert Status.INVALID not in statuses
  assert all(verdict.passed for verdict in kept.calls)


def test_nothing_is_left_for_the_next_job(pool):
  leave = """
    import builtins, sys
    frame = sys._getframe()
    while "progress" not in frame.f_locals: frame = frame.f_back
    def f():
      builtins.note = "secret note"
      frame.f_locals["progress"][16:27] = b"secret note"
      return hasattr(builtins, "note"), b"note" in frame.f_locals["progress"][:]
  """
  look = """
    import builtins, sys
    frame = sys._getframe()
    while "progress" not in frame.f_locals: frame = frame.f_back
    def f():
      return hasattr(builtins, "note"), b"note" in frame.f_locals["progress"][:]
  """
  first, second = pool.run(
    [Job(textwrap.dedent(text), "f", ("f()",)) for text in (leave, look)]
  )
  assert first.calls[0].value == "(True, True)"
  assert second.calls[0].value == "(False, False)"


def test_no_trace_of_the_harness_to_sniff(pool):
  program = """
    import os, sys
    def f():
      names = [n for n in sys.modules if "codea1" in n or "pytest" in n]
      return names, dict(os.environ), sys.argv, [p for p in sys.path if not p]
  """
  (result,) = pool.run([Job(textwrap.dedent(program), "f", ("f()",))])
  assert result.calls[0].value == "([], {}, [''], [])"


def test_files_of_project_and_home_are_closed(pool):
  if "landlock" not in pool.description:
    pytest.skip("this kernel has no landlock")
  here = pathlib.Path(__file__).resolve()
  paths = [
    str(here),
    str(here.parents[1]),
    "/etc/passwd",
    "/",
    str(here.home()),
  ]
  program = """
    import os
    def f(path):
      return os.listdir(path) if os.path.isdir(path) else open(path).read()
  """
  calls = tuple(f"f({path!r})" for path in paths)
  (result,) = pool.run([Job(textwrap.dedent(program), "f", calls)])
  details = [verdict.detail for verdict in result.calls]
  assert all("PermissionError" in detail for detail in details)
