"""Runs a whole table of attacks in one pool and says what went wrong.

Every function returns complaints by name: nothing where the sandbox held. Also
a program, for another user than the one who runs the tests: it prints the
complaints of one tier as JSON, and needs a bare Python only.
"""

import base64
import dataclasses
import json
import random
import sys
import textwrap
import zlib

import sandbox_hostile as hostile
from sandbox_claims import CLAIMS
from sandbox_escapes import ESCAPES
from sandbox_fakes import FAKES
from sandbox_hogs import HOGS
from sandbox_odd import ODD
from sandbox_thefts import THEFTS

from codea1_jax.parsing import parse_suite
from codea1_jax.sandbox import Job, JobResult, Limits, SandboxPool
from codea1_jax.types import Status

CALLS = ("f(1)", "f(2)", "f(3)")
# For fakes and honest programs, which need no limit to end: with room.
ROOMY = Limits(call_cpu_s=0.5, load_cpu_s=1.0, wall_factor=20.0)
# For what has to be stopped, by CPU time or by the idle time that it waits.
TIGHT = Limits(call_cpu_s=0.25, load_cpu_s=0.4, wall_factor=4.0, memory_mb=96)
# For what must not end by time: fresh pages can cost a busy machine more CPU
# time than `TIGHT` has.
PATIENT = dataclasses.replace(TIGHT, call_cpu_s=5.0, load_cpu_s=2.0)
TIERS = ((), ("userns",), ("landlock",), ("userns", "landlock"))
# Without a system call filter nothing stops a hog from forking or killing:
# there only the verdicts are tried.
WEAK_TIERS = (("seccomp",), ("seccomp", "landlock", "userns"))

# Not refused where landlock closes no files: /etc/hosts knows the answer.
ANSWERED_BY_FILES = ("lookup",)

# 200 MB, packed twice: some kilobytes.
_BOMB = base64.b64encode(zlib.compress(zlib.compress(bytes(2 * 10**8), 1)))


def make_secrets() -> tuple[str, ...]:
  """What the calls must return: nobody can guess it, it has to be stolen."""
  return tuple(f"'secret-{random.getrandbits(60)}'" for _ in CALLS)


def fake_jobs(program: str, secrets: tuple[str, ...]) -> list[Job]:
  """A fake, and an honest program that must not suffer from it."""
  honest = f"def f(x): return [{', '.join(secrets)}][x - 1]"
  texts = textwrap.dedent(program), honest
  return [Job(text, "f", CALLS, secrets) for text in texts]


def complaint_on_fake(faked: JobResult, kept: JobResult) -> str:
  """What is wrong with the verdicts on both; "" where nothing is."""
  if any(verdict.passed for verdict in faked.calls):
    return f"a mark for nothing: {faked.calls}"
  statuses = {faked.load.status, *(verdict.status for verdict in faked.calls)}
  if Status.INFRASTRUCTURE in statuses:
    return f"harm to the sandbox: {faked}"
  if faked.load.passed and Status.INVALID in statuses:
    return f"a call that blames its test: {faked.calls}"
  if not all(verdict.passed for verdict in kept.calls):
    return f"harm to the next job: {kept}"
  return ""


def fakes(pool: SandboxPool) -> dict[str, str]:
  """All fakes, thefts and claims, each with an honest program after it."""
  programs = FAKES | THEFTS | CLAIMS
  secrets = make_secrets()
  jobs = [job for text in programs.values() for job in fake_jobs(text, secrets)]
  results = pool.run(jobs)
  said = map(complaint_on_fake, results[::2], results[1::2])
  return _complaints(programs, said)


def hog_job(body: str) -> Job:
  """The body misbehaves for x == 1 only; f(2) must not suffer from it."""
  body = textwrap.indent(textwrap.dedent(f"    {body.strip()}"), "  ")
  program = f"BOMB = {_BOMB!r}\ndef f(x):\n{body}\n  return x\n"
  return Job(program, "f", ("f(1)", "f(2)"), ("1", "2"))


def is_timed(statuses: str) -> bool:
  return "timeout" in statuses


def complaint_on_hog(statuses: str, result: JobResult) -> str:
  """What is wrong with a hog's verdicts; "" where nothing is."""
  if not result.load.passed:
    return f"does not load: {result.load}"
  hog, other = result.calls
  if hog.status.value not in statuses.split():
    return f"{statuses} expected: {hog}"
  if not other.passed:
    return f"harm to another call: {other}"
  if result.cpu_s > (2.0 if is_timed(statuses) else 6.0):
    return f"{result.cpu_s} CPU seconds"
  return ""


def hogs(
  tight: SandboxPool, patient: SandboxPool, left_out: tuple[str, ...] = ()
) -> dict[str, str]:
  """All hogs and escapes but some."""
  table = HOGS | ESCAPES
  table = {name: hog for name, hog in table.items() if name not in left_out}
  complaints = {}
  for pool, timed in ((tight, True), (patient, False)):
    part = {k: v for k, v in table.items() if is_timed(v[0]) == timed}
    results = pool.run([hog_job(body) for _, body in part.values()])
    said = map(complaint_on_hog, [v[0] for v in part.values()], results)
    complaints |= _complaints(part, said)
  return complaints


def odd(pool: SandboxPool) -> dict[str, str]:
  """All honest programs that do unusual things."""
  texts = map(textwrap.dedent, ODD.values())
  results = pool.run([Job(text, "f", CALLS, ("90",) * 3) for text in texts])
  said = (
    "" if all(v.passed for v in result.calls) else str(result)
    for result in results
  )
  return _complaints(ODD, said)


def hostile_tests(pool: SandboxPool) -> dict[str, str]:
  """All hostile calls and answers in one job, with a good call after each."""
  calls = [(name, text, "None") for name, text in hostile.CALLS.items()]
  calls += [(name, "f(1)", text) for name, text in hostile.ANSWERS.items()]
  calls += [(name, text, None) for name, text in hostile.HARMLESS.items()]
  texts = [part for _, text, _ in calls for part in (text, "f(7)")]
  expected = [part for *_, answer in calls for part in (answer, "7")]
  job = Job(hostile.HONEST, "f", tuple(texts), tuple(expected))
  (result,) = pool.run([job])
  pairs = zip(calls, result.calls[::2], result.calls[1::2])
  return {
    name: f"{verdict.status}, its neighbour {neighbour.status}"
    for (name, _, answer), verdict, neighbour in pairs
    if (verdict.status is Status.INVALID) != (answer is not None)
    or verdict.status is Status.INFRASTRUCTURE
    or not neighbour.passed
  }


def oracles(pool: SandboxPool) -> dict[str, str]:
  """Ground truths that are uncertain of f(1): it counts for nothing."""
  jobs = []
  for body in hostile.ORACLES.values():
    text = f"seen = []\ndef f(x):\n  if x == 1:\n    {body}\n"
    text += "  seen.append(x)\n  return x\n"
    # Four: the middle one of three has as many before it in either order.
    jobs.append(Job(text, "f", ("f(0)", "f(1)", "f(2)", "f(3)")))
  said = (
    ""
    if [v.passed for v in result.calls] == [True, False, True, True]
    else result
    for result in pool.oracle(jobs)
  )
  return _complaints(hostile.ORACLES, said)


def suites() -> dict[str, str]:
  """Hostile statements, fenced and bare: no test, and no test lost."""
  complaints = {}
  for name, statement in hostile.STATEMENTS.items():
    text = f"assert f(1) == 1\n{statement}\nassert f( 2, ) == (2)\n"
    for suite in (f"```python\n{text}```", text):
      tests = parse_suite(suite, "f", None).tests
      found = [(test.call, test.expected) for test in tests]
      if found != [("f(1)", "1"), ("f(2)", "2")]:
        complaints[name] = str(found)
  return complaints


def _complaints(names, said) -> dict[str, str]:
  pairs = zip(names, map(str, said))
  return {name: complaint for name, complaint in pairs if complaint}


def verdicts(without: tuple[str, ...]) -> tuple[str, dict[str, str]]:
  """A tier's layers, and the complaints on all that any tier must stand."""
  with SandboxPool(
    2, ROOMY, without=without, allow_weak_isolation=True
  ) as pool:
    complaints = fakes(pool) | odd(pool) | hostile_tests(pool)
    return pool.description, complaints


def limits(without: tuple[str, ...]) -> dict[str, str]:
  """The complaints on what needs a system call filter."""
  with (
    SandboxPool(2, TIGHT, without=without) as tight,
    SandboxPool(2, PATIENT, without=without) as patient,
  ):
    closed = "landlock" in tight.description
    left_out = () if closed else ANSWERED_BY_FILES
    return hogs(tight, patient, left_out) | oracles(tight)


if __name__ == "__main__":
  layers, complaints = verdicts(tuple(sys.argv[1:]))
  if "seccomp" not in sys.argv[1:]:
    complaints |= limits(tuple(sys.argv[1:]))
  print(json.dumps([layers, complaints]))
