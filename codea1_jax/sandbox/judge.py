"""Verdicts: what a job's children claimed and how they ended, judged.

The only place that holds expected values. It runs no code.
"""

import collections
import dataclasses
import functools
import json
import os
import signal

from codea1_jax.sandbox import child, values, zygote
from codea1_jax.sandbox.calls import arguments_source
from codea1_jax.sandbox.encoding import decode
from codea1_jax.sandbox.limits import Limits
from codea1_jax.types import Status, Verdict

# Bytes of all values of one job as they are sent: as JSON a character of ASCII
# takes at most 2, another at most 12.
_MAX_VALUES = 1 << 28
_MAX_CACHED_CHARS = 400  # a key may be 40 times as long
MAX_WORKER_DEATHS = 2
_cached_arguments = functools.lru_cache(8_192)(arguments_source)
_cached_literal = functools.lru_cache(8_192)(values.parse_literal)
_cached_key = functools.lru_cache(8_192)(
  lambda text, max_chars: values.key(_cached_literal(text, max_chars))
)


class JobState:
  """One job on its way through as many children as it needs."""

  def __init__(self, message: dict, limits: Limits):
    self.id = message["id"]
    self.hash_seed = message["hash_seed"]
    self.cpu_s = 0.0
    self._message = message
    self._limits = limits
    self._load: Verdict | None = None
    self._verdicts: list[Verdict | None] = [None] * len(message["calls"])
    self._arguments = [self._checked(k) for k in range(len(self._verdicts))]
    self._pending = collections.deque(
      k for k, arguments in enumerate(self._arguments) if arguments is not None
    )
    self._loaded_here = False
    self._given = 0  # calls that the child was started with
    self._deaths = self._worker_deaths = 0
    self._room = _MAX_VALUES
    self._not_run: list[int] = []
    if len(message["program"]) > limits.max_program_chars:
      self._load = Verdict(Status.INVALID, detail="program too long")

  def _checked(self, number: int) -> str | None:
    """A call's arguments, or None with the verdict that it is no call."""
    text = self._message["calls"][number]
    expected = self._message["expected"][number]
    short = len(text) <= _MAX_CACHED_CHARS
    check = _cached_arguments if short else arguments_source
    try:
      if expected is not None:
        self._expected_key(expected)
      return check(
        text, self._message["entry_point"], self._limits.max_call_chars
      )
    except ValueError as error:
      self._verdicts[number] = Verdict(Status.INVALID, detail=str(error)[:200])
      return None

  def _expected_key(self, text: str) -> bytes | None:
    if len(text) <= _MAX_CACHED_CHARS:
      return _cached_key(text, self._limits.max_call_chars)
    return values.key(values.parse_literal(text, self._limits.max_call_chars))

  @property
  def done(self) -> bool:
    """Whether no child has to be started any more."""
    if self._load is None:
      return False
    return self._load.status is not Status.PASS or not self._pending

  @property
  def parts(self) -> "list[JobState]":
    """The children that run side by side: here one."""
    return [self]

  @property
  def request(self) -> tuple[float, float, int, int]:
    """CPU seconds to load and for a call, bytes of memory, calls."""
    limits = self._limits
    memory = limits.memory_mb << 20
    return limits.load_cpu_s, limits.call_cpu_s, memory, len(self._pending)

  @property
  def longest_cpu_s(self) -> float:
    """CPU seconds within which a child must show progress."""
    return max(self._limits.load_cpu_s, self._limits.call_cpu_s)

  def start(self) -> bytes:
    """The text for the next child: never an expected value in it."""
    self._loaded_here = False
    self._given = len(self._pending)
    return json.dumps(
      {
        "role": "calls",
        "program": self._message["program"],
        "entry_point": self._message["entry_point"],
        "arguments": [self._arguments[k] for k in self._pending],
        "max_bytes": self._limits.max_result_bytes,
        "max_items": self._limits.max_result_items,
      }
    ).encode("ascii")

  def on_frame(self, frame: bytes) -> None:
    """Takes one claim of the child.

    Raises:
      ValueError: the child sent what an honest one does not.
    """
    kind, body = frame[:1], frame[1:]
    if self.done:
      raise ValueError("a frame out of turn")
    elif not self._loaded_here:
      self._on_load_frame(kind, body)
    else:
      number = self._pending[0]
      self._verdicts[number] = self._judge(number, kind, body)
      self._pending.popleft()

  def _on_load_frame(self, kind: bytes, body: bytes) -> None:
    if kind == b"L":
      self._loaded_here = True
      self._load = self._load or Verdict(Status.PASS)
    elif kind in CLAIMED_FAILURES:
      self._fail_load(failed(kind, body))
    else:
      raise ValueError("not a load frame")

  def _fail_load(self, verdict: Verdict) -> None:
    """A program that once loaded, and now does not, loses what is left."""
    if self._load is None:
      self._load = verdict
      return
    if verdict.status is Status.INVALID:  # that would blame the tests
      verdict = dataclasses.replace(verdict, status=Status.ERROR)
    self._give_up(verdict)

  def _fill(self, verdict: Verdict, count: int) -> None:
    """Gives the first calls that are left, at most so many, one verdict."""
    for _ in range(min(len(self._pending), count)):
      self._verdicts[self._pending.popleft()] = verdict

  def _give_up(self, verdict: Verdict) -> None:
    """No more children: what is left was not run."""
    self._not_run = list(self._pending)
    self._fill(verdict, len(self._pending))

  def _judge(self, number: int, kind: bytes, body: bytes) -> Verdict:
    # A call cannot claim to be invalid: that would blame the test.
    if kind in (b"E", b"M"):
      return failed(kind, body)
    if kind != b"V":
      raise ValueError("not a call frame")
    value = decode(body, self._limits.max_result_items)
    try:
      text = self._written(value)
    except ValueError as error:
      return Verdict(Status.ERROR, detail=str(error))
    expected = self._message["expected"][number]
    if expected is None:
      return Verdict(Status.PASS, text)
    if self._equal(value, expected):
      return Verdict(Status.PASS, text)
    return Verdict(Status.FAIL, text)

  def _written(self, value) -> str:
    """A value's source; ValueError: a verdict cannot carry it."""
    text = values.source(value, self._limits.max_result_bytes)
    size = len(text) * (2 if text.isascii() else 12)
    if size > self._room:
      raise ValueError(values.TOO_LARGE)
    self._room -= size
    return text

  def _equal(self, value, expected: str) -> bool:
    key = values.key(value)
    if key is not None and key == self._expected_key(expected):
      return True
    tolerance = self._message["tolerance"]
    if not tolerance:
      return False
    literal = values.parse_literal(expected, self._limits.max_call_chars)
    return values.close(value, literal, tolerance)

  def on_end(self, end: zygote.End) -> None:
    """Takes the end of a child, after all of its frames."""
    self.cpu_s += end.cpu_s
    if not end.started:
      self.on_worker_death("a child could not be set up")
      return
    if self.done:
      return
    verdict = ended(end, self._limits)
    if not self._loaded_here:
      self._fail_load(verdict)
      return
    # An overdue child lied about its progress: its job is not tried on.
    self._deaths += self._limits.max_deaths if end.how == zygote.OVERDUE else 1
    # It is in the first that it did not answer. One that claims to be further
    # on has used up the CPU seconds of all up to there.
    answered = self._given - len(self._pending)
    self._fill(verdict, max(end.stage - answered, 1))
    if self._deaths >= self._limits.max_deaths:
      detail = f"not run, after {self._deaths} ended processes"
      self._give_up(Verdict(verdict.status, detail=detail))

  def on_worker_death(self, detail: str) -> None:
    """Our own failure: tried again once, then infrastructure."""
    self._worker_deaths += 1
    if self._worker_deaths >= MAX_WORKER_DEATHS:
      self._load = Verdict(Status.INFRASTRUCTURE, detail=detail)

  def result(self) -> list:
    """The message for the trainer."""
    calls = self._verdicts
    if self._load.status is not Status.PASS:
      calls = [self._load] * len(calls)
    rows = [row(verdict) for verdict in calls]
    return [self.id, self.cpu_s, row(self._load), rows, self._not_run]


def row(verdict: Verdict) -> list:
  """A verdict as the trainer reads it."""
  return [verdict.status.value, verdict.value, verdict.detail]


CLAIMED_FAILURES = {
  b"I": Status.INVALID,
  b"E": Status.ERROR,
  b"M": Status.MEMORY,
}


def failed(kind: bytes, body: bytes) -> Verdict:
  """The verdict on what a child says that it could not do."""
  return Verdict(CLAIMED_FAILURES[kind], detail=claimed_text(body))


def claimed_text(body: bytes) -> str:
  """What a child says of a failure: as much as an honest one writes."""
  return body[:240].decode("utf-8", "replace")


def ended(end: zygote.End, limits: Limits) -> Verdict:
  """The verdict on whatever ran when a child ended before its last frame."""
  if end.how == zygote.CPU_LIMIT:
    return Verdict(Status.TIMEOUT, detail="CPU time above the limit")
  if end.how == zygote.OVERDUE:
    return Verdict(Status.TIMEOUT, detail="no claim within the wall time")
  if end.how == zygote.WALL_LIMIT:
    detail = f"idle for {limits.wall_factor:g} times the CPU limit"
    return Verdict(Status.TIMEOUT, detail=detail)
  if end.how == zygote.THREAD_LIMIT:
    return Verdict(Status.ERROR, detail=f"over {limits.max_threads} threads")
  code = os.waitstatus_to_exitcode(end.status)
  if code == -signal.SIGXCPU:
    return Verdict(Status.TIMEOUT, detail="CPU time above the limit")
  if code == child.OUT_OF_MEMORY:
    return Verdict(Status.MEMORY, detail="no memory left")
  if code >= 0:
    return Verdict(Status.ERROR, detail=f"exited with status {code}")
  name = signal.Signals(-code).name if -code in set(signal.Signals) else -code
  return Verdict(Status.ERROR, detail=f"killed by {name}")
