"""A dump in a terminal: everything of a question, and nothing hostile."""

import os
import pathlib
import pty
import re
import subprocess
import sys

import pytest
from example_run import rollout_row, write_run

from codea1_jax import dumps, show
from codea1_jax.terminal import Terminal

ESCAPE = re.compile(r"\x1b\[\d*m")
HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e\r\n\ud800"


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> pathlib.Path:
  return write_run(tmp_path_factory.mktemp("run")) / dumps.FILE


def shown(path, *what, width=80):
  return list(show.show(path, Terminal(width), *what))


def test_steps(path):
  _, header, *rows = shown(path)
  assert header.split() == [
    "step", "questions", "code", "test", "valid", "verdicts"
  ]  # fmt: skip
  # Codes 0.5, 0 and one masked; of each question four suites, 0.41 and 0.75.
  # Verdicts of 3 questions: 2 codes with 2 suites of 5 verdicts each, what was
  # replayed to three codes, and two codes that do not load.
  text = " ".join(" ".join(rows).split())
  assert text.startswith(
    "1 3 0.25 0.41 0.75 pass 30, fail 18, error 12, invalid 9, timeout 12,"
    " infrastructure 3 21 3 0.25"
  )
  assert [row.split()[0] for row in rows if row[:6].strip()] == [
    "1", "21", "41"
  ]  # fmt: skip


def test_a_step(path):
  title, header, *rows = shown(path, 21, width=120)
  assert title == "step 21: 3 questions; mean rewards"
  assert header.split()[-2:] == ["replayed", "verdicts"]
  assert rows[1].split("  ")[:2] == ["1", "sum-1"]
  assert rows[1].endswith(
    "pass 10, fail 6, error 4, invalid 3, timeout 4, infrastructure 1"
  )
  assert len(rows) == 3


@pytest.mark.parametrize("question", ["sum-1", "1"])
def test_a_question(path, question):
  lines = shown(path, 21, question, width=100)
  text = "\n".join(lines)
  assert lines[0] == "step 21, question 1 of 3: sum-1"
  assert "Add the numbers of a list, variant 1." in text
  assert "  1  def f(xs):\n  2    return sum(xs)" in text  # ground truth
  assert "Code 0  reward 0.50  load pass  selected  29 tokens\n" in text
  assert "  2    # seen at 21\n" in text
  assert "    fail     assert f([2, 2]) == 4  5\n" in text  # replayed
  assert "  Suite 1  reward 0.41  validity 0.75  invalid 2  29 tokens\n" in text
  for row in (
    "pass       f([])       0          0",
    "fail       f([1, 2])   3          3       4",
    "error      f([True])   1          True    TypeError: no numbers",
    "- error    f(None)     0          -",
    "timeout    f([9] * 9)  81         81      CPU time above the limit",
  ):
    assert row.split() in [line.split() for line in lines]
  assert "Code 1  reward 0.00  load invalid  29 tokens, cut\n" in text
  assert "  no function f\n" in text
  assert "Code 2  reward -  load infrastructure  29 tokens\n" in text
  assert "Here it is:" in text  # of the code without a program
  assert text.count("Here it is:") == 1 and "Break it" not in text


def test_one_code_has_its_prompts_and_whole_texts(path):
  text = "\n".join(shown(path, 21, "sum-1", 0))
  assert "Solve it: Add the numbers" in text
  assert "Break it: def f(xs):" in text
  assert "Here it is:" in text and "suite 1" in text
  assert "Code 1" not in text


def test_why_a_test_did_not_count(tmp_path):
  rollout = rollout_row(1)
  (first, second, *_) = rollout["codes"][0]["suites"][0]["tests"]
  first |= {"verdict": None, "returned": None}
  second |= {"verdict": None, "returned": None, "rejected": "trivial"}
  dumps.DumpWriter(tmp_path / dumps.FILE).write(1, [rollout])
  text = "\n".join(shown(tmp_path / dumps.FILE, 1, "0"))
  assert "    - repeated  f([])" in text and "    - trivial   f([1, 2])" in text


def hostile(value):
  """The record with every text of it made hostile."""
  if isinstance(value, dict):
    return {k: hostile(v) for k, v in value.items()}
  if isinstance(value, list):
    return [hostile(v) for v in value]
  return f"{value}{HOSTILE}" if isinstance(value, str) else value


@pytest.mark.parametrize("width", [40, 300])
def test_no_text_sends_anything_to_the_terminal(tmp_path, width):
  path = tmp_path / dumps.FILE
  dumps.DumpWriter(path).write(1, [hostile(rollout_row(0))] * 2)
  for what in ((), (1,), (1, "0"), (1, "0", 0), (1, "1", 1)):
    for line in shown(path, *what, width=width):
      assert line.isprintable(), line
    for line in show.show(path, Terminal(width, color=True), *what):
      assert ESCAPE.sub("", line).isprintable(), line
  with pytest.raises(ValueError) as error:
    shown(path, 1, "none")
  assert str(error.value).isprintable()


@pytest.mark.parametrize(
  "what, words",
  [
    ((2,), r"zst: no step 2, but 1, 21, 41$"),
    ((21, "sum-7"), "step 21 has no question sum-7, but 0 to 2: sum-0, sum-1"),
    ((21, "3"), "no question 3"),
    ((21, "0", 3), "question sum-0 has the codes 0 to 2, no 3"),
    ((21, "0", -1), "no -1"),
    ((None, "0"), "name the step too"),
    ((21, None, 1), "name the question too"),
  ],
)
def test_what_is_not_there_is_named(path, what, words):
  with pytest.raises(ValueError, match=words):
    shown(path, *what)


def test_many_steps_are_named_by_the_first_and_the_last(tmp_path):
  writer = dumps.DumpWriter(tmp_path / dumps.FILE)
  for step in range(100):
    writer.write(step, [{"text": ""}])
  said = "no step 500, but 0, .*9, ... 100 in all ..., 90, .*, 99$"
  with pytest.raises(ValueError, match=said):
    shown(writer.path, 500)


def test_what_is_no_rollout_is_named(tmp_path):
  dumps.DumpWriter(tmp_path / dumps.FILE).write(1, [{"text": "a"}])
  for what in ((), (1,), (1, "0")):
    with pytest.raises(ValueError, match=r"zst: no rollout record: KeyError"):
      shown(tmp_path / dumps.FILE, *what)


def command(*flags):
  return [sys.executable, "-m", "experiments.show", *map(str, flags)]


ROOT = pathlib.Path(__file__).parents[1]


def test_the_command_prints_plain_text_into_a_pipe(path):
  done = subprocess.run(
    command(f"--workdir={path.parent}", "--step=21", "--question=2"),
    capture_output=True,
    cwd=ROOT,
    env=os.environ | {"COLUMNS": "70", "PYTHONIOENCODING": "ascii"},
  )
  assert done.returncode == 0, done.stderr
  assert b"\x1b" not in done.stdout
  lines = done.stdout.decode("ascii").splitlines()
  assert lines == shown(path, 21, "2", width=70)


def test_the_command_colours_a_terminal(path):
  ours, theirs = pty.openpty()
  process = subprocess.Popen(
    command(f"--workdir={path.parent}", "--step=21", "--question=2"),
    stdout=theirs,
    cwd=ROOT,
    env={k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    | {"TERM": "xterm", "COLUMNS": "70"},
  )
  os.close(theirs)
  read = b""
  try:
    while chunk := os.read(ours, 4096):
      read += chunk
  except OSError:  # the other side is closed
    pass
  assert process.wait() == 0
  assert b"\x1b[34mdef\x1b[0m" in read
  lines = ESCAPE.sub("", read.decode()).splitlines()
  assert lines == shown(path, 21, "2", width=70)


def test_the_command_says_in_one_line_what_is_missing(tmp_path):
  done = subprocess.run(
    command(f"--workdir={tmp_path}"), capture_output=True, text=True, cwd=ROOT
  )
  assert done.returncode == 2
  assert done.stderr.count("\n") == 1
  assert f"{dumps.FILE}: no such file; a run writes it" in done.stderr
