"""Programs that tamper with their claims: frames, pipe and progress page."""

CLAIMS = {
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
  "claim of colliding integers": """
    import os, struct
    def f(x):
      keys = [k * (2**61 - 1) & (2**63 - 1) for k in range(30_000)]
      body = b"Vpsq" + struct.pack(f"<I{len(keys)}q", len(keys), *keys)
      frame = struct.pack("<I", len(body)) + body
      while frame: frame = frame[os.write(4, frame):]
  """,
  "takes its own frames back": """
    import os
    try: os.chmod("/proc/self/fd/4", 0o600)
    except OSError: pass
    try: back = os.open("/proc/self/fd/4", os.O_RDONLY | os.O_NONBLOCK)
    except OSError: back = -1
    def take():
      try: os.read(back, 1 << 16)
      except OSError: pass
    take()
    def f(x):
      take()
      os._exit(0)
  """,
  "claims at its second load to be invalid": """
    import os, struct, sys
    left = len(sys._getframe(1).f_back.f_locals["job"]["arguments"])
    def f(x): os._exit(0)
    if left == 2: os.write(4, struct.pack("<I", 6) + b"Iblame")
    if left == 2: os._exit(0)
  """,
  "does not define itself at its second load": """
    import os, sys
    left = len(sys._getframe(1).f_back.f_locals["job"]["arguments"])
    if left == 3:
      def f(x): os._exit(0)
  """,
}
