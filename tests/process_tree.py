"""Which processes run, and below which, as Linux tells it."""

import pathlib
import time


def processes():
  """pid -> (parent, state) of everything that runs."""
  found = {}
  for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdigit():
      try:
        text = (entry / "stat").read_text()
      except OSError:
        continue
      state, parent = text.rsplit(")", 1)[1].split()[:2]
      found[int(entry.name)] = (int(parent), state)
  return found


def below(pid):
  """All descendants of a process, zombies too."""
  parents = {child: parent for child, (parent, _) in processes().items()}
  found, new = set(), {pid}
  while new:
    new = {p for p, parent in parents.items() if parent in new} - found
    found |= new
  return found


def running(pids):
  """Which of them still run; a zombie of somebody else's does not."""
  states = processes()
  return {p for p in pids if p in states and states[p][1] not in "ZX"}


def wait_until(condition, seconds):
  end = time.monotonic() + seconds
  while not condition() and time.monotonic() < end:
    time.sleep(0.05)
  return condition()
