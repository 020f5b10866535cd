"""What saving after every step costs: nothing, in the background, or waiting.

  python -m experiments.benchmark_checkpoint --config=configs/tiny.py

The three take turns, some steps each, so that a machine's moods meet all of
them; the first round, which compiles, does not count. What the steps lose while
files are written beside them is in the times, and so is waiting for the last.
"""

import pathlib
import statistics
import tempfile
import time

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import assembly, trainer
from codea1_jax.checkpoint import CheckpointError
from codea1_jax.checkpointing import Checkpoints
from codea1_jax.run_log import Stop
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_ROUNDS = flags.DEFINE_integer("rounds", 4, "Turns of each.", lower_bound=1)
_STEPS = 5  # of a turn
_WAYS = ("none", "background", "waiting")


def measure(config, rounds: int, workdir: pathlib.Path):
  """Seconds a step of each turn, and of that in calls of save, by way."""
  seconds, calls = ({way: [] for way in _WAYS} for _ in range(2))
  with (
    assembly.open_run(config, workdir) as run,
    Checkpoints(workdir, config.checkpoint.keep) as checkpoints,
  ):
    state = run.initial_state()
    for turn in range((rounds + 1) * len(_WAYS)):
      way, saving = _WAYS[turn % len(_WAYS)], 0.0
      started = time.perf_counter()
      for _ in range(_STEPS):
        state, _, _ = trainer.STEPS[config.method](run, state, Stop())
        stepped = time.perf_counter()
        if way != "none":
          checkpoints.save(state, run.parallel, config)
        if way == "waiting":
          checkpoints.wait()
        saving += time.perf_counter() - stepped
      checkpoints.wait()
      if turn >= len(_WAYS):
        seconds[way].append((time.perf_counter() - started) / _STEPS)
        calls[way].append(saving / _STEPS)
  return seconds, calls


def main(_):
  with tempfile.TemporaryDirectory() as folder:
    try:
      seconds, calls = measure(
        _CONFIG.value, _ROUNDS.value, pathlib.Path(folder)
      )
    except (assembly.InputError, CheckpointError) as error:
      command_line.fail(error)
  base = statistics.median(seconds["none"])
  print("| saving | a step, s | x none | in the save, share of a step |")
  print("|---|---|---|---|")
  for way in _WAYS:
    median = statistics.median(seconds[way])
    share = statistics.median(calls[way]) / base
    print(f"| {way} | {median:.2f} | {median / base:.3f} | {share:.1%} |")


if __name__ == "__main__":
  flags.mark_flags_as_required(["config"])
  app.run(main, flags_parser=command_line.parse)
