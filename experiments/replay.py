"""Judges a rollout dump again, under two settings, and shows how they differ.

  python -m experiments.replay --rollouts=runs/tiny/rollouts.jsonl.zst \
    --config=configs/tiny.py --other=configs/tiny.py \
    --other.rewards.preset=corrected [--out=differences.jsonl]

No model: programs and tests run again in the sandbox, rewards, Mistake Book,
TopVar and advantages are computed from what they do. A run dumps every
`dump_every` steps; for an exact book it must have been 1.
"""

import pathlib

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import assembly, checks, replay
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_OTHER = config_flags.DEFINE_config_file("other", lock_config=True)
_ROLLOUTS = flags.DEFINE_string("rollouts", None, "The dump.", required=True)
_OUT = flags.DEFINE_string("out", None, "Where to write the numbers as JSONL.")


def main(_):
  configs = [_CONFIG.value, _OTHER.value or _CONFIG.value]
  try:
    for config in configs:
      checks.check_values(config)
    steps = replay.load_dump(_ROLLOUTS.value)
    with assembly.open_pool(configs[0].sandbox) as pool:
      sides = [replay.replay(config, steps, pool) for config in configs]
      rows = []
      for ours, theirs in zip(*sides):
        rows.append(replay.difference(ours, theirs))
        print("\n".join(f"{k:>24} {v:.4g}" for k, v in rows[-1].items()) + "\n")
  except (OSError, ValueError) as error:
    command_line.fail(error)
  if _OUT.value:
    pathlib.Path(_OUT.value).write_text(replay.record(rows))


if __name__ == "__main__":
  flags.mark_flags_as_required(["config"])
  app.run(main, flags_parser=command_line.parse)
