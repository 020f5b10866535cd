"""Mutation testing: cosmic-ray's mutants, in process, run by our sandbox.

  python -m codea1_jax.mutation FILE.py --tests=TESTS.py [--survivors]

A mutant is a program with one small change. Tests kill it where one of them
fails, runs out of time, or cannot run: a mutant that does not compile is
killed. Mutants are those of every operator of cosmic-ray that takes no
argument, in its order; it writes each to disk and starts a process for it, we
make texts and fork. They are programs nobody has read: only the sandbox runs
them.
"""

import argparse
import dataclasses
import difflib
import functools
import itertools
import pathlib
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from codea1_jax.sandbox import Job, Limits, SandboxPool
from codea1_jax.types import Status

REFERENCE_S = 10.0  # of the published evaluation, whatever the tests take
_LEAST_S, _SLACK = 1.0, 5.0  # strict: seconds, and multiples of the baseline
_MEMORY_MB = 1024
_PROGRAM = """
_code = {{"__name__": "code"}}
exec(compile({program!r}, "code", "exec"), _code)
_tests = dict(_code, __name__="tests")
exec(compile({tests!r}, "tests", "exec"), _tests)

def tested():
  pass
"""


@dataclasses.dataclass(frozen=True)
class Mutant:
  """One change of a program."""

  operator: str
  occurrence: int
  program: str

  def diff(self, original: str) -> str:
    """The change, as patches write it."""
    lines = difflib.unified_diff(
      original.splitlines(),
      self.program.splitlines(),
      "original",
      f"{self.operator} {self.occurrence}",
      lineterm="",
      n=1,
    )
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class MutationResult:
  """Which mutants of one program its tests kill."""

  mutants: tuple[Mutant, ...]
  killed: tuple[bool | None, ...]  # None where the infrastructure failed
  equal_bytecode: tuple[bool, ...]  # mutants that compile to the same code

  def score(self, without_equal: bool = False) -> float | None:
    """Share of the mutants that are killed; None where there are none."""
    known = [
      killed
      for killed, equal in zip(self.killed, self.equal_bytecode)
      if killed is not None and not (without_equal and equal)
    ]
    return sum(known) / len(known) if known else None


def make_mutants(program: str) -> tuple[Mutant, ...]:
  """All mutants of a program, in cosmic-ray's order.

  Raises:
    ValueError: cosmic-ray is not installed, or cannot read the program.
  """
  operators = _operators()
  from cosmic_ray import ast

  try:
    tree = ast.get_ast(program)
    # A copy a mutant: reading it is ten times as fast as parsing again.
    data, nodes = pickle.dumps(tree), list(ast.ast_nodes(tree))
    mutants = []
    for name, operator in operators:
      places = [
        (at, index)
        for at, node in enumerate(nodes)
        for index, _ in enumerate(operator.mutation_positions(node))
      ]
      for occurrence, (at, index) in enumerate(places):
        text = _mutated(pickle.loads(data), operator, at, index)
        mutants.append(Mutant(name, occurrence, text))
  except Exception as error:  # parso's, and of operators on odd syntax
    raise ValueError(f"no mutants can be made: {error!r}") from error
  return tuple(mutants)


def _mutated(tree: Any, operator: Any, at: int, index: int) -> str:
  """The text of a tree whose node number `at` the operator has changed."""
  from cosmic_ray import ast

  node = next(itertools.islice(ast.ast_nodes(tree), at, None))
  parent, changed = node.parent, operator.mutate(node, index)
  if parent is None:
    return changed.get_code()
  children = [changed if child is node else child for child in parent.children]
  parent.children = [child for child in children if child is not None]
  return tree.get_code()


def tested_job(program: str, tests: str) -> Job:
  """A job whose load is the run of the tests on a program; the tests see all
  that the program defines."""
  whole = _PROGRAM.format(program=program, tests=tests)
  return Job(whole, "tested", ())


def run_mutants(
  programs: Sequence[tuple[str, str]],
  *,
  strict: bool = True,
  workers: int | None = None,
  make_job: Callable[[str, str], Job] = tested_job,
  numpy: bool = False,
) -> list[MutationResult | None]:
  """Mutates programs and runs their tests on every mutant.

  Args:
    programs: (program, tests), each a text; tests are asserts, or anything
      else that raises where the program is wrong.
    strict: CPU limits of max(1 s, 5 times what the tests take on the program
      itself); else 10 s, as the published evaluation.
    workers: of the sandbox.
    make_job: the job whose load runs the tests on a program.
    numpy: whether programs find it.

  Returns:
    A result a program; None where the tests do not pass on the program.
  """
  baselines = _run(programs, REFERENCE_S, workers, make_job, numpy)
  groups: dict[float, list[int]] = {}
  for at, (passed, cpu_s) in enumerate(baselines):
    if passed:
      limit = max(_LEAST_S, _SLACK * cpu_s) if strict else REFERENCE_S
      groups.setdefault(round(limit, 1), []).append(at)
  results: list[MutationResult | None] = [None] * len(programs)
  for limit, places in groups.items():
    mutants = {at: make_mutants(programs[at][0]) for at in places}
    jobs = [
      (mutant.program, programs[at][1])
      for at in places
      for mutant in mutants[at]
    ]
    verdicts = iter(_run(jobs, limit, workers, make_job, numpy))
    for at in places:
      killed = [next(verdicts)[0] for _ in mutants[at]]
      results[at] = MutationResult(
        mutants[at],
        tuple(None if passed is None else not passed for passed in killed),
        _equal_bytecode(programs[at][0], mutants[at]),
      )
  return results


def passes(
  programs: Sequence[tuple[str, str]], workers: int | None = None
) -> list[bool]:
  """Whether each program passes its tests; see `run_mutants`."""
  return [passed is True for passed, _ in _run(programs, REFERENCE_S, workers)]


def _run(
  programs: Sequence[tuple[str, str]],
  limit_s: float,
  workers: int | None,
  make_job: Callable[[str, str], Job] = tested_job,
  numpy: bool = False,
) -> list[tuple[bool | None, float]]:
  """Whether the tests pass, None where nobody can say, and CPU seconds."""
  limits = Limits(load_cpu_s=limit_s, memory_mb=_MEMORY_MB)
  found: list[tuple[bool | None, float]] = [(False, 0.0)] * len(programs)
  jobs = {
    at: make_job(program, tests)
    for at, (program, tests) in enumerate(programs)
    if _code(program) is not None
  }
  with SandboxPool(workers, limits, numpy=numpy) as pool:
    for at, result in zip(jobs, pool.run(list(jobs.values()))):
      status = result.load.status
      passed = None if status is Status.INFRASTRUCTURE else result.load.passed
      found[at] = passed, result.cpu_s
  return found


def _code(program: str) -> Any:
  """The compiled program, or None."""
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # mutants compare with "is" and the like
      return compile(program, "code", "exec", dont_inherit=True)
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return None


def _equal_bytecode(
  program: str, mutants: Sequence[Mutant]
) -> tuple[bool, ...]:
  original = _fingerprint(_code(program))
  return tuple(_fingerprint(_code(m.program)) == original for m in mutants)


def _fingerprint(code: Any) -> Any:
  """What a code object does, without where its lines stand."""
  if not hasattr(code, "co_code"):
    # 1, 1.0 and True are equal, but not the same constant.
    return type(code).__name__, repr(code)
  constants = tuple(map(_fingerprint, code.co_consts))
  return code.co_code, constants, code.co_names, code.co_varnames


@functools.cache
def _operators() -> tuple[tuple[str, Any], ...]:
  """(name, operator) of those that take no arguments."""
  try:
    from cosmic_ray import plugins
  except ImportError as error:
    raise ValueError(
      "mutants need cosmic-ray: pip install codea1_jax[mutation]"
    ) from error
  classes = [(n, plugins.get_operator(n)) for n in plugins.operator_names()]
  return tuple((n, make()) for n, make in classes if not make.arguments())


def main(arguments: Sequence[str] | None = None) -> int:
  """The command line; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog="python -m codea1_jax.mutation", description=__doc__.splitlines()[0]
  )
  parser.add_argument("file", help="a program")
  parser.add_argument("--tests", required=True, help="its tests, a program too")
  parser.add_argument(
    "--mode", choices=("strict", "reference"), default="strict"
  )
  parser.add_argument("--survivors", action="store_true", help="show them")
  given = parser.parse_args(arguments)
  try:
    program, tests = (
      pathlib.Path(path).read_text(encoding="utf-8")
      for path in (given.file, given.tests)
    )
    (result,) = run_mutants([(program, tests)], strict=given.mode == "strict")
    if result is None:
      raise ValueError(f"{given.tests}: the tests fail on {given.file} itself")
  except (ValueError, OSError, RuntimeError) as error:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
  if given.survivors:
    for mutant, killed in zip(result.mutants, result.killed):
      if killed is False:
        print(mutant.diff(program), end="\n\n")
  _print_counts(result)
  return 0


def _print_counts(result: MutationResult) -> None:
  killed, total = sum(k is True for k in result.killed), len(result.mutants)
  print(f"{killed} of {total} mutants killed")
  for name, score in (
    ("mutation score", result.score()),
    ("without mutants of equal bytecode", result.score(without_equal=True)),
  ):
    print(f"{name}: {'-' if score is None else f'{100 * score:.2f} %'}")


if __name__ == "__main__":
  sys.exit(main())
