"""Trains a pair of policies: --config=configs/tiny.py --workdir=runs/tiny."""

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import assembly, trainer
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the run.")


def main(_):
  try:
    trainer.train(_CONFIG.value, _WORKDIR.value)
  except assembly.InputError as error:
    command_line.fail(error)


if __name__ == "__main__":
  flags.mark_flags_as_required(["config", "workdir"])
  app.run(main, flags_parser=command_line.parse)
