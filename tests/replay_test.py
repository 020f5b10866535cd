"""A run's dump judged again: the same numbers, and others under others."""

import subprocess
import sys

import numpy as np
import pytest
import zstandard
from small_runs import make_config

from codea1_jax import checkpoint, dumps, export, jsonl, problems, replay
from codea1_jax.mistake_book import BookEvent, MistakeBook
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem, TestCase

GROUND_TRUTH = "def solve(xs):\n  return sum(x for x in xs if x > 0)"
CODES = (
  "```python\ndef solve(xs):\n  return sum(x for x in xs if x > 0)\n```",
  "```python\ndef solve(xs):\n  return sum(xs)\n```",
  "```python\ndef solve(xs):\n  return xs[0] + xs[1]\n```",
)
SUITES = (
  "```python\nassert solve([1, -1]) == 1\nassert solve([2]) == 2\n```",
  "```python\nassert solve([]) == 0\nassert solve([3, 4]) == 8\n```",
)


def record(step, question="q"):
  """Of a question's record what replay needs."""
  return {
    "step": step,
    "seed": [0, step],
    "num_tests": 4,
    "problem": {
      "id": question,
      "question": "Add the positive ones.",
      "signature": "def solve(xs):",
      "entry_point": "solve",
      "ground_truth": GROUND_TRUTH,
    },
    "codes": [
      {"text": code, "suites": [{"text": suite} for suite in SUITES]}
      for code in CODES
    ],
  }


@pytest.fixture
def dump(tmp_path):
  writer = dumps.DumpWriter(tmp_path / dumps.FILE)
  writer.write(0, [record(0), record(0, "p")])
  writer.write(1, [record(1)])
  return writer.path


@pytest.fixture(scope="module")
def pool():
  with SandboxPool(workers=1, allow_weak_isolation=True) as opened:
    yield opened


def test_settings_differ_where_they_should(dump, pool):
  steps = replay.load_dump(dump)
  assert [s.step for s in steps] == [0, 1]
  assert [[len(r.problems) for r in s.rounds] for s in steps] == [[2], [1]]
  paper = list(replay.replay(make_config(), steps, pool))
  again = list(replay.replay(make_config(), steps, pool))
  for a, b in zip(paper, again):
    same = replay.difference(a, b)
    assert same["code signs changed"] == same["selected elsewhere"] == 0
    assert same["test correlation"] == pytest.approx(1)
    assert same["book"] == same["book, other"] == same["book, common"] > 0
  # By hand, the code that adds all: f is 1 / 4 and 0, 2 of 4 valid.
  test = paper[0].judgement.reward.test[0]
  assert test[1].tolist() == [0.375, 0.25]
  corrected = replay.replay(
    make_config(**{"rewards.preset": "corrected"}), steps, pool
  )
  first, second = map(replay.difference, paper, corrected)
  assert first["test reward"] == first["test reward, other"]  # nothing replayed
  assert second["test reward"] != second["test reward, other"]
  bare = replay.replay(make_config(**{"book.enabled": False}), steps, pool)
  assert [replay.difference(a, b)["book, other"] for a, b in zip(paper, bare)] \
    == [0, 0]  # fmt: skip


def test_advantages_are_of_groups(dump, pool):
  (first, _) = replay.replay(make_config(), replay.load_dump(dump), pool)
  np.testing.assert_allclose(first.code_advantages.mean(-1), 0, atol=1e-6)
  np.testing.assert_allclose(first.test_advantages.mean(-1), 0, atol=1e-6)
  assert first.test_advantages.shape == (2, 3, 2)


@pytest.mark.parametrize(
  "text, words",
  [
    ("", "no rollouts"),
    ('{"step": 3, "codes": []}\n', "step 3"),
    ("not json\n{}\n", "byte 0, line 1: not JSON"),
  ],
)
def test_a_file_that_is_no_dump(tmp_path, text, words):
  path = tmp_path / "x.jsonl.zst"
  path.write_bytes(zstandard.compress(text.encode()))
  with pytest.raises(ValueError, match=rf"x\.jsonl\.zst: .*{words}"):
    replay.load_dump(path)


def test_the_command_shows_both_sides(dump, tmp_path):
  out = tmp_path / "differences.jsonl"
  done = subprocess.run(
    [
      sys.executable, "-m", "experiments.replay", f"--rollouts={dump}",
      "--config=configs/tiny.py", "--other=configs/tiny.py",
      "--other.rewards.alpha=1.0", f"--out={out}",
      "--config.sandbox.allow_weak_isolation=True",
    ],
    capture_output=True, text=True, timeout=120,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  rows = jsonl.read_jsonl(out)
  assert [row["step"] for row in rows] == [0, 1]
  assert rows[0]["test reward"] != rows[0]["test reward, other"]
  assert rows[0]["code signs changed"] == 0  # alpha is the tester's
  assert "selected elsewhere" in done.stdout


def test_exported_tests_are_the_books_and_the_accepted_ones(tmp_path):
  tests = [
    ("solve([1])", "1", "pass", "pass"),
    ("solve([2])", "2", "pass", "fail"),
    ("solve(5)", None, "error", None),
    ("solve([1])", "1", "pass", None),  # a repeat: no verdict of its own
  ]
  suite = [
    dict(zip(("call", "oracle", "oracle_status", "verdict"), t)) for t in tests
  ]
  row = record(0)
  for code in row["codes"]:
    for each in code["suites"]:
      each["tests"] = suite
  writer = dumps.DumpWriter(tmp_path / dumps.FILE)
  writer.write(0, [row])
  written = export.validated_tests(writer.path)
  assert [t.call for t in written["q"]] == ["solve([1])", "solve([2])"]
  known = [
    Problem(
      name, "Q", "def solve(xs):", "solve", GROUND_TRUTH,
      (TestCase("solve([9])", "9"),),
    )
    for name in ("q", "other")
  ]  # fmt: skip
  book = MistakeBook().update(
    [BookEvent("q", newly_failed=(TestCase("solve([-7])", "0"),))]
  )
  (problem,) = export.with_tests(known, book, written, most=2)
  assert [t.call for t in problem.golden_tests] == ["solve([-7])", "solve([1])"]
  problems.save_problems(tmp_path / "out.jsonl", [problem])
  assert problems.load_problems(tmp_path / "out.jsonl") == (problem,)


def test_a_workdir_without_a_checkpoint_is_named(tmp_path):
  with pytest.raises(checkpoint.CheckpointError, match="no checkpoint below"):
    checkpoint.read_book(tmp_path)


def test_another_number_of_tests_than_asked_for_is_refused(dump, tmp_path):
  config = make_config(**{"rollout.tests": 8})
  said = (
    "rollout.tests is 8, but the suites of the dump's step 0 were asked for 4"
  )
  with pytest.raises(ValueError, match=said):
    replay.replay(config, replay.load_dump(dump), pool=None)
