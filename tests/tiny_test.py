"""The shipped problems and what the pair was made from."""

import ast
import random

import pytest

from codea1_jax import problems
from codea1_jax.tiny import DATA, compositions, corpus, handwritten
from codea1_jax.tiny.operations import SOURCES


@pytest.fixture(scope="module")
def files():
  return tuple(
    problems.load_problems(DATA / f"{name}.jsonl")
    for name in ("train", "heldout")
  )


def test_counts_and_golden_tests(files):
  train, heldout = files
  assert len(train) >= 400 and len(heldout) >= 120
  for problem in (*train, *heldout):
    assert len(problem.golden_tests) >= 12, problem.id
    assert len({t.call for t in problem.golden_tests}) == len(
      problem.golden_tests
    )
    assert problem.faulty_programs, problem.id


def test_heldout_structures_are_new(files):
  train, heldout = files
  assert not {p.family for p in train} & {p.family for p in heldout}
  assert not {p.ground_truth for p in train} & {p.ground_truth for p in heldout}
  split = corpus.split()
  known = {c.structure for part in split.known.values() for c in part}
  assert not known & {p.family for p in heldout}


def test_heldout_problems_compute_something_new(files):
  """No shown composition, with any constants, passes their golden tests."""
  programs = {
    source: [
      comp
      for structure in structures
      for comp in compositions.all_constants(structure)
    ]
    for source, structures in corpus.split().known.items()
  }
  for problem in files[1][::10]:
    calls = [
      (_arguments(t.call), ("value", ast.literal_eval(t.expected)))
      for t in problem.golden_tests
    ]
    for composition in programs[problem.family.split("/")[0]]:
      program = compositions.render(composition, "one_line")
      same = all(
        compositions.same(compositions.outcome(program, args), right)
        for args, right in calls
      )
      assert not same, (problem.id, program)


def test_golden_tests_hold_the_edges(files):
  edges = {"list": "solve([])", "text": "solve('')", "dict": "solve({})"}
  for problem in files[1]:
    edge = edges.get(problem.family.split("/")[0])
    assert not edge or edge in {t.call for t in problem.golden_tests}


def test_golden_tests_kill_the_faulty_programs(files):
  for problem in (*files[0][::7], *files[1][::7]):
    for program in problem.faulty_programs:
      results = [
        compositions.outcome(program, _arguments(t.call))
        for t in problem.golden_tests
      ]
      right = [
        ("value", ast.literal_eval(t.expected)) for t in problem.golden_tests
      ]
      assert not all(map(compositions.same, results, right)), problem.id


def _arguments(call):
  tree = ast.parse(call, mode="eval").body
  return tuple(ast.literal_eval(a) for a in tree.args)


@pytest.mark.slow
def test_files_are_what_the_generator_makes(files):
  made = corpus.make_problems(0)
  assert tuple(made[0]) == files[0] and tuple(made[1]) == files[1]


def test_corpus_examples_are_pure_and_mixed():
  examples = [corpus.code_example(i, 0, 0.5) for i in range(60)]
  assert examples == [corpus.code_example(i, 0, 0.5) for i in range(60)]
  assert examples != [corpus.code_example(i, 1, 0.5) for i in range(60)]
  for i in range(60):
    suite = corpus.test_example(i, 0, 0.3, 4)
    assert suite.completion.count("assert solve(") == 4


def test_fault_share_is_the_share_of_wrong_answers():
  """Ground truths recomputed: without faults every answer is right."""
  for share, low, high in ((0.0, 0.0, 0.0), (0.5, 0.35, 0.6)):
    wrong = total = 0
    for i in range(120):
      task = corpus._draw_task(random.Random(f"test/0/{i}"), 0, 0.5)
      text = corpus.test_example(i, 0, share, 4).completion
      for line in text.split("\n")[1:-1]:
        test = ast.parse(line).body[0].test
        args = _arguments(ast.unparse(test.left))
        answer = ("value", ast.literal_eval(test.comparators[0]))
        wrong += not compositions.same(
          compositions.outcome(task.truth, args), answer
        )
        total += 1
    assert low <= wrong / total <= high


def test_every_form_of_every_block_runs():
  """A block that cannot run would be an error by construction."""
  for source in SOURCES:
    for keep in source.filters:
      for change in source.maps:
        finish = next(
          f
          for f in compositions.ops.FINISHERS
          if change.gives in f.takes.split()
        )
        composition = compositions.Composition(
          source, keep, change, finish, (3, 2, 2)
        )
        for style in compositions.STYLES:
          program = compositions.render(composition, style)
          for args in source.edges:
            assert compositions.outcome(program, args)[0] == "value", program


def test_handwritten_faults_are_faults():
  for item in handwritten.PROBLEMS:
    assert len(item.inputs) >= 12, item.name
    for program in item.faulty:
      differing = [
        args
        for args in item.inputs
        if not compositions.same(
          compositions.outcome(program, args),
          compositions.outcome(item.program, args),
        )
      ]
      assert differing, (item.name, program)
