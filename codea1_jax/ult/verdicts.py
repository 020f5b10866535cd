"""Which tests pass, what they reach, and which mutants they kill.

`strict` judges every test by itself, with the names of the whole program.
`reference` is the published program's: the first k tests are one file, which
has 30 s, and see of the program what `import *` gives.
"""

import ast
import functools
import marshal
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from codea1_jax import mutation
from codea1_jax.datasets import whole_test
from codea1_jax.sandbox import Job, JobResult, Limits, SandboxPool
from codea1_jax.types import Status
from codea1_jax.ult import formats, probes
from codea1_jax.ult.rows import Function

MODES = ("strict", "reference")
KS = (1, 2, 5)
_FILE_S = 30.0
_MEMORY_MB = 1024


def open_pool(workers: int | None = None) -> SandboxPool:
  """A sandbox with the limits of a test file."""
  limits = Limits(load_cpu_s=_FILE_S, memory_mb=_MEMORY_MB)
  return SandboxPool(workers, limits, numpy=True)


def program(function: Function, mode: str) -> str:
  """The program under test; the published program renames its test_*."""
  if mode == "strict":
    return function.code
  lines, count = [], 0
  for line in function.code.split("\n"):
    found = re.match(r"(\s*def\s+)test_(.*)", line)
    count += found is not None
    lines.append(f"{found[1]}test_{count}_{found[2]}" if found else line)
  return "\n".join(lines)


def tests(
  function: Function, texts: Sequence[str], mode: str
) -> list[str | None]:
  """The test of each answer, None where it has none."""
  if mode == "strict":
    return [formats.complete(text, function.name) for text in texts]
  # Its name of the function: the first that the code defines.
  found = re.search(r"^def\s+([a-zA-Z_]\w*)\s*\(", function.code, re.MULTILINE)
  name = found[1] if found else function.name
  return [formats.published(text, name, i) for i, text in enumerate(texts)]


def judge(
  functions: Sequence[Function],
  texts: Sequence[Sequence[str]],
  modes: Sequence[str],
  pool: SandboxPool,
) -> list[dict[str, Any]]:
  """Runs the tests of answers.

  Args:
    functions: [P].
    texts: [P][5] of a model.
    modes: of MODES.
    pool: see `open_pool`.

  Returns:
    [P] by mode, as JSON data. strict: `tests` and their `statuses` and `hits`,
    the probes that each reached. reference: `tests`, and by k `passed`, the
    tests of the file that pass; `all`, whether all do; its `status` and `hits`.
  """
  found: list[dict[str, Any]] = [{} for _ in functions]
  for mode in modes:
    jobs, places = [], []
    for at, (function, said) in enumerate(zip(functions, texts)):
      kept = tests(function, said, mode)
      found[at][mode] = {"tests": kept}
      for files in _files(kept, mode):
        places.append(at)
        jobs.append(_report_job(function, files, mode))
    results: list[list[Any]] = [[] for _ in functions]
    for at, result in zip(places, pool.run(jobs)):
      results[at].append(_report(result))
    for at, reports in enumerate(results):
      found[at][mode] |= _SUMMARIES[mode](found[at][mode]["tests"], reports)
  return found


def _files(kept: Sequence[str | None], mode: str) -> list[list[str]]:
  """The files of tests that run, each in a process of its own."""
  if mode == "strict":
    return [[test] for test in kept if test is not None]
  return [["\n\n".join(kept[:k])] for k in KS]


def _report_job(function: Function, files: Sequence[str], mode: str) -> Job:
  probed = probes.probed(program(function, mode), function.name)
  whole = (
    f"{_runner()}\n_found = report({probed.program!r}, {files!r},"
    f" {mode == 'reference'})\ndef found(): return _found\n"
  )
  return Job(whole, "found", ("found()",))


def check_job(text: str, files: str, mode: str) -> Job:
  """A job whose load is the run of files of tests on a program.

  Args:
    text: the program.
    files: source of a list of texts.
    mode: of MODES.
  """
  run = f"check({text!r}, {files}, {mode == 'reference'})"
  return Job(f"{_runner()}\n{run}\ndef tested(): pass\n", "tested", ())


@functools.cache
def _runner() -> str:
  """The runner's program, compiled once for the Python that all of us are."""
  path = pathlib.Path(__file__).with_name("runner.py")
  runner = whole_test.text("pytest_runner.py")
  runner = _compiled(f"{runner}\n{path.read_text(encoding='utf-8')}", "runner")
  pytest = _compiled(whole_test.text("pytest_stand_in.py"), "pytest")
  return (
    f"import marshal\n_PYTEST = marshal.loads({pytest!r})\n"
    f"exec(marshal.loads({runner!r}))"
  )


def _compiled(text: str, name: str) -> bytes:
  return marshal.dumps(compile(text, f"<{name}>", "exec", dont_inherit=True))


def _report(result: JobResult) -> dict[str, Any]:
  """What a job of one file says."""
  status = result.load.status
  if status is Status.PASS:
    (call,) = result.calls
    status = call.status
  if status is not Status.PASS:
    return {"status": str(status), "passed": 0, "failed": 1, "hits": None}
  ((loads, passed, failed, hits),) = ast.literal_eval(call.value)
  status = Status.FAIL if failed else Status.PASS
  return {
    "status": str(status if loads else Status.ERROR),
    "passed": passed,
    "failed": failed,
    "hits": hits,
  }


def _strict_summary(kept, reports) -> dict[str, Any]:
  left = iter(reports)
  nothing = {"status": str(Status.INVALID), "hits": None}
  each = [nothing if test is None else next(left) for test in kept]
  return {
    "statuses": [one["status"] for one in each],
    "hits": [one["hits"] for one in each],
  }


def _reference_summary(kept, reports) -> dict[str, Any]:
  return {
    "files": {
      str(k): {
        "status": one["status"],
        "passed": one["passed"],
        "all": one["passed"] > 0 and not one["failed"],
        "hits": one["hits"],
      }
      for k, one in zip(KS, reports)
    }
  }


_SUMMARIES = {"strict": _strict_summary, "reference": _reference_summary}


def all_pass(verdict: Mapping[str, Any], mode: str, k: int) -> bool:
  """Whether the first k tests all pass."""
  if mode == "reference":
    return verdict["files"][str(k)]["all"]
  return all(status == Status.PASS for status in verdict["statuses"][:k])


def mutate(
  functions: Sequence[Function],
  verdicts: Sequence[Mapping[str, Any]],
  mode: str,
  workers: int | None = None,
) -> list[dict[str, Any]]:
  """Runs mutants of functions whose first k tests all pass, for every k.

  Returns:
    [P] by k, where they do: `killed` and `equal`, a character a mutant: "1"
    for one that is killed, or of equal bytecode; "0"; "?" where nobody knows.
  """
  places, programs = [], []
  for at, (function, verdict) in enumerate(zip(functions, verdicts)):
    for k in KS:
      if all_pass(verdict, mode, k):
        files = verdict["tests"][:k]
        if mode == "reference":
          files = ["\n\n".join(files)]
        places.append((at, str(k)))
        programs.append((program(function, mode), repr(files)))
  results = mutation.run_mutants(
    programs,
    strict=mode == "strict",
    workers=workers,
    numpy=any(
      re.search(r"\b(np|numpy)\b", text) for p in programs for text in p
    ),
    make_job=functools.partial(check_job, mode=mode),
  )
  found: list[dict[str, Any]] = [{} for _ in functions]
  for (at, k), result in zip(places, results):
    if result is not None:
      marks = ["?" if x is None else str(int(x)) for x in result.killed]
      equal = [str(int(x)) for x in result.equal_bytecode]
      found[at][k] = {"killed": "".join(marks), "equal": "".join(equal)}
  return found
