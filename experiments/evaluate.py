"""Scores models on the paper's benchmarks, and writes all that it saw.

  python -m experiments.evaluate --model=DIR --suite=humanevalplus,mbppplus \
    --data=ROWS.parquet --samples=32 --out=runs/scores
  python -m experiments.evaluate --model=DIR --suite=ult --data=ULT.jsonl \
    --fixed_sample=SAMPLE.json --mode=strict,reference --out=runs/tests

--model is a directory, hub:ORG/NAME, shipped:NAME, ground_truth (the rows' own
answers; not for ult), or a run's WORKDIR[:STEP]: its Code LLM, for ult its Test
LLM. A samples file has lines with task_id and solution, a program; for ult with
task_id and tests, five answers. The same command goes on where it was stopped.
"""

import dataclasses
import json
import pathlib

from absl import app, flags

from codea1_jax import code_suites
from codea1_jax.ult import suite as ult
from experiments import command_line

_TEXT, _NUMBER = flags.DEFINE_string, flags.DEFINE_integer
_TEXT("model", "", "Whose answers.")
_TEXT("samples_file", "", "Or answers as given.")
_SUITE = flags.DEFINE_list("suite", None, "Of humanevalplus, mbppplus; or ult.")
_TEXT("data", None, "The rows: parquet, for ult JSON.")
_TEXT("fixed_sample", "", "ult: the functions of mut@k; all without it.")
_OUT = _TEXT("out", None, "Directory of answers and scores.")
_MODE = flags.DEFINE_list("mode", ["strict"], "Of strict, reference.")
_NUMBER("limit", 0, "Only so many rows of each suite.")
_NUMBER("samples", 32, "Answers a row; ult: always five.", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float(
  "temperature", None, "0: greedy. 0.7; ult: 0."
)
flags.DEFINE_float("top_p", 0.95, "Of the sampling.")
_NUMBER("max_new_tokens", 4096, "Of an answer.")
_NUMBER("max_prompt_tokens", 4096, "Its last ones.")
_NUMBER("max_rows", 256, "Answers decoded at a time.")
_TEXT("dtype", "float32", "Of the computation.")
_NUMBER("seed", 0, "Of the sampling.")
_WORKERS = _NUMBER("workers", 0, "Of the sandbox; 0: the cores.")


def main(_):
  out, suites = pathlib.Path(_OUT.value), tuple(_SUITE.value)
  kind = ult if suites == (ult.NAME,) else code_suites
  given = flags.FLAGS.flag_values_dict()
  given |= {"suites": suites, "modes": tuple(_MODE.value)}
  if _TEMPERATURE.value is None:
    given["temperature"] = 0.0 if kind is ult else 0.7
  given["samples"] = given["samples"] if given["temperature"] else 1
  fields = [field.name for field in dataclasses.fields(kind.Settings)]
  try:
    settings = kind.Settings(**{name: given[name] for name in fields})
    scores = kind.run(settings, out, _WORKERS.value or None)
  except (ValueError, OSError) as error:
    command_line.fail(error)
  (out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
  print(kind.markdown(scores))


if __name__ == "__main__":
  flags.mark_flags_as_required(["suite", "data", "out"])
  app.run(main, flags_parser=command_line.parse)
