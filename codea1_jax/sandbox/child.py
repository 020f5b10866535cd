"""The process that runs hostile code: one job, then the end of it.

It reads the job, loads the program, makes each call, writes one frame a call;
or it is one of the two children of a check: a candidate that answers calls, or
the test that makes them (proxy.py). Nothing it says is trusted: a frame is a
claim of what a call returned, and the expected value is not here. So the only
care taken below is that honest programs are served well, and that the process
ends.
"""

import json
import os
import random
import struct
import sys
import time
import types

from codea1_jax.sandbox import proxy
from codea1_jax.sandbox.encoding import encode
from codea1_jax.sandbox.wire import pack

JOB_FD, RESULT_FD = 3, 4  # 0, 1 and 2 are /dev/null; there is no other
OUT_OF_MEMORY = 86  # exit status when not even the frame could be made

_NAMES = {"__builtins__": {"set": set, "frozenset": frozenset}}
# Bound now: an honest program may well define or wrap functions of its own.
_pid, _cpu_clock, _pack_into = os.getpid, time.process_time, struct.pack_into


def run(progress, random_seed: int) -> None:
  """Runs the job behind JOB_FD; returns when every frame is written."""
  job = _read_job()
  random.seed(random_seed)
  owner = _pid()
  try:
    function = _load(job["program"], job["entry_point"])
    if function is None:
      return
    if job["role"] == "candidate":
      proxy.serve(function, _failure)
    elif job["role"] == "test":
      _write(_check(function, job["candidate"]))
    else:
      _make_calls(function, job, progress)
  except MemoryError:
    os._exit(OUT_OF_MEMORY)
  finally:
    if _pid() != owner:  # a fork by the program, where forks are possible
      os._exit(0)


def _read_job() -> dict:
  size = os.fstat(JOB_FD).st_size
  data = b""
  while len(data) < size:
    data += os.pread(JOB_FD, size - len(data), len(data))
  os.close(JOB_FD)
  return json.loads(data)


def _write(payload: bytes) -> None:
  data = pack(payload)
  while data:
    data = data[os.write(RESULT_FD, data) :]


def _load(program: str, name: str):
  """Runs the program's body; writes the load frame; the function, or None."""
  try:
    code = compile(program, "<program>", "exec", dont_inherit=True)
  except BaseException as error:
    _write(b"I" + _describe(error))
    return None
  module = types.ModuleType("program")
  sys.modules["program"] = module  # dataclasses and typing look it up
  try:
    exec(code, module.__dict__)
    function = module.__dict__.get(name)
  except BaseException as error:
    _write(_failure(error))
    return None
  if not callable(function):
    what = "is not callable" if name in module.__dict__ else "is not defined"
    _write(b"I" + f"{name} {what}".encode("utf-8", "replace"))
    return None
  _write(b"L")
  return function


def _make_calls(function, job: dict, progress) -> None:
  for number, arguments in enumerate(job["arguments"], start=1):
    # Says which call the CPU seconds from here on belong to.
    _pack_into("<Qd", progress, 0, number, _cpu_clock())
    _write(_call(function, arguments, job["max_bytes"], job["max_items"]))


def _check(check, name: str) -> bytes:
  """The frame of a test: passed, assertion failed, candidate gone, error."""
  candidate = proxy.Candidate(name)
  # A test may call the function by its name instead of by check's parameter.
  sys.modules["program"].__dict__.setdefault(name, candidate)
  try:
    check(candidate)
  except proxy.Gone:
    pass  # said below, as for a test that swallows everything
  except BaseException as error:
    if not candidate.gone:
      if error is candidate.failure:
        return candidate.failure_claim
      kind = b"A" if isinstance(error, AssertionError) else b"T"
      return kind + _describe(error)
  return b"G" if candidate.gone else b"P"


def _call(function, arguments: str, max_bytes: int, max_items: int) -> bytes:
  """The frame of one call, on arguments made anew for it."""
  try:
    positional, keywords = eval(arguments, _NAMES)
    value = function(*positional, **keywords)
  except BaseException as error:
    return _failure(error)
  try:
    return b"V" + encode(value, max_bytes, max_items)
  except ValueError as error:
    return b"E" + _describe(error)
  except BaseException as error:
    return _failure(error)


def _failure(error: BaseException) -> bytes:
  return (b"M" if type(error) is MemoryError else b"E") + _describe(error)


def _describe(error: BaseException) -> bytes:
  """ "ValueError: what it says", whatever its class does when asked."""
  try:
    name = type(error).__name__
    text = str(error)[:200]
  except BaseException:
    name, text = "an error that cannot be printed", ""
  try:
    return f"{name}: {text}"[:240].encode("utf-8", "replace")
  except BaseException:
    return b"an error that cannot be printed"
