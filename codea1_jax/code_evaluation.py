"""HumanEval+ and MBPP+ of a Code LLM (EVALUATION.md), by two readings.

`strict` is correct. `reference` scores as the paper's published program does,
bug for bug: the test as it stands sees of the solution only the function that
the row names, and runs in one process with it.

Answers and verdicts go to disk as they come (journal.py). Programs run while
the next answers are generated.
"""

import collections
import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

import tqdm

from codea1_jax import evalplus, parsing, rollout, scores
from codea1_jax.journal import Journal
from codea1_jax.sandbox import CheckJob, Job, Limits, SandboxPool
from codea1_jax.types import Status

SUITES = ("humanevalplus", "mbppplus")
MODES = ("strict", "reference")
_CPU_S = 10.0
_MEMORY_MB = 4096
_SLACK = 4  # of a ground truth's CPU seconds, where those are more
_LONGEST_S = 300.0  # that a ground truth may take

_REFERENCE = """
_solution = {{"__name__": "solution"}}
exec({program!r}, _solution)
{name} = _solution[{name!r}]
{test}
check({name})
"""

Row = Mapping[str, Any]
Generate = Callable[[Sequence[Row], int], list[list[dict[str, Any]]]]
Encode = Callable[[rollout.Policy, Sequence[Row]], list[list[int]]]


@dataclasses.dataclass
class Seconds:
  """What an evaluation took; the two overlap."""

  generation: float = 0.0
  execution: float = 0.0


def open_pool(workers: int | None = None) -> SandboxPool:
  """A sandbox with the limits of both readings."""
  limits = Limits(
    load_cpu_s=_CPU_S, memory_mb=_MEMORY_MB, max_program_chars=4_194_304
  )
  return SandboxPool(workers, limits, numpy=True)


def task_id(row: Row) -> str:
  return row["extra_info"]["question_id"]


def encode_chats(policy: rollout.Policy, rows: Sequence[Row]):
  """Token ids of the rows' own chats."""
  return rollout.encode_prompts(policy, [list(row["prompt"]) for row in rows])


def make_generate(
  sample: Callable,
  policy: rollout.Policy,
  seed: int,
  max_prompt_tokens: int,
  encode: Encode = encode_chats,
) -> Generate:
  """generate(rows, first) -> [P][n] answers to what `encode` makes of rows.

  An answer depends on the seed and on the row's place in its suite, of which
  `first` is that of the first row; not on what else is generated.
  """

  def generate(rows: Sequence[Row], first: int):
    prompts = [ids[-max_prompt_tokens:] for ids in encode(policy, rows)]
    return [
      [
        {"text": c.text, "tokens": len(c.tokens), "finished": c.finished}
        for c in answers
      ]
      for answers in sample(prompts, (seed,), first=first)
    ]

  return generate


def evaluate(
  rows: Sequence[Row],
  generate: Generate,
  directory: pathlib.Path,
  pool: SandboxPool,
  modes: Sequence[str] = ("strict",),
  chunk: int = 16,
) -> tuple[dict[str, list[list[bool | None]]], Seconds]:
  """Answers to one suite's rows, and which of them pass.

  Args:
    rows: [P] of one suite, see `evalplus.load_rows`.
    generate: see `make_generate`; not called for answers that are on disk.
    directory: gets samples.jsonl and verdicts.jsonl, a line a task.
    pool: see `open_pool`.
    modes: of MODES.
    chunk: tasks that are generated together and then judged together.

  Returns:
    Per mode [P][n] whether a sample passes, None where the infrastructure
    failed; and the seconds that this call took.
  """
  answers = Journal(directory / "samples.jsonl")
  verdicts = Journal(directory / "verdicts.jsonl")
  seconds, waiting = Seconds(), collections.deque()
  total = sum(task_id(row) not in verdicts.rows for row in rows)
  with (
    tqdm.tqdm(total=total, desc=directory.name, file=sys.stderr) as bar,
    futures.ThreadPoolExecutor(1) as executor,
  ):

    def judge(part: Sequence[Row]) -> None:
      started = time.monotonic()
      for row, by_mode in zip(part, _judge(part, answers.rows, modes, pool)):
        verdicts.add(task_id(row), by_mode)
      seconds.execution += time.monotonic() - started
      bar.update(len(part))

    for first in range(0, len(rows), chunk):
      part = rows[first : first + chunk]
      if any(task_id(row) not in answers.rows for row in part):
        started = time.monotonic()
        for row, samples in zip(part, generate(part, first)):
          answers.add(task_id(row), {"samples": samples})
        seconds.generation += time.monotonic() - started
      left = [row for row in part if task_id(row) not in verdicts.rows]
      waiting.append(executor.submit(judge, left))
      while waiting and waiting[0].done():
        waiting.popleft().result()  # a mistake ends the evaluation here
    for future in waiting:
      future.result()
  return {
    mode: [
      [_passed(status) for status in verdicts.rows[task_id(row)][mode]]
      for row in rows
    ]
    for mode in modes
  }, seconds


def table(
  verdicts: Mapping[str, Sequence[Sequence[bool | None]]],
) -> dict[str, dict[str, Any]]:
  """Per mode the counts and scores of one suite, as JSON data."""
  return {
    mode: {
      "problems": len(rows),
      "samples": sum(map(len, rows)),
      "passed": sum(v is True for row in rows for v in row),
      "infrastructure": sum(v is None for row in rows for v in row),
      **{k: dataclasses.asdict(s) for k, s in scores.code_scores(rows).items()},
    }
    for mode, rows in verdicts.items()
  }


def solution(row: Row, text: str) -> str | None:
  """The program in a completion, or None; with the imports of its prompt."""
  code = parsing.extract_code(text, evalplus.entry_point(row))
  if code.error:
    return None
  return f"{row['extra_info'].get('imports', '')}\n{code.source}".lstrip()


def _passed(status: str) -> bool | None:
  if status == Status.INFRASTRUCTURE:
    return None
  return status == Status.PASS


def _judge(
  rows: Sequence[Row],
  answers: Mapping[str, Mapping[str, Any]],
  modes: Sequence[str],
  pool: SandboxPool,
) -> list[dict[str, list[str]]]:
  """Per row and mode the status of each of its samples."""
  programs = [
    (row, _program(row, sample))
    for row in rows
    for sample in answers[task_id(row)]["samples"]
  ]
  runs = {"strict": _strict, "reference": _reference}
  found = {mode: iter(runs[mode](programs, pool)) for mode in modes}
  return [
    {
      mode: [next(found[mode]) for _ in answers[task_id(row)]["samples"]]
      for mode in modes
    }
    for row in rows
  ]


def _program(row: Row, sample: Mapping[str, Any]) -> str | None:
  """A sample's program: given, or what its text holds."""
  if "solution" in sample:
    return sample["solution"]
  return solution(row, sample["text"])


def _strict(programs: Sequence[tuple[Row, str | None]], pool) -> list[str]:
  """Statuses; what runs out of time gets that of its row's ground truth."""
  statuses = [str(Status.INVALID)] * len(programs)
  places = [at for at, (_, program) in enumerate(programs) if program]
  jobs = {at: _strict_job(*programs[at]) for at in places}
  slow = {}
  for at, result in zip(jobs, pool.check(list(jobs.values()))):
    statuses[at] = str(result.verdict.status)
    if result.verdict.status is Status.TIMEOUT:
      slow[at] = programs[at][0]
  truths = {task_id(row): row for row in slow.values()}
  limits = {}
  truth_jobs = [
    _strict_job(row, evalplus.ground_truth(row), _LONGEST_S)
    for row in truths.values()
  ]
  for name, result in zip(truths, pool.check(truth_jobs)):
    limits[name] = _SLACK * result.cpu_s
  again = {
    at: dataclasses.replace(jobs[at], cpu_s=limits[task_id(row)])
    for at, row in slow.items()
    if limits[task_id(row)] > _CPU_S
  }
  for at, result in zip(again, pool.check(list(again.values()))):
    statuses[at] = str(result.verdict.status)
  return statuses


def _strict_job(row: Row, program: str, cpu_s: float = _CPU_S) -> CheckJob:
  job = evalplus.strict_job(row, program, cpu_s)
  return dataclasses.replace(job, memory_mb=_MEMORY_MB)


def _reference(programs: Sequence[tuple[Row, str | None]], pool) -> list[str]:
  """Statuses under the tests as published, beside what they test."""
  statuses = [str(Status.INVALID)] * len(programs)
  jobs = {}
  for at, (row, program) in enumerate(programs):
    if program:
      name = row["extra_info"]["function_name"]
      whole = _REFERENCE.format(program=program, name=name, test=row["test"])
      jobs[at] = Job(whole, name, ())
  for at, result in zip(jobs, pool.run(list(jobs.values()))):
    statuses[at] = str(result.load.status)
  return statuses
