"""Supervised training of one small policy: see configs/tiny_sft.py."""

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import sft
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_OUT = flags.DEFINE_string("out", None, "Directory of the model to write.")


def main(_):
  sft.train_sft(_CONFIG.value, _OUT.value)


if __name__ == "__main__":
  flags.mark_flags_as_required(["config", "out"])
  app.run(main, flags_parser=command_line.parse)
