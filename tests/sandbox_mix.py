"""Jobs of every kind, with their right verdicts, and what is left of a pool."""

import contextlib
import os
import pathlib
import random
import tempfile
import textwrap

from codea1_jax.sandbox import Job, Limits

LIMITS = Limits(call_cpu_s=0.12, load_cpu_s=0.5, wall_factor=3.0, memory_mb=96)

# name: weight, verdicts on f(1) and f(2), body. What goes wrong does so for 1.
KINDS = {
  "honest": (1200, "pass pass", "return x"),
  "wrong": (300, "fail fail", "return -x"),
  "half wrong": (100, "fail pass", "return 0 if x == 1 else x"),
  "raises": (100, "error error", "return x / 0"),
  "exits": (80, "error pass", "import os\nif x == 1: os._exit(0)\nreturn x"),
  "segfault": (
    40,
    "error pass",
    "import ctypes\nif x == 1: ctypes.string_at(0)\nreturn x",
  ),
  "flood": (
    60,
    "error pass",
    """
    import os
    while x == 1:
      os.write(4, bytes(65536))
    return x
    """,
  ),
  "memory": (60, "memory pass", "if x == 1: bytearray(10 ** 9)\nreturn x"),
  "does not load": (40, "invalid invalid", "return ("),
  "hangs": (8, "timeout pass", "while x == 1: pass\nreturn x"),
  "sleeps": (
    8,
    "timeout pass",
    "import time\nif x == 1: time.sleep(99)\nreturn x",
  ),
  # Half of its limit: only a clock that counts the wrong thing ends it.
  "heavy": (
    8,
    "pass pass",
    """
    import time
    start = time.process_time()
    while time.process_time() - start < LIMIT / 2: pass
    return x
    """,
  ),
}


def make_job(kind: str, number: int) -> Job:
  """A job of a kind; the number makes its program unlike all others."""
  body = textwrap.dedent(KINDS[kind][2]).replace("LIMIT", "0.12")
  program = f"# {number}\ndef f(x):\n{textwrap.indent(body.strip(), '  ')}\n"
  return Job(program, "f", ("f(1)", "f(2)"), ("1", "2"))


def make_jobs(count: int, seed: int) -> list[tuple[str, Job]]:
  """Kinds in random order, each as often as it weighs."""
  weights = [weight for weight, *_ in KINDS.values()]
  kinds = random.Random(seed).choices(list(KINDS), weights, k=count)
  return [(kind, make_job(kind, number)) for number, kind in enumerate(kinds)]


def statuses(result) -> str:
  return " ".join(verdict.status.value for verdict in result.calls)


def stats() -> dict[int, list[str]]:
  """pid -> state, parent and the rest of /proc/PID/stat."""
  found = {}
  for name in filter(str.isdigit, os.listdir("/proc")):
    with contextlib.suppress(OSError):
      text = pathlib.Path("/proc", name, "stat").read_text()
      found[int(name)] = text.rpartition(")")[2].split()
  return found


def below(pid: int) -> set[int]:
  """All descendants of a process, zombies too."""
  parents = {child: int(fields[1]) for child, fields in stats().items()}
  found, new = set(), {pid}
  while new:
    new = {child for child, parent in parents.items() if parent in new} - found
    found |= new
  return found


def resident_mb(pid: int) -> float:
  pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
  return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def num_descriptors(pid: int) -> int:
  """0 where only root may look: a manager cannot be traced."""
  try:
    return len(os.listdir(f"/proc/{pid}/fd"))
  except PermissionError:
    return 0


def num_zombies(parent: int) -> int:
  return sum(
    fields[0] == "Z" and int(fields[1]) == parent for fields in stats().values()
  )


def job_files() -> list[pathlib.Path]:
  """Files of the machine's temporary directories that hold a job's text."""
  found = []
  for directory in {tempfile.gettempdir(), "/tmp", "/dev/shm"}:
    for path in pathlib.Path(directory).glob("tmp*"):
      with contextlib.suppress(OSError):
        if path.is_file() and b'"entry_point"' in path.read_bytes()[:4096]:
          found.append(path)
  return found
