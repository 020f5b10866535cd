"""Scores models on the paper's benchmarks, and writes all that it saw.

  python -m experiments.evaluate --model=DIR --suite=humanevalplus,mbppplus \
    --data=ROWS.parquet --samples=32 --out=runs/scores
  python -m experiments.evaluate --model=WORKDIR:STEP ... (a run's Code LLM)
  python -m experiments.evaluate --samples_file=FILE.jsonl --suite=mbppplus ...
  python -m experiments.evaluate --model=DIR --suite=bigcodebench-export \
    --split=instruct --data=BIGCODEBENCH.jsonl --out=... (for its evaluator)
  python -m experiments.evaluate --suite=bigcodebench-export --results=FILE.json
  python -m experiments.evaluate --code=RUN1:STEP --test=RUN2:STEP \
    --suite=collaboration (or cross_play; see experiments.matches)

--model is a directory, hub:ORG/NAME, shipped:NAME, a run's WORKDIR[:STEP], or
ground_truth, the rows' own answers. A samples file has lines with task_id and
solution, a program. The same command goes on where it was stopped.
"""

import json
import pathlib
from typing import Any

from absl import app, flags

from codea1_jax import bigcodebench_export, code_suites, matches
from experiments import command_line

_MODEL = flags.DEFINE_string("model", "", "Whose answers.")
_SAMPLES_FILE = flags.DEFINE_string("samples_file", "", "Or answers as given.")
_SUITE = flags.DEFINE_list("suite", None, "Which, see above.", required=True)
_DATA = flags.DEFINE_string("data", "", "The rows.")
_OUT = flags.DEFINE_string("out", "", "Directory of answers and scores.")
_MODE = flags.DEFINE_list("mode", ["strict"], "Of strict, reference.")
_LIMIT = flags.DEFINE_integer("limit", 0, "Only so many rows of each suite.")
_SAMPLES = flags.DEFINE_integer("samples", 32, "Answers a row.", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float("temperature", 0.7, "0: greedy, one answer.")
_TOP_P = flags.DEFINE_float("top_p", 0.95, "Of the sampling.")
_TOKENS = flags.DEFINE_integer("max_new_tokens", 4096, "Of an answer.")
_PROMPT = flags.DEFINE_integer("max_prompt_tokens", 4096, "Its last ones.")
_ROWS = flags.DEFINE_integer("max_rows", 256, "Answers decoded at a time.")
_DTYPE = flags.DEFINE_string("dtype", "float32", "Of the computation.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the sampling.")
_SPLIT = flags.DEFINE_string(
  "split", "instruct", "Or complete: BigCodeBench's."
)
_RESULTS = flags.DEFINE_string("results", "", "Of BigCodeBench's evaluator.")
_CODE = flags.DEFINE_list("code", [], "Code LLMs of a match: RUN[:STEP].")
_TEST = flags.DEFINE_list("test", [], "Test LLMs of a match.")
_SUITES = flags.DEFINE_integer(
  "suites", 1, "Of a match, a code.", lower_bound=1
)
_TESTS = flags.DEFINE_integer("tests", 8, "Of a match's suite.", lower_bound=1)
_WORKERS = flags.DEFINE_integer("workers", 0, "Of the sandbox; 0: the cores.")

# What answers depend on, in all suites, and what else the benchmarks' do.
_SAMPLED = [
  "temperature",
  "top_p",
  "max_new_tokens",
  "max_rows",
  "dtype",
  "seed",
]
_ANSWERED = ["model", "samples_file", "data", "limit", "max_prompt_tokens"]


def _given(*names: str) -> dict[str, Any]:
  return {name: flags.FLAGS[name].value for name in names}


def _samples() -> int:
  return _SAMPLES.value if _TEMPERATURE.value else 1


def _play() -> str:
  settings = matches.Settings(
    codes=_samples(), **_given("suites", "tests", *_SAMPLED)
  )
  given = _given("code", "test", "data", "limit", "out")
  return matches.play(_SUITE.value[0], *given.values(), settings)


def _evaluate() -> dict[str, Any]:
  """Scores, and what else there is to say, as JSON data."""
  export = _SUITE.value == [bigcodebench_export.SUITE]
  if export and _RESULTS.value:
    return bigcodebench_export.read(_RESULTS.value)
  out = pathlib.Path(_OUT.value)
  if not (_DATA.value and _OUT.value):
    raise ValueError("--data or --out is missing")
  given = _given(*_ANSWERED, *_SAMPLED)
  given["samples"] = _samples()
  if export:
    settings = bigcodebench_export.Settings(split=_SPLIT.value, **given)
    return bigcodebench_export.run(settings, out)
  suites, modes = tuple(_SUITE.value), tuple(_MODE.value)
  settings = code_suites.Settings(suites=suites, modes=modes, **given)
  return code_suites.run(settings, out, _WORKERS.value or None)


def main(_):
  try:
    if set(_SUITE.value) <= set(matches.SUITES):
      print(_play())
      return
    scores = _evaluate()
  except (ValueError, OSError) as error:
    command_line.fail(error)
  if _OUT.value:
    path = pathlib.Path(_OUT.value) / "scores.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(scores, indent=2) + "\n")
  print(code_suites.markdown(scores) or json.dumps(scores, indent=2))


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
