"""Evaluations of a Code LLM as a user asks for them: settings in, table out."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from codea1_jax import code_evaluation, evalplus, jsonl, subjects
from codea1_jax.code_evaluation import MODES, SUITES
from codea1_jax.generation import SamplingConfig
from codea1_jax.journal import claim

GROUND_TRUTH = "ground_truth"  # the model whose answers are the rows' own
_BUCKET = 64
_CHUNKS = 2  # batches of a chunk: its longest answers are waited for


@dataclasses.dataclass(frozen=True)
class Settings:
  """What an evaluation depends on; kept beside its results."""

  model: str
  samples_file: str
  suites: tuple[str, ...]
  data: str
  modes: tuple[str, ...]
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
    for what, given, known in (
      ("suite", self.suites, SUITES),
      ("mode", self.modes, MODES),
    ):
      wrong = [name for name in given if name not in known]
      if wrong or not given:
        raise ValueError(f"--{what}={','.join(given)}: known are {known}")
    if bool(self.model) == bool(self.samples_file):
      raise ValueError("give one of --model and --samples_file")


def run(
  settings: Settings, directory: pathlib.Path, workers: int | None = None
) -> dict[str, Any]:
  """Evaluates, or goes on with it; everything is checked before.

  Args:
    settings: which model and rows, and how.
    directory: gets settings.json, and a directory a suite.
    workers: of the sandbox.

  Returns:
    Per suite and mode the counts and scores, and the seconds that this call
    took to generate and to execute, which overlap.

  Raises:
    ValueError, OSError: bad input, in a line.
  """
  rows = evalplus.load_rows(settings.data)
  chosen = {name: _rows_of(rows, name, settings) for name in settings.suites}
  given = _given(settings, chosen)
  claim(directory, dataclasses.asdict(settings))
  scores: dict[str, Any] = {"model": settings.model or settings.samples_file}
  generate = functools.partial(_take, given) if given else None
  with code_evaluation.open_pool(workers) as pool:
    for name, part in chosen.items():
      generate = generate or make_generator(settings)
      verdicts, seconds = code_evaluation.evaluate(
        part,
        generate,
        directory / name,
        pool,
        settings.modes,
        chunk=chunk_size(settings),
      )
      scores[name] = {
        **code_evaluation.table(verdicts),
        "seconds": dataclasses.asdict(seconds),
        "flagged": [
          code_evaluation.task_id(row)
          for row in part
          if not evalplus.asserts_something(row)
        ],
      }
  return scores


def markdown(scores: Mapping[str, Any]) -> str:
  """A row a suite and mode: counts, and each score with its interval."""
  lines = []
  for suite, found in scores.items():
    for mode, values in found.items() if isinstance(found, dict) else ():
      if not isinstance(values, dict) or "passed" not in values:
        continue
      if not lines:
        names = [k for k, v in values.items() if isinstance(v, dict)]
        heads = ["", "mode", "problems", "passed of samples", *names]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
      cells = [
        f"{v['value']:.2f} [{v['low']:.2f}, {v['high']:.2f}]"
        for v in values.values()
        if isinstance(v, dict)
      ]
      counts = f"{values['passed']} of {values['samples']}"
      cells = [suite, mode, str(values["problems"]), counts, *cells]
      lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines)


def _rows_of(rows, suite: str, settings: Settings):
  chosen = [row for row in rows if row["data_source"] == suite]
  if not chosen:
    raise ValueError(f"{settings.data} has no rows of {suite}")
  return chosen[: settings.limit or None]


def make_generator(
  settings: Any, encode: code_evaluation.Encode = code_evaluation.encode_chats
) -> code_evaluation.Generate:
  """The generate function of the settings' model.

  Args:
    settings: with what Settings says of a model and its sampling.
    encode: rows -> token ids.
  """
  subject = subjects.open_subject(
    settings.model,
    "code",
    dtype=settings.dtype,
    param_dtype="bfloat16" if settings.dtype == "bfloat16" else "float32",
  )
  sampling = SamplingConfig(
    num_samples=settings.samples,
    max_new_tokens=settings.max_new_tokens,
    temperature=settings.temperature,
    top_p=settings.top_p if settings.temperature else 1.0,
    bucket=_BUCKET,
    max_rows=settings.max_rows,
  )
  return code_evaluation.make_generate(
    subject.sampler(sampling),
    subject.policy,
    settings.seed,
    settings.max_prompt_tokens,
    encode,
  )


def chunk_size(settings: Any) -> int:
  """Tasks whose answers are generated together."""
  return max(1, _CHUNKS * settings.max_rows // settings.samples)


def read_samples(path: str, tasks: Sequence[str]) -> dict[str, list[str]]:
  """The programs of a samples file by task.

  Args:
    path: JSON lines with task_id and solution.
    tasks: those that must have an answer.

  Raises:
    ValueError: a malformed line, a task that has no answer.
  """
  answers: dict[str, list[str]] = {}
  for number, line in enumerate(jsonl.read_jsonl(path), 1):
    for field in ("task_id", "solution"):
      if not isinstance(line.get(field), str):
        raise ValueError(
          f"{path}:{number}: field {field!r}: missing or no string"
        )
    answers.setdefault(line["task_id"], []).append(line["solution"])
  for task in tasks:
    if task not in answers:
      raise ValueError(f"{path}: no answer to {task}")
  return answers


def _given(settings: Settings, chosen) -> dict[str, list[dict[str, Any]]]:
  """Answers that nobody has to generate, by task; {} for a model's.

  Raises:
    ValueError: a malformed line, a task that has no answer.
  """
  rows = [row for part in chosen.values() for row in part]
  if settings.model == GROUND_TRUTH:
    return {
      code_evaluation.task_id(row): [{"solution": evalplus.ground_truth(row)}]
      for row in rows
    }
  if not settings.samples_file:
    return {}
  tasks = [code_evaluation.task_id(row) for row in rows]
  found = read_samples(settings.samples_file, tasks)
  return {
    task: [{"solution": program} for program in programs]
    for task, programs in found.items()
  }


def _take(given, rows: Sequence[code_evaluation.Row], first: int):
  return [given[code_evaluation.task_id(row)] for row in rows]
