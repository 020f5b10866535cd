"""Real small programs for `benchmark_sandbox`, with as many calls as wanted.

They are the shipped problems' ground truths and faulty programs. The golden
tests are 14 a problem, so more calls are made from them: the same arguments
with other numbers and in another order. What a call must return is computed
here, by the ground truth, which is our own.
"""

import ast
import dataclasses
import itertools
import json
import random
from typing import Any

from codea1_jax.tiny import DATA


@dataclasses.dataclass(frozen=True)
class Program:
  """A program and the asserts on it."""

  source: str
  entry_point: str
  calls: tuple[str, ...]
  expected: tuple[str, ...]

  @property
  def asserts(self) -> list[str]:
    return [f"assert {c} == {e}" for c, e in zip(self.calls, self.expected)]


def make_programs(count: int, num_calls: int, seed: int) -> list[Program]:
  """Ground truths, each on its own calls; hardly a call is there twice."""
  rng = random.Random(seed)
  problems = _problems()
  rng.shuffle(problems)
  return [
    _program(problem, problem["ground_truth"], num_calls, rng)
    for problem in itertools.islice(itertools.cycle(problems), count)
  ]


def make_step(
  questions: int, codes: int, num_calls: int, seed: int
) -> tuple[list[Program], list[Program]]:
  """The programs of a training step, and the ground truths of its questions.

  Of a question's codes every other one is right, the others are faulty; each
  code has its own calls, as it has its own test suites.
  """
  rng = random.Random(seed)
  step, truths = [], []
  problems = itertools.cycle(_problems())
  for problem in itertools.islice(problems, questions):
    truth, faulty = problem["ground_truth"], problem["faulty_programs"]
    truths.append(_program(problem, truth, num_calls, rng))
    for k in range(codes):
      source = faulty[k // 2 % len(faulty)] if faulty and k % 2 else truth
      step.append(_program(problem, source, num_calls, rng))
  return step, truths


def _problems() -> list[dict[str, Any]]:
  text = (DATA / "train.jsonl").read_text(encoding="utf-8")
  return [json.loads(line) for line in text.splitlines()]


def _program(
  problem: dict[str, Any], source: str, num_calls: int, rng: random.Random
) -> Program:
  """`source` with calls that the problem's ground truth answers."""
  name = problem["entry_point"]
  namespace: dict[str, Any] = {}
  exec(problem["ground_truth"], namespace)
  golden = [_arguments(test) for test in problem["golden_tests"]]
  calls: dict[str, str] = {}
  for turn in itertools.count():
    arguments = golden[turn % len(golden)]
    if turn >= len(golden):
      arguments = [_varied(value, rng) for value in arguments]
    call = f"{name}({', '.join(map(repr, arguments))})"
    if call in calls:
      continue
    try:
      calls[call] = repr(namespace[name](*arguments))
    except Exception:  # outside of what the program was written for
      continue
    if len(calls) == num_calls:
      return Program(source, name, tuple(calls), tuple(calls.values()))


def _arguments(test: str) -> list[Any]:
  comparison = ast.parse(test).body[0].test
  return [ast.literal_eval(node) for node in comparison.left.args]


def _varied(value: Any, rng: random.Random) -> Any:
  """The same kind of value, a little different."""
  if type(value) is int:
    return value + rng.randrange(60)
  if isinstance(value, str):
    extra = rng.choice("abcdefgh ") if value else ""
    return "".join(rng.sample(value + extra, len(value) + len(extra)))
  if isinstance(value, list):
    items = [_varied(item, rng) for item in value]
    return rng.sample(items, len(items))
  if isinstance(value, dict):
    return {key: _varied(item, rng) for key, item in value.items()}
  return value
