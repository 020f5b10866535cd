"""A whole step by stage: its seconds, the least they could be, how they grow.

  python -m experiments.benchmark_step [--config=configs/tiny.py]
    [--config.FIELD=VALUE ...] [--rounds=5] [--warm_up=3] [--out=FILE.json]
    [--grow=questions,codes,suites,length,width,devices]

Plays real steps of the config, the first ones to warm up and compile. What a
stage needs at least, and at what measured rates: benchmark_step_stages. What
grows with `--grow`, and from where: benchmark_step_growth. `--out` gets all
numbers, and the picture lies beside it as FILE.svg.
"""

import json
import pathlib

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import assembly
from experiments import (
  benchmark_step_growth,
  benchmark_step_picture,
  benchmark_step_stages,
  command_line,
)
from experiments.benchmark_flags import OUT, ROUNDS

_CONFIG = config_flags.DEFINE_config_file(
  "config", "configs/tiny.py", lock_config=True
)
_WARM_UP = flags.DEFINE_integer("warm_up", 3, "Steps before those.", 1)
_GROW = flags.DEFINE_list("grow", "", "Fields that are doubled, twice.")


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments: {argv[1:]}")
  config, steps = _CONFIG.value, (_WARM_UP.value, ROUNDS.value)
  out = pathlib.Path(OUT.value) if OUT.value else None
  try:
    if out:
      benchmark_step_picture.check(out)
    benchmark_step_growth.check(_GROW.value)
    report = benchmark_step_stages.report(config, *steps)
    growth = benchmark_step_growth.report(config, _GROW.value, *steps)
    if out:
      text = json.dumps(report | {"growth": growth}, indent=1)
      out.write_text(text + "\n", encoding="utf-8")
      benchmark_step_picture.draw(report["lines"], growth, out)
  except (assembly.InputError, OSError, ValueError) as error:
    command_line.fail(error)


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
