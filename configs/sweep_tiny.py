"""A small sweep: learning rate and weight of validity, two seeds each.

  python -m experiments.sweep --config=configs/sweep_tiny.py \
    --workdir=runs/sweep

Twelve runs of 12 steps on the embedded pair. Hardware: 2 CPU cores, about a
minute a run. docs/sweep.md shows what came out.
"""

from ml_collections import config_dict

from codea1_jax import sweep as sweeps
from configs import tiny


def sweep(add):
  settings = sweeps.grid(
    {
      "code.optimizer.learning_rate": (1e-4, 3e-4, 1e-3),
      "rewards.alpha": (0.2, 0.5),
    }
  )
  for changes in sweeps.with_seeds(settings, 2):
    add(changes)


def get_config() -> config_dict.ConfigDict:
  """The embedded default, shorter and smaller."""
  config = tiny.get_config()
  config.num_steps = 12
  config.rollout.questions = 8
  config.rollout.codes = 4
  config.rollout.suites = 3
  config.max_train_problems = 96
  config.evaluation.every = 1000  # before and after
  config.evaluation.samples = 2
  config.evaluation.targets = 2
  config.checkpoint.every = 4
  config.dump_every = 6
  return config
