"""Writes the shipped problem files: train.jsonl and heldout.jsonl in --out."""

import pathlib

from absl import app, flags

from codea1_jax import problems
from codea1_jax.tiny import corpus
from experiments import command_line

_OUT = flags.DEFINE_string("out", None, "Directory of the two files.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of split, constants and inputs.")


def main(_):
  out = pathlib.Path(_OUT.value)
  out.mkdir(parents=True, exist_ok=True)
  for name, rows in zip(
    ("train", "heldout"), corpus.make_problems(_SEED.value)
  ):
    problems.save_problems(out / f"{name}.jsonl", rows)
    print(f"{out / name}.jsonl: {len(rows)} problems")


if __name__ == "__main__":
  flags.mark_flag_as_required("out")
  app.run(main, flags_parser=command_line.parse)
