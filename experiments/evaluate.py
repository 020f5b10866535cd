"""Scores models on the paper's benchmarks, and writes all that it saw.

  python -m experiments.evaluate --model=DIR --suite=humanevalplus,mbppplus \
    --data=ROWS.parquet --samples=32 --out=runs/scores
  python -m experiments.evaluate --model=DIR --suite=ult --data=ULT.jsonl \
    --fixed_sample=SAMPLE.json --mode=strict,reference --out=runs/tests
  python -m experiments.evaluate --model=DIR --suite=bigcodebench-export \
    --split=instruct --data=ROWS.jsonl --out=... (then, of its evaluator's file)
  python -m experiments.evaluate --suite=bigcodebench-export --results=FILE.json
  python -m experiments.evaluate --code=RUN1:STEP --test=RUN2:STEP \
    --suite=collaboration (or cross_play; see experiments.matches)

--model is a directory, hub:ORG/NAME, shipped:NAME, ground_truth (the rows' own
answers; not for ult), or a run's WORKDIR[:STEP]: its Code LLM, for ult its Test
LLM. --samples_file stands in for it: lines with task_id and solution, a
program; for ult with task_id and tests, five answers. The same command goes on
where it was stopped.
"""

import dataclasses
import json
import pathlib

from absl import app, flags

from codea1_jax import bigcodebench_export, code_suites, matches
from codea1_jax.ult import suite as ult
from experiments import command_line

_TEXT, _NUMBER = flags.DEFINE_string, flags.DEFINE_integer
_TEXT("model", "", "Whose answers.")
_TEXT("samples_file", "", "Or answers as given.")
flags.DEFINE_list("suite", None, "Which, see above.", required=True)
_TEXT("data", "", "The rows.")
_TEXT("fixed_sample", "", "ult: the functions of mut@k; all without it.")
_TEXT("split", "instruct", "bigcodebench: or complete.")
_TEXT("results", "", "bigcodebench: what its evaluator wrote.")
flags.DEFINE_list("code", [], "Code LLMs of a match: RUN[:STEP].")
flags.DEFINE_list("test", [], "Test LLMs of a match.")
_NUMBER("suites", 1, "Of a match, a code.", lower_bound=1)
_NUMBER("tests", 8, "Of a match's suite.", lower_bound=1)
_TEXT("out", "", "Directory of answers and scores.")
flags.DEFINE_list("mode", ["strict"], "Of strict, reference.")
_NUMBER("limit", 0, "Only so many rows of each suite.")
_NUMBER("samples", 32, "Answers a row; ult: always five.", lower_bound=1)
flags.DEFINE_float("temperature", None, "0: greedy. 0.7 unless given; ult: 0.")
flags.DEFINE_float("top_p", 0.95, "Of the sampling.")
_NUMBER("max_new_tokens", 4096, "Of an answer.")
_NUMBER("max_prompt_tokens", 4096, "Its last ones.")
_NUMBER("max_rows", 256, "Answers decoded at a time.")
_TEXT("dtype", "float32", "Of the computation.")
_NUMBER("seed", 0, "Of the sampling.")
_NUMBER("workers", 0, "Of the sandbox; 0: the cores.")


def evaluate(given) -> str:
  """The flags' values -> what there is to print."""
  suite, only = tuple(given["suite"]), given["suite"][0]
  if given["temperature"] is None:
    given["temperature"] = 0.0 if only == ult.NAME else 0.7
  given["samples"] = given["samples"] if given["temperature"] else 1
  if set(suite) <= set(matches.SUITES):
    who = [given[name] for name in ("code", "test", "data", "limit", "out")]
    settings = _settings(matches, given, codes=given["samples"])
    return matches.play(only, *who, settings)
  kind = {
    (ult.NAME,): ult,
    (bigcodebench_export.SUITE,): bigcodebench_export,
  }.get(suite, code_suites)
  if kind is bigcodebench_export and given["results"]:
    return code_suites.markdown(bigcodebench_export.read(given["results"]))
  if not (given["data"] and given["out"]):
    raise ValueError("--data or --out is missing")
  settings = _settings(kind, given, suites=suite, modes=tuple(given["mode"]))
  out = pathlib.Path(given["out"])
  scores = kind.run(settings, out, given["workers"] or None)
  text = json.dumps(scores, indent=2) + "\n"
  (out / "scores.json").write_text(text)
  return text if kind is bigcodebench_export else kind.markdown(scores)


def _settings(kind, given, **more):
  """The kind's Settings: of all values those that it has fields for."""
  given = given | more
  names = [field.name for field in dataclasses.fields(kind.Settings)]
  return kind.Settings(**{name: given[name] for name in names})


def main(_):
  try:
    print(evaluate(flags.FLAGS.flag_values_dict()))
  except (ValueError, OSError) as error:
    command_line.fail(error)


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
