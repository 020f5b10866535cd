"""Scores models on the paper's benchmarks, and writes all that it saw.

  python -m experiments.evaluate --model=DIR --suite=humanevalplus,mbppplus \
    --data=ROWS.parquet --samples=32 --out=runs/scores
  python -m experiments.evaluate --model=WORKDIR:STEP ... (a run's Code LLM)
  python -m experiments.evaluate --samples_file=FILE.jsonl --suite=mbppplus ...

--model is a directory, hub:ORG/NAME, shipped:NAME, a run's WORKDIR[:STEP], or
ground_truth, the rows' own answers. A samples file has lines with task_id and
solution, a program. The same command goes on where it was stopped.
"""

import json
import pathlib

from absl import app, flags

from codea1_jax import code_suites
from experiments import command_line

_MODEL = flags.DEFINE_string("model", "", "Whose answers.")
_SAMPLES_FILE = flags.DEFINE_string("samples_file", "", "Or answers as given.")
_SUITE = flags.DEFINE_list("suite", None, "Of humanevalplus, mbppplus.")
_DATA = flags.DEFINE_string("data", None, "The rows, parquet.")
_OUT = flags.DEFINE_string("out", None, "Directory of answers and scores.")
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
_WORKERS = flags.DEFINE_integer("workers", 0, "Of the sandbox; 0: the cores.")


def main(_):
  out = pathlib.Path(_OUT.value)
  try:
    settings = code_suites.Settings(
      model=_MODEL.value,
      samples_file=_SAMPLES_FILE.value,
      suites=tuple(_SUITE.value),
      data=_DATA.value,
      modes=tuple(_MODE.value),
      limit=_LIMIT.value,
      samples=_SAMPLES.value if _TEMPERATURE.value else 1,
      temperature=_TEMPERATURE.value,
      top_p=_TOP_P.value,
      max_new_tokens=_TOKENS.value,
      max_prompt_tokens=_PROMPT.value,
      max_rows=_ROWS.value,
      dtype=_DTYPE.value,
      seed=_SEED.value,
    )
    scores = code_suites.run(settings, out, _WORKERS.value or None)
  except (ValueError, OSError) as error:
    command_line.fail(error)
  (out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
  print(code_suites.markdown(scores))


if __name__ == "__main__":
  flags.mark_flags_as_required(["suite", "data", "out"])
  app.run(main, flags_parser=command_line.parse)
