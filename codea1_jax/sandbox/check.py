"""The judge of a check: a program in one child under a test in another."""

import json

from codea1_jax.sandbox.judge import (
  CLAIMED_FAILURES,
  MAX_WORKER_DEATHS,
  claimed_text,
  ended,
  failed,
  row,
)
from codea1_jax.sandbox.limits import Limits
from codea1_jax.sandbox.zygote import End
from codea1_jax.types import Status, Verdict

_MOST_FRAMES = 2  # loaded, and the test's last word
_TEST_FAILURES = {b"A": Status.FAIL, b"T": Status.ERROR}


class CheckState:
  """One check on its way: a job of two children that run side by side."""

  def __init__(self, message: dict, limits: Limits):
    self.id = message["id"]
    self._message = message
    self._limits = limits
    self.cpu_s = 0.0
    self._worker_deaths = 0
    self._verdict: Verdict | None = None
    self._start_over()
    for name in ("program", "test"):
      if len(message[name]) > limits.max_check_chars:
        self._verdict = Verdict(Status.INVALID, detail=f"{name} too long")

  def _start_over(self) -> None:
    self.parts = [
      _Part(self, role, seed) for seed, role in enumerate(("candidate", "test"))
    ]

  @property
  def done(self) -> bool:
    """Whether no child has to be started any more."""
    return self._verdict is not None

  def result(self) -> list:
    """The message for the trainer."""
    return [self.id, self.cpu_s, row(self._verdict), [], []]

  def text(self, role: str) -> bytes:
    """The job of one child: neither sees the other's."""
    program, name = self._message["program"], self._message["entry_point"]
    job = {"role": role, "program": program, "entry_point": name}
    if role == "test":
      job |= {"program": self._message["test"], "entry_point": "check"}
      job["candidate"] = name
    return json.dumps(job).encode("ascii")

  @property
  def request(self) -> tuple[float, float, int, int]:
    """CPU seconds to load and for a call, bytes of memory, calls."""
    return self._message["cpu_s"], 1.0, self._message["memory_mb"] << 20, 0

  def on_part_end(self, cpu_s: float) -> None:
    """Takes the end of a child; judges once both have ended."""
    self.cpu_s += cpu_s
    if all(part.over for part in self.parts):
      self._judge()

  def end_verdict(self, end: End) -> Verdict:
    return ended(end, self._limits)

  def _judge(self) -> None:
    candidate, test = self.parts
    lost = candidate.lost or test.lost
    if not lost:
      # What kept the candidate from loading, then what the test says of it,
      # then what ended the candidate before its answer.
      self._verdict = _load_failure(candidate) or _said(test) or candidate.end
      return
    self._worker_deaths += 1  # our own failure is tried again
    if self._worker_deaths < MAX_WORKER_DEATHS:
      self._start_over()
    else:
      self._verdict = Verdict(Status.INFRASTRUCTURE, detail=lost)


class _Part:
  """One of the two children: its claims, and how it ended."""

  def __init__(self, check: CheckState, role: str, hash_seed: int):
    self._check = check
    self._role = role
    self.hash_seed = hash_seed  # of the zygote that runs it
    self.frames: list[bytes] = []
    self.end: Verdict | None = None
    self.over = False
    self.lost = ""  # why it could not run, where that was our failure

  @property
  def request(self) -> tuple[float, float, int, int]:
    return self._check.request

  @property
  def longest_cpu_s(self) -> float:
    return self.request[0]

  def start(self) -> bytes:
    """The text for the child."""
    return self._check.text(self._role)

  def on_frame(self, frame: bytes) -> None:
    """Takes one claim; ValueError: more than an honest child makes."""
    if len(self.frames) == _MOST_FRAMES:
      raise ValueError("too many frames")
    self.frames.append(frame)

  def on_end(self, end: End) -> None:
    """Takes the end of the child, after all of its frames."""
    self.over = True
    self.end = self._check.end_verdict(end)
    if not end.started:
      self.lost = "a child could not be set up"
    self._check.on_part_end(end.cpu_s)

  def on_worker_death(self, detail: str) -> None:
    self.over, self.lost = True, detail
    self._check.on_part_end(0.0)


def _load_failure(part: _Part) -> Verdict | None:
  """Why a program was not loaded; None where it was."""
  frame = part.frames[0] if part.frames else b""
  if frame == b"L":
    return None
  if frame[:1] in CLAIMED_FAILURES:
    return failed(frame[:1], frame[1:])
  return part.end


def _said(test: _Part) -> Verdict | None:
  """The test's verdict; None where it only says that the candidate is gone.

  Its claim counts because no candidate runs in its process.
  """
  frame = test.frames[1] if len(test.frames) == _MOST_FRAMES else b""
  kind, body = frame[:1], frame[1:]
  if kind == b"P":
    return Verdict(Status.PASS)
  if kind == b"G":
    return None
  if kind in (b"E", b"M"):  # the candidate raised, and the test let it pass
    return failed(kind, body)
  verdict = _load_failure(test) or test.end
  if kind in _TEST_FAILURES:
    verdict = Verdict(_TEST_FAILURES[kind], detail=claimed_text(body))
  return Verdict(verdict.status, detail=f"test: {verdict.detail}")
