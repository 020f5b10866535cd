"""An evaluation on UnLeakedTestBench as a user asks for it."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from codea1_jax import jsonl, subjects
from codea1_jax.generation import SamplingConfig
from codea1_jax.journal import claim
from codea1_jax.ult import counts, evaluation, rounds, rows, verdicts
from codea1_jax.ult.rows import Function

NAME = "ult"
_BUCKET = 64


@dataclasses.dataclass(frozen=True)
class Settings:
  """What an evaluation depends on; kept beside its results."""

  model: str
  samples_file: str
  data: str
  fixed_sample: str
  modes: tuple[str, ...]
  limit: int
  temperature: float
  top_p: float
  max_new_tokens: int
  max_prompt_tokens: int
  max_rows: int
  dtype: str
  seed: int

  def __post_init__(self):
    wrong = [name for name in self.modes if name not in verdicts.MODES]
    if wrong or not self.modes:
      raise ValueError(
        f"--mode={','.join(self.modes)}: known are {verdicts.MODES}"
      )
    if bool(self.model) == bool(self.samples_file):
      raise ValueError("give one of --model and --samples_file")
    if self.model == "ground_truth":
      raise ValueError(
        "--model=ground_truth: the rows' own tests are no oracle"
      )


def run(
  settings: Settings, directory: pathlib.Path, workers: int | None = None
) -> dict[str, Any]:
  """Evaluates, or goes on with it; everything is checked before.

  Args:
    settings: which model and functions, and how.
    directory: gets settings.json, and a directory of answers and verdicts.
    workers: of the sandbox.

  Returns:
    The counts and scores of each mode, and the seconds that this call took to
    generate and to execute, which overlap.

  Raises:
    ValueError, OSError: bad input, in a line.
  """
  functions = rows.load(settings.data)[: settings.limit or None]
  sample = None
  if settings.fixed_sample:
    sample = rows.load_sample(settings.fixed_sample, functions)
  given = _given(settings.samples_file, functions)
  claim(directory, dataclasses.asdict(settings))
  ask = functools.partial(_take, given) if given else _asker(settings)
  with verdicts.open_pool(workers) as pool:
    judge = functools.partial(
      _judge, modes=settings.modes, sample=sample, pool=pool, workers=workers
    )
    found, seconds = evaluation.evaluate(
      functions, ask, judge, directory / NAME, settings.max_rows
    )
  return {
    "model": settings.model or settings.samples_file,
    **{
      mode: counts.table(functions, [v[mode] for v in found], mode, sample)
      for mode in settings.modes
    },
    "seconds": dataclasses.asdict(seconds),
  }


def _judge(functions, texts, *, modes, sample, pool, workers):
  """Verdicts on answers, with those on the sample's mutants."""
  found = verdicts.judge(functions, texts, modes, pool)
  places = [
    at
    for at, function in enumerate(functions)
    if sample is None or function.task_id in sample
  ]
  for mode in modes:
    killed = verdicts.mutate(
      [functions[at] for at in places],
      [found[at][mode] for at in places],
      mode,
      workers,
    )
    for at, mutants in zip(places, killed):
      found[at][mode]["mutants"] = mutants
  return found


def markdown(scores: Mapping[str, Any]) -> str:
  """A row a score, a column a mode; each with its interval and count."""
  modes = [mode for mode in verdicts.MODES if mode in scores]
  lines = [f"| | {' | '.join(modes)} |", "|---" * (1 + len(modes)) + "|"]
  names = list(dict.fromkeys(name for mode in modes for name in scores[mode]))
  for name in names:
    cells = [_cell(scores[mode].get(name)) for mode in modes]
    lines.append(f"| {name} | {' | '.join(cells)} |")
  return "\n".join(lines)


def _cell(value: Any) -> str:
  if value is None:
    return "-"
  if isinstance(value, int):
    return str(value)
  low, high = value["low"], value["high"]
  return f"{value['value']:.2f} [{low:.2f}, {high:.2f}] of {value['count']}"


def _asker(settings: Settings) -> rounds.Ask:
  subject = subjects.open_subject(
    settings.model,
    "test",
    dtype=settings.dtype,
    param_dtype="bfloat16" if settings.dtype == "bfloat16" else "float32",
  )
  sampling = SamplingConfig(
    num_samples=1,
    max_new_tokens=settings.max_new_tokens,
    temperature=settings.temperature,
    top_p=settings.top_p if settings.temperature else 1.0,
    bucket=_BUCKET,
    max_rows=settings.max_rows,
  )
  return rounds.make_ask(
    subject.sampler(sampling),
    subject.policy,
    settings.seed,
    settings.max_prompt_tokens,
  )


def _given(
  path: str, functions: Sequence[Function]
) -> dict[str, list[dict[str, str]]]:
  """Answers that nobody has to generate, by task; {} without a file.

  Raises:
    ValueError: a malformed line, a function that has no answers.
  """
  if not path:
    return {}
  answers = {}
  for number, line in enumerate(jsonl.read_jsonl(path), 1):
    where = f"{path}:{number}"
    if not isinstance(line.get("task_id"), str | int):
      raise ValueError(f"{where}: field 'task_id': missing, or no string")
    tests = line.get("tests")
    if not isinstance(tests, list) or not all(
      isinstance(test, str) for test in tests
    ):
      raise ValueError(f"{where}: field 'tests': must be a list of strings")
    if len(tests) != rounds.ROUNDS:
      raise ValueError(
        f"{where}: field 'tests': {len(tests)} texts, not {rounds.ROUNDS}"
      )
    answers[str(line["task_id"])] = [{"text": test} for test in tests]
  for function in functions:
    if function.task_id not in answers:
      raise ValueError(f"{path}: no answers to {function.task_id}")
  return answers


def _take(given, functions: Sequence[Function], texts, first: int):
  return [given[f.task_id][len(said)] for f, said in zip(functions, texts)]
