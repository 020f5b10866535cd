"""BigCodeBench as a user asks for it: answers for its evaluator, and back."""

import dataclasses
import functools
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import tqdm

from codea1_jax import bigcodebench, code_evaluation, code_suites, rollout
from codea1_jax.journal import Journal, claim

SUITE = "bigcodebench-export"


@dataclasses.dataclass(frozen=True)
class Settings:
  """What the answers depend on; kept beside them."""

  model: str
  samples_file: str
  data: str
  split: str
  limit: int
  samples: int
  temperature: float
  top_p: float
  max_new_tokens: int
  max_prompt_tokens: int
  max_rows: int
  dtype: str
  seed: int

  def __post_init__(self):
    if self.split not in bigcodebench.SPLITS:
      raise ValueError(f"--split={self.split}: known are {bigcodebench.SPLITS}")
    if bool(self.model) == bool(self.samples_file):
      raise ValueError("give one of --model and --samples_file")


def run(
  settings: Settings, directory: pathlib.Path, workers: int | None = None
) -> dict[str, Any]:
  """Answers all rows, or goes on with it, and writes the samples file.

  Args:
    settings: which model, or given programs, and rows, and how.
    directory: gets settings.json, samples.jsonl with the answers as they come,
      and at the end the samples file.
    workers: of a sandbox, which this suite has no use for.

  Returns:
    JSON data: the file, and how many problems and samples are in it.

  Raises:
    ValueError, OSError: bad input, in a line, before anything is generated.
  """
  rows = bigcodebench.load_rows(settings.data)[: settings.limit or None]
  tasks = [row["task_id"] for row in rows]
  if settings.samples_file:
    given = code_suites.read_samples(settings.samples_file, tasks)
    claim(directory, dataclasses.asdict(settings))
    raw = [given[task] for task in tasks]
  else:
    claim(directory, dataclasses.asdict(settings))
    raw = _generated(rows, settings, directory)
  # The name is as the benchmark's own programs have it.
  path = directory / f"bigcodebench-{settings.split}-sanitized_calibrated.jsonl"
  with open(path, "w", encoding="utf-8") as file:
    for row, texts in zip(rows, raw, strict=True):
      for text in texts:
        file.write(json.dumps(bigcodebench.sample_line(row, text)) + "\n")
  return {
    "model": settings.model or settings.samples_file,
    "samples_file": str(path),
    "problems": len(rows),
    "samples": sum(map(len, raw)),
  }


def read(path: str) -> dict[str, Any]:
  """Scores of the evaluator's file of results, as `code_suites.run` returns
  those of its suites.

  Raises:
    ValueError: malformed; a line.
  """
  verdicts = list(bigcodebench.read_results(path).values())
  table = code_evaluation.table({"its own": verdicts})
  return {"model": path, "bigcodebench": table}


def _generated(
  rows: Sequence[bigcodebench.Row],
  settings: Settings,
  directory: pathlib.Path,
) -> list[list[str]]:
  """[P][n] answers up to where they stop."""
  answers = Journal(directory / "samples.jsonl")
  missing = [row for row in rows if row["task_id"] not in answers.rows]
  encode = functools.partial(_encode, settings.split)
  generate = missing and code_suites.make_generator(settings, encode)
  size = code_suites.chunk_size(settings)
  with tqdm.tqdm(total=len(missing), desc=SUITE, file=sys.stderr) as bar:
    for first in range(0, len(rows), size):
      part = rows[first : first + size]
      left = [row for row in part if row["task_id"] not in answers.rows]
      if left:  # an answer depends on its place: all of the part once more
        for row, samples in zip(part, generate(part, first)):
          answers.add(row["task_id"], {"samples": samples})
      bar.update(len(left))
  return [
    [
      bigcodebench.until_stop(sample["text"])
      for sample in answers.rows[row["task_id"]]["samples"]
    ]
    for row in rows
  ]


def _encode(
  split: str, policy: rollout.Policy, rows: Sequence[bigcodebench.Row]
) -> list[list[int]]:
  chats = [
    [{"role": "user", "content": bigcodebench.question(row, split)}]
    for row in rows
  ]
  return rollout.encode_prefilled(policy, chats, bigcodebench.PREFILL)
