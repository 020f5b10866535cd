"""Drafts -> problems: the sandbox says which ground truths hold."""

import ast
import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from codea1_jax import parsing
from codea1_jax.datasets.draft import Draft, Found, functions, signature
from codea1_jax.sandbox import Job, JobResult, Limits, SandboxPool
from codea1_jax.types import Problem, Status, TestCase, Verdict

# Tighter than those of configs/, whose runs refuse ground truths that fail.
_RUN_LIMITS = Limits(call_cpu_s=0.2, load_cpu_s=0.5, memory_mb=192)
_MOST_PROGRAMS = 8  # tried for a ground truth
_LONG_CALL = 2_000  # characters
_TRIES = 4  # calls tried for a golden test, at most
_FAILURES = {
  Status.FAIL: "the ground truth fails its own tests",
  Status.ERROR: "the ground truth or its tests raise",
  Status.TIMEOUT: "the ground truth runs out of time in its own tests",
  Status.MEMORY: "the ground truth runs out of memory in its own tests",
  Status.INVALID: "its own tests do not compile, or are too long",
}


@dataclasses.dataclass(frozen=True)
class Sandboxes:
  """One as a training run has it, and one for whole tests, with numpy."""

  run: SandboxPool
  checks: SandboxPool


@dataclasses.dataclass(frozen=True)
class Made:
  """What became of a draft."""

  draft: Draft
  problem: Problem | None = None
  reason: str = ""  # why there is no problem, in words that rows share
  detail: str = ""
  passes: bool | None = None  # the row's own tests; None: nothing was run
  left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def open_sandboxes(workers: int | None = None) -> Iterator[Sandboxes]:
  """Both, for a `with` statement.

  Raises:
    RuntimeError: this machine lacks what the sandbox needs.
  """
  with (
    SandboxPool(workers, _RUN_LIMITS) as run,
    SandboxPool(workers, numpy=True) as checks,
  ):
    yield Sandboxes(run, checks)


def make_problems(
  drafts: Sequence[Draft], sandboxes: Sandboxes, num_tests: int
) -> list[Made]:
  """Problems of drafts, in their order, or why they are none.

  A golden test asks for the very value that the ground truth returns, where the
  row's own test may let close floats or another order pass.

  Args:
    drafts: of any formats.
    sandboxes: what runs them.
    num_tests: the most golden tests a problem: the first ones that are certain.

  Returns:
    One result a draft.

  Raises:
    RuntimeError: the sandbox failed.
  """
  chosen = _choose_programs(drafts, sandboxes.checks)
  places = [k for k, (program, _) in enumerate(chosen) if program]
  jobs = [
    Job(
      chosen[k][0],
      drafts[k].problem.entry_point,
      tuple(found.call for found in _tried(drafts[k], num_tests)),
    )
    for k in places
    if not drafts[k].reason
  ]
  results = iter(sandboxes.run.oracle(jobs))
  made = []
  for draft, (program, made_no) in zip(drafts, chosen):
    if made_no is not None:
      made.append(made_no)
    elif draft.reason:
      made.append(Made(draft, reason=draft.reason, passes=_passes(draft)))
    else:
      made.append(_finish(draft, program, next(results), num_tests))
  return made


def _choose_programs(
  drafts: Sequence[Draft], checks: SandboxPool
) -> list[tuple[str, Made | None]]:
  """The ground truth of each draft, or what became of it without one."""
  chosen: list[tuple[str, Made | None]] = [("", _without(d)) for d in drafts]
  for turn in range(_MOST_PROGRAMS):
    places = [
      k
      for k, draft in enumerate(drafts)
      if not chosen[k][0] and turn < len(draft.programs)
    ]
    programs = {k: drafts[k].programs[turn] for k in places}
    tested = [k for k in places if drafts[k].whole_test]
    jobs = [drafts[k].whole_test(programs[k]) for k in tested]
    verdicts = dict.fromkeys(places, Verdict(Status.PASS))
    verdicts |= {
      k: result.verdict for k, result in zip(tested, checks.check(jobs))
    }
    for k, verdict in verdicts.items():
      if verdict.status is Status.INFRASTRUCTURE:
        raise RuntimeError(f"{drafts[k].where}: the sandbox failed: {verdict}")
      if verdict.passed:
        chosen[k] = programs[k], None
      elif turn == 0:
        reason = _FAILURES[verdict.status]
        made = Made(drafts[k], None, reason, verdict.detail, passes=False)
        chosen[k] = "", made
  return chosen


def _without(draft: Draft) -> Made:
  """What becomes of a draft none of whose programs passes."""
  reason = "no reference solution that defines the function"
  return Made(draft, reason=draft.reason or reason)


def _finish(
  draft: Draft, program: str, result: JobResult, num_tests: int
) -> Made:
  """The problem of a draft whose ground truth is known."""
  verdicts = (result.load, *result.calls)
  if any(verdict.status is Status.INFRASTRUCTURE for verdict in verdicts):
    raise RuntimeError(f"{draft.where}: the sandbox failed: {verdicts}")
  entry_point = draft.problem.entry_point
  error = parsing.code_error(program, entry_point)
  if error or not result.load.passed:
    detail = error or f"{result.load.status} {result.load.detail}"
    reason = "the ground truth does not load as in a run"
    return Made(draft, None, reason, detail, _passes(draft))
  tests, left_out = _golden_tests(draft, result, num_tests)
  if not tests and not draft.may_lack_tests:
    reason = "no test is a call with literals"
    if draft.found:
      reason = "no call of its tests is sure to return a literal"
    detail = ", ".join(f"{n} {what}" for what, n in left_out.items())
    return Made(draft, None, reason, detail, _passes(draft), left_out)
  heading = draft.problem.signature
  if not heading:
    heading = signature(functions(program)[entry_point])
  problem = dataclasses.replace(
    draft.problem,
    signature=heading,
    ground_truth=program,
    golden_tests=tests,
  )
  return Made(draft, problem, passes=_passes(draft), left_out=left_out)


def _passes(draft: Draft) -> bool | None:
  """What is known of a draft whose ground truth has been chosen."""
  return True if draft.whole_test else None


def _tried(draft: Draft, num_tests: int) -> list[Found]:
  """The calls that are run; some more than wanted, for not all are certain."""
  short = (found for found in draft.found if len(found.call) <= _LONG_CALL)
  return list(itertools.islice(short, _TRIES * num_tests))


def _golden_tests(
  draft: Draft, result: JobResult, num_tests: int
) -> tuple[tuple[TestCase, ...], dict[str, int]]:
  """The tests of the calls, and {what was left out: how many}."""
  left_out = collections.Counter(draft.left_out)
  tests: list[TestCase] = []
  tried = _tried(draft, num_tests)
  for found, verdict in zip(tried, result.calls, strict=True):
    text = f"assert {found.call} == {verdict.value}"
    test = parsing.parse_test(text, draft.problem.entry_point)
    if not verdict.passed:
      left_out[_why(verdict)] += 1
    elif test is None:
      left_out["no literal value"] += 1
    elif found.expected and not _same(found.expected, test.expected):
      left_out["another answer than the row's"] += 1
    else:
      tests.append(test)
  rest = len(draft.found) - len(tried) + len(tests[num_tests:])
  left_out[f"long, or beyond the first {num_tests}"] = rest
  return tuple(tests[:num_tests]), {
    what: n for what, n in left_out.items() if n
  }


def _why(verdict: Verdict) -> str:
  """Why the ground truth's call gives no test, in words that rows share."""
  kind = verdict.detail.partition(":")[0]
  if verdict.status is Status.INVALID:
    return kind
  if verdict.status is not Status.ERROR:
    return f"{verdict.status} in a run's limits"
  is_object = "not plain data" in verdict.detail
  return "returning no plain data" if is_object else f"raising {kind}"


def _same(left: str, right: str) -> bool:
  """Whether two literals are equal, as Python compares them."""
  try:
    return bool(ast.literal_eval(left) == ast.literal_eval(right))
  except parsing.PARSER_ERRORS:
    return False
