"""Writes problem files: train.jsonl and heldout.jsonl in --out.

The shipped ones, and those of HumanEval+ and MBPP+ rows:

  python -m experiments.make_problems --out=codea1_jax/tiny
  python -m experiments.make_problems --evalplus=ROWS.parquet --heldout=8 \
    --out=build/evalplus

`python -m experiments.data` makes one of other datasets.
"""

import pathlib

from absl import app, flags

from codea1_jax import problems
from codea1_jax.datasets import code_a1, making, survey
from codea1_jax.tiny import corpus
from experiments import command_line

_OUT = flags.DEFINE_string("out", None, "Directory of the two files.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of split, constants and inputs.")
_EVALPLUS = flags.DEFINE_string("evalplus", "", "Parquet file of the rows.")
_HELDOUT = flags.DEFINE_integer(
  "heldout", 8, "Rows held out, drawn by the seed.", lower_bound=1
)
_TESTS = flags.DEFINE_integer(
  "tests", 16, "The most golden tests of a row's problem.", lower_bound=1
)


def _evalplus_problems():
  """Training and held-out problems of the rows; prints what is left out."""
  made = []
  with making.open_sandboxes() as sandboxes:
    report = survey.survey(
      _EVALPLUS.value, code_a1.NAME, sandboxes, _TESTS.value, made.append
    )
  print("\n".join(survey.lines(report)))
  if len(made) <= _HELDOUT.value:
    raise ValueError(
      f"{_EVALPLUS.value}: {len(made)} problems, --heldout={_HELDOUT.value}"
      " leaves none to train on"
    )
  heldout = problems.subset(made, _HELDOUT.value, _SEED.value)
  return [p for p in made if p not in heldout], heldout


def main(_):
  out = pathlib.Path(_OUT.value)
  try:
    if _EVALPLUS.value:
      files = _evalplus_problems()
    else:
      files = corpus.make_problems(_SEED.value)
  except (ValueError, RuntimeError) as error:
    command_line.fail(error)
  out.mkdir(parents=True, exist_ok=True)
  for name, rows in zip(("train", "heldout"), files):
    problems.save_problems(out / f"{name}.jsonl", rows)
    print(f"{out / name}.jsonl: {len(rows)} problems")


if __name__ == "__main__":
  flags.mark_flag_as_required("out")
  app.run(main, flags_parser=command_line.parse)
