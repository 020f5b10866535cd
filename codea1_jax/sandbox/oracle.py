"""Ground truths: which of their answers are certain, and a memory of them."""

import collections
import dataclasses
import hashlib

from codea1_jax.sandbox import values
from codea1_jax.sandbox.limits import Job, JobResult
from codea1_jax.types import Status, Verdict

_MAX_ENTRIES, _MAX_CHARS = 100_000, 64_000_000
_ENTRY_CHARS = 200  # about what an entry costs besides its text


def checked(result: JobResult, max_chars: int) -> JobResult:
  """Turns answers that no literal can write into INVALID."""
  calls = tuple(_checked(verdict, max_chars) for verdict in result.calls)
  return dataclasses.replace(result, calls=calls)


def _checked(verdict: Verdict, max_chars: int) -> Verdict:
  if not verdict.passed:
    return verdict
  try:
    values.check_literal(values.parse_literal(verdict.value, max_chars))
  except ValueError as error:
    return Verdict(Status.INVALID, detail=f"no literal value: {error}")
  return verdict


def rest(job: Job, result: JobResult) -> Job:
  """The calls that were not run."""
  calls = tuple(job.calls[k] for k in result.not_run)
  expected = job.expected and tuple(job.expected[k] for k in result.not_run)
  return Job(job.program, job.entry_point, calls, expected)


def joined(result: JobResult, more: JobResult) -> JobResult:
  """A result, with the calls that were not run as `more` has them."""
  calls = list(result.calls)
  for k, verdict in zip(result.not_run, more.calls):
    calls[k] = verdict
  left = tuple(result.not_run[place] for place in more.not_run)
  return JobResult(result.load, tuple(calls), result.cpu_s + more.cpu_s, left)


def second_job(job: Job, first: JobResult) -> Job:
  """The calls that gave a value, in another order, now expecting it."""
  order = _second_order(first)
  return Job(
    job.program,
    job.entry_point,
    tuple(job.calls[k] for k in order),
    tuple(first.calls[k].value for k in order),
  )


def _second_order(first: JobResult) -> list[int]:
  """Numbers of the calls that gave a value, in the order of the second run.

  Reversed, but none at the place that it had: a program may count its calls.
  """
  order = [k for k, verdict in enumerate(first.calls) if verdict.passed][::-1]
  for place, k in enumerate(order):
    if place == k:  # for one of them at most
      rest = order[:place] + order[place + 1 :]
      return [k, *rest] if place == len(rest) else [*rest, k]
  return order


def combine(first: JobResult, second: JobResult | None) -> JobResult:
  """The verdict on two runs; `second` is None where nothing had to run."""
  if second is None:
    return first
  order = _second_order(first)
  again = dict(zip(order, second.calls))
  calls = []
  for k, verdict in enumerate(first.calls):
    repeated = again.get(k, verdict)
    if repeated.status is Status.FAIL:
      detail = f"not deterministic: {verdict.value} and {repeated.value}"
      repeated = Verdict(Status.INVALID, detail=detail[:200])
    elif repeated.passed:
      repeated = verdict
    calls.append(repeated)
  left = {*first.not_run, *(order[place] for place in second.not_run)}
  cpu_s = first.cpu_s + second.cpu_s
  return JobResult(first.load, tuple(calls), cpu_s, tuple(sorted(left)))


class OracleCache:
  """Verdicts by (program, entry point, call), least recently used out first.

  It belongs to one pool, whose limits never change.
  """

  def __init__(self):
    self._entries: collections.OrderedDict[bytes, tuple[Verdict, Verdict]]
    self._entries = collections.OrderedDict()
    self._chars = 0

  def get(self, job: Job) -> JobResult | None:
    """The result of a job all of whose calls are known."""
    found = [self._entries.get(key) for key in _keys(job)]
    if None in found:
      return None
    for key in _keys(job):
      self._entries.move_to_end(key)
    load = found[0][0]
    return JobResult(load, tuple(call for _, call in found[1:]), 0.0)

  def put(self, job: Job, result: JobResult) -> None:
    """Stores a result but for calls not run, unless it was our own failure."""
    verdicts = (result.load, *result.calls)
    if any(v.status is Status.INFRASTRUCTURE for v in verdicts):
      return
    left = {place + 1 for place in result.not_run}  # after the program's own
    for place, (key, verdict) in enumerate(zip(_keys(job), verdicts)):
      if place in left:
        continue
      self._remove(key)
      self._entries[key] = (result.load, verdict)
      self._chars += _size(verdict)
    while len(self._entries) > _MAX_ENTRIES or self._chars > _MAX_CHARS:
      self._remove(next(iter(self._entries)))

  def _remove(self, key: bytes) -> None:
    entry = self._entries.pop(key, None)
    if entry is not None:
      self._chars -= _size(entry[1])


def _size(verdict: Verdict) -> int:
  return _ENTRY_CHARS + len(verdict.value or "") + len(verdict.detail)


def _keys(job: Job) -> list[bytes]:
  """A key for the program itself, then one a call."""
  program = hashlib.blake2b(digest_size=16)
  for text in (job.program, job.entry_point):
    program.update(_bytes(text))
  return [
    hashlib.blake2b(_bytes(call), key=program.digest(), digest_size=16).digest()
    for call in ("", *job.calls)
  ]


def _bytes(text: str) -> bytes:
  data = text.encode("utf-8", "surrogatepass")
  return b"%d:%s" % (len(data), data)
