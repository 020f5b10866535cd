"""Plays runs' policies against and beside each other, on held-out problems.

  python -m experiments.matches --code=RUN1 --test=RUN2 --suite=cross_play \
    --out=runs/match
  python -m experiments.matches --code=RUN1:step --test=RUN2:step \
    --suite=collaboration --samples=8 --data=PROBLEMS.jsonl --out=...

In cross-play a run stands for all its checkpoints; several are given with
commas. Without --data it is the first run's own held-out problems. --out gets
the suite's JSON file; with one run against itself and no --out it goes to that
run, whose report shows it. experiments.evaluate has the same suites.
"""

from absl import app, flags

from codea1_jax import matches
from experiments import command_line

_CODE = flags.DEFINE_list("code", None, "Code LLMs: RUN[:STEP], or models.")
_TEST = flags.DEFINE_list("test", None, "Test LLMs, the same way.")
_SUITE = flags.DEFINE_enum("suite", "cross_play", matches.SUITES, "Which.")
_DATA = flags.DEFINE_string("data", "", "Problems, JSONL.")
_OUT = flags.DEFINE_string("out", "", "Directory.")
_LIMIT = flags.DEFINE_integer("limit", 0, "Only so many of the problems.")
_SAMPLES = flags.DEFINE_integer("samples", 1, "Codes a problem.", lower_bound=1)
_SUITES = flags.DEFINE_integer("suites", 1, "Suites a code.", lower_bound=1)
_TESTS = flags.DEFINE_integer("tests", 8, "Tests a suite.", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "0: greedy.")
_TOKENS = flags.DEFINE_integer("max_new_tokens", 4096, "Of an answer.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the sampling.")


def main(_):
  settings = matches.Settings(
    codes=_SAMPLES.value,
    suites=_SUITES.value,
    tests=_TESTS.value,
    temperature=_TEMPERATURE.value,
    max_new_tokens=_TOKENS.value,
    seed=_SEED.value,
  )
  try:
    text = matches.play(
      _SUITE.value,
      _CODE.value,
      _TEST.value,
      _DATA.value,
      _LIMIT.value,
      _OUT.value,
      settings,
    )
  except (ValueError, OSError) as error:
    command_line.fail(error)
  print(text)


if __name__ == "__main__":
  flags.mark_flags_as_required(["code", "test"])
  app.run(main, flags_parser=command_line.parse)
