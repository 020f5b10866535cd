"""Asks for five tests a function, judges them, and counts.

Answers and verdicts go to disk as they come (journal.py). Tests run while the
next functions' are generated.
"""

import collections
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

import tqdm

from codea1_jax.code_evaluation import Seconds
from codea1_jax.journal import Journal
from codea1_jax.ult.rounds import ROUNDS, Ask
from codea1_jax.ult.rows import Function

# judge(functions, [P][5] texts) -> [P] JSON objects, by mode
Judge = Callable[
  [Sequence[Function], Sequence[Sequence[str]]], list[dict[str, Any]]
]


def evaluate(
  functions: Sequence[Function],
  ask: Ask,
  judge: Judge,
  directory: pathlib.Path,
  chunk: int,
) -> tuple[list[dict[str, Any]], Seconds]:
  """Answers about functions, and what their tests are worth.

  Args:
    functions: [P].
    ask: see `rounds.make_ask`; not called for answers that are on disk.
    judge: not called for verdicts that are on disk.
    directory: gets samples.jsonl and verdicts.jsonl, a line a function.
    chunk: functions that go through the rounds, and are then judged, together.

  Returns:
    [P] what `judge` found; and the seconds that this call took.
  """
  samples = Journal(directory / "samples.jsonl")
  verdicts = Journal(directory / "verdicts.jsonl")
  seconds, waiting = Seconds(), collections.deque()
  # A step is a function's answer in one round, or its verdict.
  done = sum(len(_answers(samples, f)) for f in functions)
  done += sum(f.task_id in verdicts.rows for f in functions)
  total = (ROUNDS + 1) * len(functions)
  with (
    tqdm.tqdm(
      total=total, initial=done, desc=directory.name, file=sys.stderr
    ) as bar,
    futures.ThreadPoolExecutor(1) as executor,
  ):

    def run(part: Sequence[Function]) -> None:
      started = time.monotonic()
      texts = [_texts(samples, f) for f in part]
      for function, found in zip(part, judge(part, texts)):
        verdicts.add(function.task_id, found)
        bar.update()
      seconds.execution += time.monotonic() - started

    for first in range(0, len(functions), chunk):
      part = functions[first : first + chunk]
      started = time.monotonic()
      if _answer(part, first, ask, samples, bar):
        seconds.generation += time.monotonic() - started
      left = [f for f in part if f.task_id not in verdicts.rows]
      if left:
        waiting.append(executor.submit(run, left))
      while waiting and waiting[0].done():
        waiting.popleft().result()  # a mistake ends the evaluation here
    for future in waiting:
      future.result()
  return [verdicts.rows[f.task_id] for f in functions], seconds


def _answer(
  functions: Sequence[Function],
  first: int,
  ask: Ask,
  samples: Journal,
  bar: tqdm.tqdm,
) -> bool:
  """Takes all functions through the rounds that they lack, one after the other.

  A function's line in the journal grows by an answer a round, so that a stop
  loses one round of this batch. Says whether anything was asked.
  """
  said = [_answers(samples, f) for f in functions]
  done = min(map(len, said))
  for past in range(done, ROUNDS):
    said = [answers[:past] for answers in said]
    texts = [[a["text"] for a in answers] for answers in said]
    said = [
      [*answers, new]
      for answers, new in zip(said, ask(functions, texts, first))
    ]
    for function, answers in zip(functions, said):
      samples.add(function.task_id, {"answers": answers})
    bar.update(len(functions))
  return done < ROUNDS


def _answers(samples: Journal, function: Function) -> list[Mapping[str, Any]]:
  return samples.rows.get(function.task_id, {}).get("answers", [])


def _texts(samples: Journal, function: Function) -> list[str]:
  return [a["text"] for a in _answers(samples, function)]
