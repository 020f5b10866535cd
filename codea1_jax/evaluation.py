"""Held-out scores of both policies, by golden tests and faulty programs."""

from collections.abc import Sequence

from codea1_jax import parsing, verification
from codea1_jax.sandbox import Job, SandboxPool
from codea1_jax.types import Completion, Problem, Status


def golden_pass(
  problems: Sequence[Problem],
  completions: Sequence[Sequence[Completion]],
  pool: SandboxPool,
) -> list[list[float | None]]:
  """Share of golden tests that each code passes.

  Args:
    problems: [P] with golden tests.
    completions: [P][n] of the Code LLM.
    pool: an open sandbox.

  Returns:
    [P][n] in [0, 1]; None where the infrastructure failed.
  """
  jobs, shares = [], [[0.0] * len(row) for row in completions]
  places = []
  for p, (problem, row) in enumerate(zip(problems, completions)):
    for n, completion in enumerate(row):
      code = parsing.extract_code(completion.text, problem.entry_point)
      if not code.error:
        places.append((p, n))
        jobs.append(golden_job(problem, code.source))
  for (p, n), result in zip(places, pool.run(jobs)):
    statuses = [result.load.status, *(v.status for v in result.calls)]
    if Status.INFRASTRUCTURE in statuses:
      shares[p][n] = None
    else:
      shares[p][n] = sum(v.passed for v in result.calls) / len(result.calls)
  return shares


def golden_job(problem: Problem, program: str) -> Job:
  return Job(
    program,
    problem.entry_point,
    tuple(t.call for t in problem.golden_tests),
    tuple(t.expected for t in problem.golden_tests),
  )


def pass_rate(shares: Sequence[Sequence[float | None]]) -> float:
  """Share of codes that pass all golden tests."""
  known = [s for row in shares for s in row if s is not None]
  return sum(s == 1.0 for s in known) / max(len(known), 1)


def attack_targets(
  problems: Sequence[Problem], each: int
) -> list[tuple[Problem, str]]:
  """The fixed faulty programs that the Test LLM has to break."""
  return [(p, f) for p in problems for f in p.faulty_programs[:each]]


def attack_scores(
  targets: Sequence[tuple[Problem, str]],
  completions: Sequence[Sequence[Completion]],
  num_tests: int,
  pool: SandboxPool,
) -> dict[str, float]:
  """How good suites against known faulty programs are.

  Args:
    targets: [P] problems with one faulty program each.
    completions: [P][n] of the Test LLM, n suites a target.
    num_tests: K.
    pool: an open sandbox.

  Returns:
    `validity`: tests with an accepted, new input and the right answer, of the
    K that were asked for. `kill_rate`: suites of which such a test fails the
    program. `attack_rate`: suites that have a failing input, whatever answer
    was predicted (the ground truth's counts, as in training).
  """
  problems = [problem for problem, _ in targets]
  codes = [
    [parsing.extract_code(program, problem.entry_point)]
    for problem, program in targets
  ]
  suites = [
    [
      [
        (parsing.parse_suite(c.text, problem.entry_point, num_tests), 0.0)
        for c in row
      ]
    ]
    for problem, row in zip(problems, completions)
  ]
  outcomes = verification.verify(
    problems, codes, suites, [()] * len(problems), pool
  )
  valid = killed = attacked = total = 0
  for row in outcomes:
    for suite in row[0].suites:
      if suite.masked or row[0].masked:
        continue
      judged = list(zip(suite.correct, suite.verdicts))
      total += 1
      valid += sum(right and v is not None for right, v in judged)
      attacked += any(v is not None and not v.passed for _, v in judged)
      killed += any(
        right and v is not None and not v.passed for right, v in judged
      )
  total = max(total, 1)
  return {
    "validity": valid / (total * num_tests),
    "kill_rate": killed / total,
    "attack_rate": attacked / total,
  }
