"""The embedded default's config, and at its smallest."""

from configs import tiny

SMALL = {
  "num_steps": 2,
  "rollout.questions": 3,
  "rollout.codes": 4,
  "rollout.suites": 3,
  "rollout.bucket": 64,
  "evaluation.samples": 1,
  "evaluation.targets": 1,
  "evaluation.every": 100,
  "checkpoint.every": 1,
  "dump_every": 1,
}


def make_config(**changes):
  """The embedded default with some fields changed."""
  config = tiny.get_config()
  config.update_from_flattened_dict(changes)
  return config


def small_config(**changes):
  """At its smallest; every stage runs for real."""
  return make_config(**SMALL | changes)
