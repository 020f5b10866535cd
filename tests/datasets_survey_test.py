"""Whole files: repeated and leaked problems, reports, and the commands."""

import itertools
import os
import pathlib
import subprocess
import sys

import pytest
from dataset_rows import (
  ACECODE,
  DATA,
  EVALPLUS,
  KODCODE,
  OWN,
  UNLEAKED,
  written,
)

from codea1_jax import checks, problems
from codea1_jax.datasets import files, making, overlap, survey
from codea1_jax.datasets.recognizing import read_drafts
from codea1_jax.types import Problem

_QUESTION = "Write one function that takes a list of words and counts them all"


def _problem(key, question="q", program="def f(x): return x", name="f"):
  return Problem(key, question, "def f(x):", name, program)


@pytest.fixture(scope="module")
def sandboxes():
  with making.open_sandboxes(2) as made:
    yield made


def _survey(sandboxes, path, against=(), **options):
  """The report of a file, and what was written."""
  made = []
  drafts = [draft for name in against for draft in read_drafts(name)[1]]
  report = survey.survey(
    *(str(path), "", sandboxes, 8, made.append),
    evaluation=overlap.Evaluation(drafts),
    **options,
  )
  return report, made


def test_repeated_problems_are_told_by_what_repeats():
  seen = overlap.Repeats()
  assert seen.add(_problem("1", "Count, all!", "def f(x): return x + 1")) == {}
  # Other names, a comment, a docstring, another name of the function.
  same = "def g(y):\n  'Adds.'\n  return y + 1  # one"
  assert seen.add(_problem("2", "r", same)) == {"ground truth": "1"}
  assert seen.add(_problem("3", "count  ALL", "def f(x): return x + 2")) == {
    "question": "1"
  }
  assert seen.add(_problem("1", "s", "def f(x): return x + 3")) == {"id": "1"}
  assert seen.add(_problem("4", "t", "def f(x): return x - 1")) == {}


def _evaluation(tmp_path, **changes):
  row = UNLEAKED | {"prompt": _QUESTION} | changes
  return overlap.Evaluation(read_drafts(written(tmp_path, row))[1])


@pytest.mark.parametrize(
  ("question", "name", "leaks"),
  [
    (_QUESTION, "f", ["text", "overlap"]),
    (_QUESTION.upper() + "!", "f", ["text", "overlap"]),
    ("anything", "Clip", ["function name"]),
    (f"See: {_QUESTION} of a file.", "f", ["overlap"]),
    # 13 words have 6 n-grams of 8 words; 3 of them are half.
    (" ".join(_QUESTION.split()[:10]), "f", ["overlap"]),
    (" ".join(_QUESTION.split()[:9]), "f", []),
    ("anything", "f", []),
  ],
)
def test_leaks_by_text_name_and_overlap(tmp_path, question, name, leaks):
  found = _evaluation(tmp_path).leaks(_problem("a", question, name=name))
  assert found == dict.fromkeys(leaks, "unleaked/17")


def test_a_short_question_leaks_by_its_whole_text_only(tmp_path):
  short = _evaluation(tmp_path, prompt="Count the words.")
  assert short.leaks(_problem("a", "count the words")) == {
    "text": "unleaked/17"
  }
  assert not short.leaks(
    _problem("a", "count the words of a text, all of them")
  )


def test_a_file_is_reported_line_by_line(tmp_path, sandboxes):
  rows = [
    KODCODE,
    KODCODE | {"question_id": "twin", "question": UNLEAKED["prompt"]},
    KODCODE | {"question": "Another."},
    KODCODE | {"question_id": "bad", "test_code": "assert ratio(1, 1) == 2"},
    KODCODE | {"question_id": "class", "solution": "class A: pass"},
  ]
  path = written(tmp_path, *rows)
  against = written(tmp_path, UNLEAKED, name="against.jsonl")
  told = []

  def progress(drafts, total):
    told.append(total)
    return drafts

  report, made = _survey(sandboxes, path, [against], progress=progress)
  assert told == [5]
  assert [problem.id for problem in made] == ["Prefill_2_I", "twin"]
  left = "1 asserts of another shape, 1 raising ValueError"
  fails = "the ground truth fails its own tests"
  raises = "the ground truth or its tests raise"
  assert list(survey.lines(report)) == [
    f"dropped {path}:4 bad: {fails}: test: AssertionError:"
    " tests: assert ratio(1, 1) == 2",
    f"dropped {path}:5 class: {raises}: test: RuntimeError: tests:"
    " ImportError: cannot import name 'ratio' from 'solution'"
    " (unknown location)",
    f"left out of {path}:1 Prefill_2_I: {left}",
    f"left out of {path}:2 twin: {left}",
    f"left out of {path}:3 Prefill_2_I: {left}",
    "repeated twin: ground truth of Prefill_2_I",
    "repeated Prefill_2_I: id of Prefill_2_I, ground truth of Prefill_2_I",
    "leaked twin: text of unleaked/17",
    f"{path}: format kodcode, 5 rows",
    "3 of 5 (60.0 %) pass their own tests",
    "3 problems with 6 golden tests, 2 rows dropped:",
    f"  1 {fails}",
    f"  1 {raises}",
    "repeated: 2 problems, 2 by ground truth, 1 by id",
    "leaked: 1 problems, 1 by text (overlap: 50% of an evaluation question's"
    " 8-grams of words)",
  ]
  _, clean = _survey(sandboxes, path, [against], clean=True)
  assert [problem.id for problem in clean] == ["Prefill_2_I"]


def test_a_malformed_row_is_known_before_anything_runs(tmp_path):
  rows = [ACECODE] * 200 + [ACECODE | {"id": 3}]
  path = written(tmp_path, *rows)
  with pytest.raises(ValueError, match=r"rows\.jsonl:201: field 'id'"):
    survey.survey(str(path), "", None, 8, None)


def test_only_some_rows_are_in_memory(tmp_path, sandboxes, monkeypatch):
  monkeypatch.setattr(survey, "_CHUNK", 2)
  taken = []

  def progress(drafts, _):
    for draft in drafts:
      taken.append(draft)
      yield draft

  written_after = []
  rows = [OWN | {"id": str(k)} for k in range(5)]
  survey.survey(
    *(str(written(tmp_path, *rows)), "", sandboxes, 8),
    lambda problem: written_after.append(len(taken)),
    progress=progress,
  )
  assert written_after == [2, 2, 4, 4, 5]


def test_a_file_is_written_whole_or_not(tmp_path):
  path = tmp_path / "new" / "problems.jsonl"
  with pytest.raises(KeyError), survey.writer(str(path)) as write:
    write(_problem("1"))
    raise KeyError
  assert list(path.parent.iterdir()) == []
  with survey.writer(str(path)) as write:
    write(_problem("1"))
    assert not path.exists()
  assert problems.load_problems(path) == (_problem("1"),)
  with survey.writer("") as write:
    write(_problem("1"))


def _run(program, *arguments):
  """The command as a user types it."""
  return subprocess.run(
    [sys.executable, "-m", f"experiments.{program}", *arguments],
    cwd=pathlib.Path(__file__).parents[1],
    env=os.environ | {"XLA_FLAGS": ""},
    capture_output=True,
    text=True,
    timeout=120,
  )


def test_the_command_reports_and_writes(tmp_path):
  path = written(tmp_path, UNLEAKED, UNLEAKED | {"task_id": 18})
  out = tmp_path / "problems.jsonl"
  done = _run(
    *("data", f"--check={path}", f"--against={path}", f"--out={out}"),
    *("--tests=1", "--workers=1"),
  )
  assert done.returncode == 0, done.stderr
  lines = done.stdout.strip().split("\n")
  assert lines[-1] == f"wrote {out}: 2 problems"
  assert f"{path}: format unleaked, 2 rows" in lines
  assert any(line.startswith("leaked: 2 problems, 2 by text") for line in lines)
  loaded = problems.load_problems(out)
  assert [problem.id for problem in loaded] == ["unleaked/17", "unleaked/18"]
  assert all(len(problem.golden_tests) == 1 for problem in loaded)


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (["--check={bad}"], "bad.jsonl:1: field 'code': missing"),
    (["--check={good}", "--against={bad}"], "bad.jsonl:1: field 'code'"),
    (["--check={good}", "--format=no"], "format 'no' is none of own"),
  ],
)
def test_the_command_ends_in_one_line(tmp_path, flags, message):
  good = written(tmp_path, UNLEAKED)
  bad = written(tmp_path, UNLEAKED | {"code": None}, name="bad.jsonl")
  out = tmp_path / "out.jsonl"
  done = _run(
    *("data", f"--out={out}", "--workers=1"),
    *(flag.format(good=good, bad=bad) for flag in flags),
  )
  assert done.returncode == 2
  assert done.stderr.count("\n") == 1 and message in done.stderr
  assert not done.stdout and not out.exists()


def test_make_problems_splits_rows_into_two_files(tmp_path):
  named = [{"function_name": "halve", "question_id": str(n)} for n in range(4)]
  rows = [EVALPLUS | {"extra_info": extra} for extra in named]
  rows[3]["GT_code"] = "    return object()\n"
  path = written(tmp_path, *rows, name="rows.parquet")
  flags = f"--evalplus={path}", f"--out={tmp_path / 'out'}"
  done = _run("make_problems", *flags, "--heldout=1", "--tests=1")
  assert done.returncode == 0, done.stderr
  assert f"dropped {path}:4 3: the ground truth fails" in done.stdout
  train, heldout = (
    problems.load_problems(tmp_path / "out" / f"{name}.jsonl")
    for name in ("train", "heldout")
  )
  assert (len(train), len(heldout)) == (2, 1)
  assert {p.id for p in train + heldout} == {"0", "1", "2"}
  assert all(len(p.golden_tests) == 1 for p in train + heldout)
  done = _run("make_problems", *flags, "--heldout=3")
  assert done.returncode == 2
  assert done.stderr.count("\n") == 1
  assert "3 problems, --heldout=3 leaves none to train on" in done.stderr


def _real(name):
  path = DATA / name
  if not path.is_file():
    pytest.skip(f"{path} is not there")
  return path


def _drops(report):
  return {
    result.draft.problem.id: result.reason
    for result in report.made
    if result.reason
  }


def test_the_first_kodcode_rows(tmp_path, sandboxes):
  rows = itertools.islice(files.read_rows(_real("kodcode_demo.jsonl")), 16)
  path = written(tmp_path, *(row for _, row in rows))
  report, made = _survey(sandboxes, path)
  raises = "the ground truth or its tests raise"
  assert _drops(report) == {
    "Algorithm_00000008_I": "no test is a call with literals",
    "Algorithm_00000038_I": raises,  # it writes a file
    "Algorithm_00000068_I": raises,  # it wants scipy
  }
  assert len(made) == 13
  # What is written loads, and holds in the sandbox that a run has.
  problems.save_problems(path, made)
  assert list(problems.load_problems(path)) == made
  checks.check_ground_truths(made, sandboxes.run)


@pytest.mark.slow
def test_all_kodcode_rows_and_what_they_pass(sandboxes):
  report, made = _survey(sandboxes, _real("kodcode_demo.jsonl"))
  print("\n".join(survey.lines(report)))
  passing = [result.passes for result in report.made]
  assert (len(passing), sum(passing)) == (232, 228)
  assert len(made) == 209
  assert len(report.repeats) == 102
  checks.check_ground_truths(made, sandboxes.run)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "rows", "made"),
  [("evalplus_rows.parquet", 364, 364), ("ULT_Lite.jsonl", 200, 155)],
)
def test_all_rows_of_the_evaluation_sets(sandboxes, name, rows, made):
  pytest.importorskip("pyarrow", reason="needs pyarrow")
  report, problems_made = _survey(sandboxes, _real(name))
  print("\n".join(survey.lines(report)))
  assert len(report.made) == rows
  assert len(problems_made) == made
  assert False not in [result.passes for result in report.made]
  checks.check_ground_truths(problems_made, sandboxes.run)
