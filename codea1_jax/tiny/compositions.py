"""Compositions of building blocks: questions, right and faulty programs.

A composition's *structure* is which blocks it uses, whatever their constants
and wording. Held-out problems have structures that no training problem and no
supervised example has.
"""

import ast
import dataclasses
import functools
import itertools
import random
from typing import Any

from codea1_jax.tiny import operations as ops
from codea1_jax.types import Problem, TestCase

STYLES = ("one_line", "steps", "loop")
_TEMPLATES = (
  "Of the {noun}, keep those that are {keep}, {change} each, and return"
  " {finish}.",
  "Return {finish} after you {change} each of the {noun} that are {keep}.",
)


@dataclasses.dataclass(frozen=True)
class Composition:
  """Indices into the blocks' forms say which, if any, is written wrong."""

  source: ops.Source
  keep: ops.Block | None
  change: ops.Block | None
  finish: ops.Block
  constants: tuple[int, int, int] = (0, 0, 0)
  faults: tuple[int, int, int, int] = (0, 0, 0, 0)  # source, keep, change, ...

  @property
  def structure(self) -> str:
    names = (b.name if b else "-" for b in (self.keep, self.change))
    return "/".join((self.source.name, *names, self.finish.name))

  @property
  def blocks(self) -> tuple[ops.Block | None, ...]:
    return self.keep, self.change, self.finish


def structures() -> list[Composition]:
  """Every sensible combination of blocks, constants not drawn yet."""
  out = []
  for source in ops.SOURCES:
    for keep in (None, *source.filters):
      for change in (None, *source.maps):
        element = change.gives if change else source.element
        for finish in ops.FINISHERS:
          plain = finish.name in ("list", "join")
          stages = (keep is not None) + (change is not None) + (not plain)
          if element in finish.takes.split() and stages >= 2:
            out.append(Composition(source, keep, change, finish))
  return out


def draw_constants(composition: Composition, rng: random.Random):
  """The same structure with constants drawn where its blocks take one."""
  drawn = tuple(
    rng.choice(b.constants) if b and b.constants else 0
    for b in composition.blocks
  )
  return dataclasses.replace(composition, constants=drawn)


def all_constants(composition: Composition) -> list[Composition]:
  """The same structure with every choice of constants."""
  choices = [(b.constants if b else ()) or (0,) for b in composition.blocks]
  return [
    dataclasses.replace(composition, constants=constants)
    for constants in itertools.product(*choices)
  ]


def question(composition: Composition, wording: int) -> str:
  """The task in English; `wording` picks the sentence."""
  keep, change, finish = (
    b.phrase.format(c=c) if b else ""
    for b, c in zip(composition.blocks, composition.constants)
  )
  template = _TEMPLATES[wording % len(_TEMPLATES) if change else 0]
  text = template.format(
    noun=composition.source.noun, keep=keep, change=change, finish=finish
  )
  text = text.replace("that are with", "with").replace(
    "that are containing", "containing"
  )
  text = text.replace("that are starting", "starting").replace(
    "that are of ", "of "
  )
  if not keep:
    text = text.replace(" keep those that are ,", "").replace(
      " that are .", "."
    )
  if not change:
    text = text.replace(",  each, and return", ", and return")
  return text.replace("  ", " ")


def render(composition: Composition, style: str) -> str:
  """Python source of the composition, with its faults, in a style."""
  source = composition.source
  forms = [
    b.forms[fault] if b else None
    for b, fault in zip(composition.blocks, composition.faults[1:])
  ]
  codes = [
    f.code.replace("{c}", str(c)) if f else ""
    for f, c in zip(forms, composition.constants)
  ]
  iterable = source.iterables[composition.faults[0]]
  keep, change, finish = codes
  variable = source.variable
  element = change or (f"({variable})" if "," in variable else variable)
  lines = [source.signature]
  for form in forms:
    if form and form.helper:
      lines += ["    " + line for line in form.helper.split("\n")]
  condition = f" if {keep}" if keep else ""
  comprehension = f"[{element} for {variable} in {iterable}{condition}]"
  if style == "one_line" and finish.count("{L}") == 1:
    lines.append("    return " + finish.replace("{L}", comprehension))
  elif style == "loop":
    lines += ["    ys = []", f"    for {variable} in {iterable}:"]
    indent = "        "
    if keep:
      lines.append(f"{indent}if {keep}:")
      indent += "    "
    lines.append(f"{indent}ys.append({element})")
    lines.append("    return " + finish.replace("{L}", "ys"))
  else:
    lines.append(f"    ys = {comprehension}")
    lines.append("    return " + finish.replace("{L}", "ys"))
  return "\n".join(lines)


def faulty(composition: Composition) -> list[Composition]:
  """All compositions that get one block of it wrong, or leave one out."""
  out = []
  options = [len(composition.source.iterables)]
  options += [len(b.forms) if b else 1 for b in composition.blocks]
  for place, count in enumerate(options):
    for form in range(1, count):
      faults = tuple(form if i == place else 0 for i in range(4))
      out.append(dataclasses.replace(composition, faults=faults))
  if composition.keep:
    out.append(dataclasses.replace(composition, keep=None))
  if composition.change and composition.change.gives == (
    composition.source.element
  ):
    out.append(dataclasses.replace(composition, change=None))
  return out


@functools.lru_cache(maxsize=65536)
def compiled(program: str):
  """The `solve` of one of our own programs; only the generator calls it."""
  namespace: dict[str, Any] = {}
  exec(program, namespace)
  return namespace["solve"]


def outcome(program: str, args: tuple[Any, ...]) -> tuple[str, Any]:
  """("value", result) or ("error", its type) of one call, in this process."""
  try:
    return "value", compiled(program)(*ast.literal_eval(repr(args)))
  except Exception as error:
    return "error", type(error).__name__


def same(left: tuple[str, Any], right: tuple[str, Any]) -> bool:
  return left[0] == right[0] and repr(left[1]) == repr(right[1])


def _inputs(source: ops.Source, rng: random.Random, count: int):
  """Edge cases first, then small and large random inputs, all distinct."""
  found = {repr(args): args for args in source.edges}
  for _ in range(4 * count):  # some sources have few distinct inputs
    if len(found) >= count:
      break
    args = source.draw(rng, "large" if rng.random() < 0.3 else "usual")
    found.setdefault(repr(args), args)
  return list(found.values())


def call_source(args: tuple[Any, ...]) -> str:
  return f"solve({', '.join(map(repr, args))})"


def make_problem(
  composition: Composition, identifier: str, rng: random.Random
) -> Problem:
  """A problem whose golden tests kill each faulty variant that can be killed.

  Args:
    composition: without faults, constants drawn.
    identifier: the problem's id.
    rng: drives inputs and wording.

  Returns:
    The problem with 14 or more golden tests, the edge cases among them.
  """
  truth = render(composition, "one_line")
  pool = [
    (args, outcome(truth, args))
    for args in _inputs(composition.source, rng, 60)
  ]
  pool = [(args, result) for args, result in pool if result[0] == "value"]
  edges = len(composition.source.edges)
  chosen, rest = pool[: max(14, edges + 4)], pool[max(14, edges + 4) :]
  wrong = []
  for variant in faulty(composition):
    program = render(variant, rng.choice(STYLES))
    killers = [p for p in pool if not same(outcome(program, p[0]), p[1])]
    if not killers:
      continue  # the same function written otherwise
    if not any(p in chosen for p in killers):
      chosen.append(next(p for p in rest if p in killers))
    wrong.append(program)
  golden = tuple(TestCase(call_source(a), repr(r[1])) for a, r in chosen)
  return Problem(
    id=identifier,
    question=question(composition, rng.randrange(len(_TEMPLATES))),
    signature=composition.source.signature,
    entry_point="solve",
    ground_truth=truth,
    golden_tests=golden,
    faulty_programs=tuple(rng.sample(wrong, min(4, len(wrong)))),
    family=composition.structure,
  )


def interesting(composition: Composition, rng: random.Random) -> bool:
  """Whether answers vary and each stage matters: else it is no problem."""
  drawn = [composition.source.draw(rng, "usual") for _ in range(30)]
  drawn += composition.source.edges

  def results(c: Composition):
    return [outcome(render(c, "one_line"), args) for args in drawn]

  truth = results(composition)
  if any(kind != "value" for kind, _ in truth[:30]):
    return False
  if len({repr(value) for _, value in truth}) < 6:
    return False
  shorter = [
    dataclasses.replace(composition, **{stage: None})
    for stage in ("keep", "change")
    if getattr(composition, stage)
  ]
  return all(repr(results(c)) != repr(truth) for c in shorter)
