"""Problem files and supervised examples, pure functions of a seed.

Part of the solutions and of the answers is faulty on purpose: a pair trained
on them knows the right way and several wrong ones, which leaves the game room.
"""

import ast
import dataclasses
import functools
import random
from typing import Any

from codea1_jax.prompts import code_messages, test_messages
from codea1_jax.tiny import compositions as comp
from codea1_jax.tiny import handwritten
from codea1_jax.tiny import operations as ops
from codea1_jax.types import Problem, TestCase

# How many problems of each source are in the two files.
TRAIN = {"list": 130, "text": 60, "words": 70, "digits": 60, "range": 40,
         "dict": 60, "pairs": 60}  # fmt: skip
HELDOUT = {"list": 44, "text": 16, "words": 22, "digits": 20, "range": 14,
           "dict": 18, "pairs": 16}  # fmt: skip
_WEIGHTS = (("list", 30), ("text", 11), ("words", 14), ("digits", 12),
            ("range", 9), ("dict", 12), ("pairs", 12))  # fmt: skip


_STRUCTURES = 420  # of a source, at most: known and held out


@dataclasses.dataclass(frozen=True)
class Example:
  """One supervised pair: chat messages and the assistant's answer."""

  messages: tuple[dict[str, str], ...]
  completion: str


@dataclasses.dataclass(frozen=True)
class Split:
  """Structures by source: what may be shown, and what may not."""

  known: dict[str, tuple[comp.Composition, ...]]  # training and corpus
  heldout: dict[str, tuple[comp.Composition, ...]]
  spare: dict[str, tuple[comp.Composition, ...]]  # in neither: not shown too


@functools.cache
def split() -> Split:
  """One split for every seed: no run ever sees a held-out structure."""
  rng = random.Random("structures/0")
  known, held, spare = ({name: [] for name in TRAIN} for _ in range(3))
  candidates = comp.structures()
  rng.shuffle(candidates)
  for structure in candidates:
    name = structure.source.name
    if len(known[name]) + len(held[name]) >= _STRUCTURES:
      spare[name].append(structure)
      continue
    if not comp.interesting(comp.draw_constants(structure, rng), rng):
      continue
    full = len(held[name]) >= HELDOUT[name]
    (known if full else held)[name].append(structure)
  return Split(
    *({k: tuple(v) for k, v in part.items()} for part in (known, held, spare))
  )


def make_problems(seed: int) -> tuple[list[Problem], list[Problem]]:
  """The training and the held-out problems.

  A held-out problem has a structure that is not shown, and computes what no
  shown composition of its source computes, whatever its constants.
  """
  rng = random.Random(f"problems/{seed}")
  train = []
  for source, count in TRAIN.items():
    for structure in split().known[source][:count]:
      composition = comp.draw_constants(structure, rng)
      identifier = f"train/{source}/{len(train):03d}"
      train.append(comp.make_problem(composition, identifier, rng))
  train += [_handwritten_problem(h) for h in handwritten.PROBLEMS]
  return train, _make_heldout(random.Random(f"heldout/{seed}"))


def _make_heldout(rng: random.Random) -> list[Problem]:
  """HELDOUT problems of each source; lists fill up where a source runs dry."""
  probes = {
    s.name: [*s.edges, *(s.draw(rng, "usual") for _ in range(30))]
    for s in ops.SOURCES
  }
  seen = {
    behavior(variant, probes[source])
    for source, structures in split().known.items()
    for structure in structures
    for variant in comp.all_constants(structure)
  }
  problems: list[Problem] = []
  wanted = dict(HELDOUT)
  for source in (*HELDOUT, "list"):
    if source == "list" and problems:
      wanted[source] = sum(HELDOUT.values()) - len(problems)
    for structure in (*split().heldout[source], *split().spare[source]):
      composition = comp.draw_constants(structure, rng)
      acts = behavior(composition, probes[source])
      new = wanted[source] > 0 and acts not in seen
      if new and comp.interesting(composition, rng):
        identifier = f"heldout/{source}/{len(problems):03d}"
        problems.append(comp.make_problem(composition, identifier, rng))
        seen.add(acts)
        wanted[source] -= 1
  return problems


def behavior(composition: comp.Composition, probes) -> str:
  """What a composition answers to the probes: equal texts, equal functions."""
  program = comp.render(composition, "one_line")
  return f"{composition.source.name} " + repr(
    [comp.outcome(program, args) for args in probes]
  )


def _handwritten_problem(item: handwritten.Handwritten) -> Problem:
  golden = []
  for args in item.inputs:
    kind, value = comp.outcome(item.program, args)
    if kind == "value":
      golden.append(TestCase(comp.call_source(args), repr(value)))
  return Problem(
    id=f"train/handwritten/{item.name}",
    question=item.question,
    signature=item.program.split("\n")[0],
    entry_point="solve",
    ground_truth=item.program,
    golden_tests=tuple(golden),
    faulty_programs=tuple(
      f for f in item.faulty if comp.outcome(f, ())[1] != "SyntaxError"
    ),
    family="handwritten",
  )


@dataclasses.dataclass(frozen=True)
class _Task:
  """What both kinds of examples are made from."""

  problem: Problem
  truth: str
  shown: str  # the truth in some style, or a faulty program
  inputs: tuple[tuple[Any, ...], ...]
  source: ops.Source | None = None  # None: written by hand


def _draw_task(rng: random.Random, seed: int, fault_share: float) -> _Task:
  wrong = rng.random() < fault_share
  if rng.random() < 0.1:
    item = rng.choice(handwritten.PROBLEMS)
    shown = rng.choice(item.faulty) if wrong else item.program
    problem = _task_problem(item.question, item.program)
    inputs = tuple(rng.sample(item.inputs, 8))
    return _Task(problem, item.program, shown, inputs)
  name = rng.choices(*zip(*_WEIGHTS))[0]
  composition = comp.draw_constants(rng.choice(split().known[name]), rng)
  truth = comp.render(composition, "one_line")
  source = composition.source
  inputs = [
    rng.choice(source.edges)
    if rng.random() < 0.3
    else source.draw(rng, "usual")
    for _ in range(10)
  ]
  written = composition
  if wrong:
    written = _really_faulty(composition, truth, inputs, rng)
  shown = comp.render(written, rng.choice(comp.STYLES))
  wording = rng.randrange(2)
  problem = _task_problem(comp.question(composition, wording), truth)
  return _Task(problem, truth, shown, tuple(inputs), source)


def _task_problem(question: str, truth: str) -> Problem:
  signature = truth.split("\n")[0]
  return Problem("corpus", question, signature, "solve", truth)


def _really_faulty(composition, truth, inputs, rng):
  """A faulty variant that some edge or drawn input tells from the truth."""
  variants = comp.faulty(composition)
  rng.shuffle(variants)
  tried = [*composition.source.edges, *inputs]
  for variant in variants:
    program = comp.render(variant, "one_line")
    for args in tried:
      if not comp.same(comp.outcome(program, args), comp.outcome(truth, args)):
        return variant
  return composition


def code_example(index: int, seed: int, fault_share: float) -> Example:
  """Question -> program; a `fault_share` of the programs is faulty."""
  rng = random.Random(f"code/{seed}/{index}")
  task = _draw_task(rng, seed, fault_share)
  return Example(
    tuple(code_messages(task.problem, preset="compact")),
    f"```python\n{task.shown}\n```",
  )


def test_example(
  index: int, seed: int, fault_share: float, num_tests: int
) -> Example:
  """Question and code -> asserts; a `fault_share` of the answers is wrong."""
  rng = random.Random(f"test/{seed}/{index}")
  task = _draw_task(rng, seed, 0.5)
  inputs = task.inputs
  if task.source:  # small ones: a small policy can work out their answers
    edges, draw = task.source.edges, task.source.draw
    inputs = [
      rng.choice(edges) if rng.random() < 0.3 else draw(rng, "small")
      for _ in range(24)
    ]
  asserts = []
  for args in inputs:
    kind, value = comp.outcome(task.truth, args)
    call = comp.call_source(args)
    if kind != "value" or any(a.startswith(f"assert {call} ") for a in asserts):
      continue
    if rng.random() < fault_share:
      value = _wrong_answer(task, args, value, rng)
    asserts.append(f"assert {call} == {value!r}")
  messages = test_messages(
    task.problem,
    task.shown,
    num_tests,
    preset="compact",
    visibility="white_box",
  )
  body = "\n".join(asserts[:num_tests])
  return Example(tuple(messages), f"```python\n{body}\n```")


def _wrong_answer(task: _Task, args, right, rng: random.Random):
  """The shown code's answer where it is wrong, else a near miss."""
  kind, value = comp.outcome(task.shown, args)
  literal = isinstance(value, (int, str, list, dict, bool))
  if kind == "value" and literal and value != right and rng.random() < 0.5:
    return ast.literal_eval(repr(value))
  if isinstance(right, bool):
    return not right
  if isinstance(right, int):
    return right + rng.choice((-2, -1, 1, 2))
  if isinstance(right, str):
    return right[1:] if right else "a"
  if isinstance(right, list) and right:
    return right[:-1] if rng.random() < 0.5 else right[::-1] + right[:1]
  if isinstance(right, dict) and right:
    return dict(list(right.items())[1:])
  return [0]
