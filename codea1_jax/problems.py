"""The project's own JSONL problem files, and which problems a step takes."""

import dataclasses
import json
import keyword
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codea1_jax import parsing
from codea1_jax.types import Problem, TestCase

_REQUIRED = ("id", "question", "signature", "entry_point", "ground_truth")
_OPTIONAL = ("golden_tests", "faulty_programs", "family")
FIELDS = _REQUIRED + _OPTIONAL
_SUBSET = 0x5B5E7  # apart from the epochs of the same seed


def load_problems(path: str | pathlib.Path) -> tuple[Problem, ...]:
  """Problems of a JSONL file, one object a line.

  Args:
    path: the file. Fields: id, question, signature, entry_point and
      ground_truth (strings, required); golden_tests ("assert f(..) == .."
      strings), faulty_programs (sources) and family (a string).

  Returns:
    The problems in the order of the file; golden tests are ast-normalized.

  Raises:
    ValueError: "file:row: field 'x': problem" for anything malformed.
  """
  path = pathlib.Path(path)
  try:
    text = path.read_text(encoding="utf-8")
  except (OSError, UnicodeDecodeError) as e:
    raise ValueError(f"{path}: cannot be read: {e}") from e
  problems: list[Problem] = []
  rows: dict[str, int] = {}
  # Not splitlines(): U+2028 may stand inside a JSON string.
  for row, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
    if not text:
      raise ValueError(f"{path}: empty file")
    where = f"{path}:{row}"
    problem = from_fields(where, _fields(where, line))
    if problem.id in rows:
      raise ValueError(
        f"{path}:{row}: field 'id': {problem.id!r} is already in row"
        f" {rows[problem.id]}"
      )
    rows[problem.id] = row
    problems.append(problem)
  return tuple(problems)


def save_problems(
  path: str | pathlib.Path, problems: Sequence[Problem]
) -> None:
  """Writes problems so that `load_problems` returns them unchanged."""
  text = "".join(map(to_line, problems))
  pathlib.Path(path).write_text(text, encoding="utf-8")


def to_line(problem: Problem) -> str:
  """The line that a file has for a problem."""
  fields = dataclasses.asdict(problem)
  fields["golden_tests"] = [test.source for test in problem.golden_tests]
  return json.dumps(fields) + "\n"


def subset(
  problems: Sequence[Problem], size: int, seed: int
) -> tuple[Problem, ...]:
  """`size` of the problems in their order, all where there are fewer.

  A larger subset of the same seed holds the smaller one.
  """
  order = np.random.default_rng((seed, _SUBSET)).permutation(len(problems))
  return tuple(problems[place] for place in sorted(order[:size]))


def batch(
  problems: Sequence[Problem], step: int, size: int, seed: int
) -> tuple[Problem, ...]:
  """The problems of one step: a pure function of step and seed.

  Every epoch is a fresh permutation, and batches run across epoch borders:
  step s takes places s * size to (s + 1) * size of the endless sequence. No
  problem repeats inside an epoch; a batch over a border may hold one twice.

  Args:
    problems: all of them.
    step: counted from 0.
    size: Q, problems a step.
    seed: not negative.

  Returns:
    `size` problems.

  Raises:
    ValueError: where size is not in 1..len(problems), or step or seed < 0.
  """
  check_batch(len(problems), step, size, seed)
  places = range(step * size, (step + 1) * size)
  orders = {
    epoch: np.random.default_rng((seed, epoch)).permutation(len(problems))
    for epoch in {place // len(problems) for place in places}
  }
  return tuple(
    problems[orders[place // len(problems)][place % len(problems)]]
    for place in places
  )


def check_batch(num_problems: int, step: int, size: int, seed: int) -> None:
  """ValueError where no step can take `size` of the problems."""
  if not 1 <= size <= num_problems:
    raise ValueError(f"batch size {size} is not in 1..{num_problems} problems")
  if step < 0 or seed < 0:
    raise ValueError(f"step {step} and seed {seed} must not be negative")


def from_fields(where: str, fields: Mapping[str, Any]) -> Problem:
  """One row -> Problem; `where` opens the ValueError of a malformed one."""
  for name in fields:
    if name not in FIELDS:
      raise ValueError(f"{where}: field {name!r}: unknown")
  for name in _REQUIRED:
    if name not in fields:
      raise ValueError(f"{where}: field {name!r}: missing")
  for name, value in fields.items():
    _check_type(where, name, value)
  entry_point = fields["entry_point"]
  if not entry_point.isidentifier() or keyword.iskeyword(entry_point):
    raise ValueError(
      f"{where}: field 'entry_point': {entry_point!r} is not a name"
    )
  programs = {"ground_truth": fields["ground_truth"]}
  for i, source in enumerate(fields.get("faulty_programs", ())):
    programs[f"faulty_programs[{i}]"] = source
  for name, source in programs.items():
    if error := parsing.code_error(source, entry_point):
      raise ValueError(f"{where}: field {name!r}: {error}")
  return Problem(
    **{name: fields[name] for name in _REQUIRED},
    golden_tests=_golden_tests(where, fields, entry_point),
    faulty_programs=tuple(fields.get("faulty_programs", ())),
    family=fields.get("family", ""),
  )


def _fields(where: str, line: str) -> dict[str, Any]:
  """The object of one row; every key there once."""
  try:
    pairs = json.loads(line, object_pairs_hook=tuple)
  except (ValueError, RecursionError) as e:
    raise ValueError(f"{where}: invalid JSON: {e}") from e
  # The hook turns objects into tuples of pairs; lists stay lists.
  if not isinstance(pairs, tuple):
    raise ValueError(f"{where}: not an object: {line[:40]!r}")
  fields: dict[str, Any] = {}
  for name, value in pairs:
    if name in fields:
      raise ValueError(f"{where}: field {name!r}: given twice")
    fields[name] = value
  return fields


def _check_type(where: str, name: str, value: Any) -> None:
  """ValueError where a field is not of its type, or a string is empty."""
  if name in ("golden_tests", "faulty_programs"):
    if not isinstance(value, list):
      found = type(value).__name__
      raise ValueError(f"{where}: field {name!r}: must be a list, is {found}")
    for i, item in enumerate(value):
      _check_string(where, f"{name}[{i}]", item)
  else:
    _check_string(where, name, value, may_be_empty=name == "family")


def _check_string(
  where: str, name: str, value: Any, may_be_empty: bool = False
) -> None:
  """ValueError where `value` is not a string, or an empty one."""
  if not isinstance(value, str):
    found = type(value).__name__
    raise ValueError(f"{where}: field {name!r}: must be a string, is {found}")
  if not value.strip() and not may_be_empty:
    raise ValueError(f"{where}: field {name!r}: empty")


def _golden_tests(
  where: str, fields: Mapping[str, Any], entry_point: str
) -> tuple[TestCase, ...]:
  """The parsed golden tests of one row."""
  tests = []
  for i, source in enumerate(fields.get("golden_tests", ())):
    test = parsing.parse_test(source, entry_point)
    if test is None:
      raise ValueError(
        f"{where}: field 'golden_tests[{i}]': not a test of"
        f" {entry_point!r}: {source[:80]!r}"
      )
    tests.append(test)
  return tuple(tests)
