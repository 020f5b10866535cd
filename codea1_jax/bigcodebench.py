"""BigCodeBench: rows, prompts, and the files that its own evaluator shares.

Its tests need some 70 pinned packages, so that its evaluator runs them: samples
go to it as a file, and what it found is read back.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from codea1_jax.datasets import fields, files
from codea1_jax.sanitizing import sanitize

SPLITS = ("instruct", "complete")
_TEXTS = (
  *("complete_prompt", "instruct_prompt", "code_prompt"),
  *("canonical_solution", "test", "entry_point"),
)
_STATUSES = ("pass", "fail", "timeout")

# The benchmark's own words: its answers begin with the second sentence.
_INSTRUCTION = (
  "Please provide a self-contained Python script that solves the following"
  " problem in a markdown code block:"
)
PREFILL = (
  "Below is a Python script with a self-contained function that solves the"
  " problem and passes corresponding tests:\n```python\n"
)
_STOPS = (
  *("<|endoftext|>", "<|endofmask|>", "</s>"),
  *("\nif __name__", "\ndef main(", "\nprint(", "\n```\n"),
)

Row = Mapping[str, Any]


def load_rows(path: str | pathlib.Path) -> list[dict[str, Any]]:
  """Rows in the published schema: JSON lines, a JSON array or parquet.

  Args:
    path: the file. Fields: task_id, complete_prompt, instruct_prompt,
      code_prompt, canonical_solution, test and entry_point, all strings;
      others are not looked at.

  Returns:
    The rows in the order of the file.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem" for anything malformed.
  """
  rows, seen = [], {}
  for number, row in files.read_rows(path):
    where = f"{path}:{number}"
    name = fields.text(where, row, "task_id")
    for field in _TEXTS:
      fields.text(where, row, field)
    if name in seen:
      raise ValueError(
        f"{where}: field 'task_id': {name!r} is already in row {seen[name]}"
      )
    seen[name] = number
    rows.append(row)
  if not rows:
    raise ValueError(f"{path}: no rows")
  return rows


def question(row: Row, split: str) -> str:
  """What a policy is asked; its answer is to go on after PREFILL.

  Args:
    row: see `load_rows`.
    split: of SPLITS; "complete" gives the function's head and docstring.
  """
  text = row[f"{split}_prompt"].strip()
  if split == "complete":
    text = f"```\n{text}\n```"
  return f"{_INSTRUCTION}\n{text}\n"


def until_stop(text: str) -> str:
  """What the benchmark's own programs take of what follows PREFILL."""
  ends = [place for stop in _STOPS if (place := text.find(stop)) >= 0]
  return text[: min(ends, default=len(text))].replace("\t", "    ")


def sample_line(row: Row, raw: str) -> dict[str, str]:
  """A line of a samples file, with what is left of an answer's program."""
  return {
    "task_id": row["task_id"],
    "solution": sanitize(raw, row["entry_point"]),
    "raw_solution": raw,
  }


def read_results(path: str | pathlib.Path) -> dict[str, list[bool]]:
  """Verdicts in a file of the benchmark's evaluator.

  Args:
    path: the file, "..._eval_results.json".

  Returns:
    By task id, whether each of its samples passes.

  Raises:
    ValueError: "FILE: problem", or "FILE: TASK[PLACE]: field 'x': problem".
  """
  try:
    found = json.loads(pathlib.Path(path).read_bytes())
  except (OSError, ValueError, RecursionError) as error:
    raise ValueError(f"{path}: cannot be read: {error}") from error
  by_task = fields.mapping(str(path), found, "eval")
  if not by_task:
    raise ValueError(f"{path}: field 'eval': empty")
  verdicts = {}
  for name in by_task:
    results = fields.items(f"{path}: field 'eval'", by_task, name)
    if not results:
      raise ValueError(f"{path}: field 'eval': field {name!r}: empty")
    verdicts[name] = [
      _passed(f"{path}: {name}[{place}]", result)
      for place, result in enumerate(results)
    ]
  return verdicts


def _passed(where: str, result: Any) -> bool:
  status = fields.text(where, result, "status")
  if status not in _STATUSES:
    raise ValueError(
      f"{where}: field 'status': {status!r} is none of {', '.join(_STATUSES)}"
    )
  return status == "pass"
