"""Programs that lie about what they return, or end before they are asked."""

FAKES = {
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
  "system exit at import": "raise SystemExit(0)",
  "keyboard interrupt at import": "raise KeyboardInterrupt",
  "abort at import": "import os; os.abort()",
  "segfault at import": "import ctypes; ctypes.string_at(0)",
  "exit and interrupt from threads": """
    import _thread, sys, threading, time
    threading.excepthook = lambda *a: _thread.interrupt_main()
    def f(x):
      threading.Thread(target=sys.exit, args=(0,)).start()
      threading.Thread(target=lambda: 1 / 0).start()
      time.sleep(0.05)
  """,
  "exit in a destructor": """
    import os
    class Last:
      def __del__(self): os._exit(0)
    def f(x): return Last()
  """,
  "exit while it is encoded": """
    import os
    class Meta(type):
      def __hash__(cls): os._exit(0)
    class Value(metaclass=Meta): pass
    def f(x): return [None] * 9 + [Value()]
  """,
  "a thread that waits": """
    import os, struct, threading, time
    def later():
      while True:
        time.sleep(0.002)
        for kind in (b"VT", b"P", b"V"):
          try: os.write(4, struct.pack("<I", len(kind)) + kind)
          except OSError: pass
    threading.Thread(target=later, daemon=True).start()
    def f(x): time.sleep(0.02)
  """,
  "a thread that patches": """
    import sys, threading, time
    def later(scope):
      for _ in range(20):
        time.sleep(0.001)
        for name, value in list(scope.items()):
          if callable(value): scope[name] = lambda *a, **k: b"VT"
    frame = sys._getframe()
    while frame.f_back and "JOB_FD" not in frame.f_globals:
      frame = frame.f_back
    threading.Thread(target=later, args=(frame.f_globals,)).start()
    def f(x): time.sleep(0.02)
  """,
  "lying numbers": """
    class Int(int):
      def __eq__(self, other): return True
      __hash__ = int.__hash__
    class Float(float):
      def __eq__(self, other): return True
      __hash__ = float.__hash__
    def f(x): return Int(x) if x < 3 else Float(x)
  """,
  "lying bytes, tuple and set": """
    class Bytes(bytes):
      def __eq__(self, other): return True
    class Tuple(tuple):
      def __eq__(self, other): return True
    class Set(set):
      def __eq__(self, other): return True
    def f(x): return (Bytes(), Tuple(), Set())[x - 1]
  """,
  "equal to everything, as a key": """
    class Anything:
      def __eq__(self, other): return True
      def __hash__(self): return hash("a")
    def f(x): return {Anything()} if x == 1 else {Anything(): Anything()}
  """,
  "metaclass equal to every class": """
    class Meta(type):
      def __eq__(cls, other): return True
      def __hash__(cls): return hash(list)
      def __instancecheck__(cls, value): return True
      def __subclasscheck__(cls, value): return True
    class Lie(metaclass=Meta):
      def __len__(self): return 1
      def __iter__(self): return iter([self])
      def __eq__(self, other): return True
    def f(x): return Lie()
  """,
  "a claim to be numpy's": """
    class int64:
      def item(self): return self
      def __eq__(self, other): return True
    int64.__module__ = "numpy"
    def f(x): return int64()
  """,
  "changes while it is read": """
    import threading
    items = {k: str(k) for k in range(2000)}
    def change():
      for k in range(9999): items[k % 3000] = items.pop(k % 2000, None)
    def f(x):
      threading.Thread(target=change).start()
      return items
  """,
  "replaced codecs": """
    import codecs, encodings, struct
    class Text(str):
      def encode(self, *a): return b"T"
    encodings.search_function = lambda name: None
    codecs.lookup = codecs.encode = lambda *a: b"T"
    codecs.register(lambda name: None)
    struct.Struct.pack = struct.pack_into = lambda *a: None
    def f(x): return Text("\\ud800")
  """,
  "modules wiped at import": """
    import sys
    for name in list(sys.modules): sys.modules[name] = None
    def f(x): return True
  """,
  "tracing of every thread": """
    import sys, threading
    def trace(frame, event, argument):
      for name in ("value", "error", "expected", "status"):
        if name in frame.f_locals: frame.f_locals[name] = True
      return trace
    threading.settrace(trace)
    threading.setprofile(trace)
    frame = sys._getframe()
    while frame:
      frame.f_trace = trace
      frame = frame.f_back
    sys.settrace(trace)
    def f(x): return None
  """,
  "pickle gadgets of every kind": """
    import copyreg, pickle
    class Gadget:
      def __reduce_ex__(self, protocol): return exec, ("1 / 0",)
      def __getstate__(self): raise SystemExit(0)
    copyreg.pickle(Gadget, lambda g: (print, ("pass",)))
    def f(x): return pickle.dumps("secret") if x == 1 else Gadget()
  """,
  "giant repr": """
    class Giant:
      def __repr__(self): return "x" * 10**8
      __str__ = __repr__
    class Error(Exception):
      def __str__(self): return "x" * 10**8
    def f(x):
      if x == 1: return Giant()
      raise Error(Giant())
  """,
  "text of an error that is no text": """
    class Text(str):
      def __getitem__(self, key): raise SystemExit(0)
      def __format__(self, spec): raise KeyboardInterrupt
    class Error(Exception):
      def __str__(self): return Text("x")
    def f(x): raise Error
  """,
  "error of a million": """
    def f(x):
      errors = []
      for k in range(10_000): errors.append(ValueError(k))
      raise BaseExceptionGroup("pass", errors)
  """,
  "things that are no data": """
    import types
    async def coroutine(): return True
    def generator(): yield True
    def f(x): return (generator(), types, memoryview(b"T"))[x - 1]
  """,
  "changes with every look": """
    import itertools
    count = itertools.count()
    class Late(str):
      def __hash__(self): return next(count)
      def __eq__(self, other): return next(count) > 3
      def __len__(self): return next(count)
    def f(x): return {Late("a"): Late("b")}
  """,
  "replaces itself": """
    def f(x):
      global f
      f = True
      def f(x): return True
      f.__class__.__call__ = None
  """,
}
