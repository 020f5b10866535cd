"""Verdicts on tests -> the benchmark's table."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from codea1_jax import scores
from codea1_jax.types import Status
from codea1_jax.ult import probes, verdicts
from codea1_jax.ult.rows import Function

# Statements that the published program puts above every function; its line
# coverage counts them.
_IMPORTED = 14


def table(
  functions: Sequence[Function],
  found: Sequence[Mapping[str, Any]],
  mode: str,
  sample: set[str] | None = None,
) -> dict[str, Any]:
  """Counts and scores of one reading, as JSON data.

  Args:
    functions: [P].
    found: [P] what `verdicts.judge` says in this mode, with `mutants`, what
      `verdicts.mutate` says of those in the sample.
    mode: of verdicts.MODES.
    sample: task ids that mut@k is of; None for all.

  Returns:
    Counts; pass@k, line@k and branch@k (micro-averaged coverage), mut@k, in
    strict mode also mut@k without mutants of equal bytecode, and Mul; each
    with its interval and the number of functions behind it.
  """
  values: dict[str, scores.Score | None] = {}
  passes = {k: _passes(found, mode, k) for k in verdicts.KS}
  for k in verdicts.KS:
    values[f"pass@{k}"] = scores.ratio_score(passes[k])
  probed = [probes.probed(verdicts.program(f, mode), f.name) for f in functions]
  for name, sign in (("line", 1), ("branch", -1)):
    for k in verdicts.KS:
      pairs = _reached(probed, found, mode, k, sign)
      values[f"{name}@{k}"] = scores.ratio_score(pairs)
  chosen = [sample is None or f.task_id in sample for f in functions]
  mutants = {
    (k, without_equal): _kill_rates(found, chosen, mode, k, without_equal)
    for k in verdicts.KS
    for without_equal in (False, True)
  }
  for k in verdicts.KS:
    values[f"mut@{k}"] = scores.ratio_score(mutants[k, False])
  for k in verdicts.KS if mode == "strict" else ():
    values[f"mut@{k} unequal"] = scores.ratio_score(mutants[k, True])
  most = verdicts.KS[-1]
  values["Mul"] = scores.ratio_score(passes[most], mutants[most, False])
  passed, asked = map(sum, passes[most])
  return {
    "functions": len(functions),
    "tests": int(asked),
    "passed": int(passed),
    "no test": sum(_lacking(v, mode) for v in found),
    "in the sample": sum(chosen),
    "mutants": _mutants(found, most),
  } | {
    name: dataclasses.asdict(score) if score else None
    for name, score in values.items()
  }


def _lacking(verdict: Mapping[str, Any], mode: str) -> int:
  """Answers that hold no test by the mode's rules."""
  if mode == "strict":
    return verdict["tests"].count(None)
  return sum(test.endswith("assert 1 == 0") for test in verdict["tests"])


def _passes(found, mode: str, k: int) -> tuple[list[int], list[int]]:
  """Tests that pass, and tests whose verdict is known, of the first k."""
  passed, known = [], []
  for verdict in found:
    if mode == "strict":
      statuses = verdict["statuses"][:k]
      passed.append(statuses.count(Status.PASS))
      known.append(k - statuses.count(Status.INFRASTRUCTURE))
    else:
      file = verdict["files"][str(k)]
      passed.append(file["passed"])
      known.append(0 if file["status"] == Status.INFRASTRUCTURE else k)
  return passed, known


def _reached(probed, found, mode: str, k: int, sign: int):
  """Lines (sign 1) or branches (-1) that ran, and those that there are.

  strict: of the function itself, by its passing tests. reference: of the whole
  program with its imports, by all tests of the file; a file that did not end
  counts for nothing.
  """
  ran, there = [], []
  for one, verdict in zip(probed, found):
    numbers, hits = one.inside, set()
    more = 0
    if mode == "strict":
      for status, seen in zip(verdict["statuses"][:k], verdict["hits"]):
        hits.update(seen if status == Status.PASS else ())
    else:
      seen = verdict["files"][str(k)]["hits"]
      numbers = frozenset() if seen is None else one.everything
      more = _IMPORTED if sign == 1 and seen is not None else 0
      hits.update(seen or ())
    numbers = {n for n in numbers if n * sign > 0}
    ran.append(len(numbers & hits) + more)
    there.append(len(numbers) + more)
  return ran, there


def _kill_rates(found, chosen, mode: str, k: int, without_equal: bool):
  """Kill rates of functions that count, and 1 for each of these; else 0, 0."""
  rates, counted = [], []
  for verdict, is_chosen in zip(found, chosen):
    mutants = verdict.get("mutants", {}).get(str(k)) if is_chosen else None
    killed = []
    for mark, equal in (
      zip(mutants["killed"], mutants["equal"]) if mutants else ()
    ):
      if mark != "?" and not (without_equal and equal == "1"):
        killed.append(mark == "1")
    # The published program gives a function without mutants full marks.
    full = mutants is not None and mode == "reference" and not killed
    rates.append(sum(killed) / len(killed) if killed else float(full))
    counted.append(int(bool(killed) or full))
  return rates, counted


def _mutants(found, k: int) -> int:
  """How many mutants mut@k is of."""
  found = [v.get("mutants", {}).get(str(k)) for v in found]
  return sum(len(one["killed"]) for one in found if one)
