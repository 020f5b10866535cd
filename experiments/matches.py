"""Plays runs' policies against and beside each other, on held-out problems.

  python -m experiments.matches --code=RUN1 --test=RUN2 --suite=cross_play \
    --data=HELDOUT.jsonl --out=runs/match
  python -m experiments.matches --code=RUN1:step --test=RUN2:step \
    --suite=collaboration --samples=8 --data=... --out=...

In cross-play a run stands for all its checkpoints; several are given with
commas. --out gets the suite's JSON file; with one run against itself and no
--out it goes to that run, whose report shows it.
"""

import json
import pathlib

from absl import app, flags

from codea1_jax import matches, problems
from codea1_jax.inputs import resolve
from codea1_jax.sandbox import SandboxPool
from experiments import command_line

_CODE = flags.DEFINE_list("code", None, "Code LLMs: RUN[:STEP], or models.")
_TEST = flags.DEFINE_list("test", None, "Test LLMs, the same way.")
_SUITE = flags.DEFINE_enum(
  "suite", "cross_play", ["cross_play", "collaboration"], "What to play."
)
_DATA = flags.DEFINE_string("data", "shipped:heldout", "Problems, JSONL.")
_OUT = flags.DEFINE_string("out", "", "Directory.")
_LIMIT = flags.DEFINE_integer("limit", 0, "Only so many of the problems.")
_SAMPLES = flags.DEFINE_integer("samples", 1, "Codes a problem.", lower_bound=1)
_SUITES = flags.DEFINE_integer("suites", 1, "Suites a code.", lower_bound=1)
_TESTS = flags.DEFINE_integer("tests", 8, "Tests a suite.", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "0: greedy.")
_TOKENS = flags.DEFINE_integer("max_new_tokens", 4096, "Of an answer.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the sampling.")


def _play(chosen, settings, pool):
  """The suite's JSON data, and its lines for a terminal."""
  coders, testers = _CODE.value, _TEST.value
  if _SUITE.value == "cross_play":
    coders, testers = (
      [one for name in names for one in matches.saved(name)]
      for names in (coders, testers)
    )
    found = matches.cross_play(coders, testers, chosen, settings, pool)
    return found, matches.cross_play_table(found)
  if len(coders) != 1 or len(testers) != 1:
    raise ValueError("--suite=collaboration: one --code and one --test")
  found = matches.collaborate(*coders, *testers, chosen, settings, pool)
  lines = [f"{name}: {score}" for name, score in found.items()]
  return {name: vars(score) for name, score in found.items()}, "\n".join(lines)


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
    out = pathlib.Path(_OUT.value or _CODE.value[0])
    if not _OUT.value and (_CODE.value != _TEST.value or not out.is_dir()):
      raise ValueError("--out is missing: it is not one run against itself")
    chosen = problems.load_problems(resolve(_DATA.value, ".jsonl"))
    chosen = chosen[: _LIMIT.value or None]
    with SandboxPool() as pool:
      found, text = _play(chosen, settings, pool)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{_SUITE.value}.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
  except (ValueError, OSError) as error:
    command_line.fail(error)
  print(f"{text}\nwrote {path}")


if __name__ == "__main__":
  flags.mark_flags_as_required(["code", "test"])
  app.run(main, flags_parser=command_line.parse)
