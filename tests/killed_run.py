"""A training process that sends itself a signal somewhere in a stage.

python killed_run.py WORKDIR STEPS [STAGE CALL DELAY_S [SIGNAL]]

STAGE is a name below; CALL, from 0, is which of its calls in this process; the
signal, SIGKILL by default, comes DELAY_S after that call began. Without them
the run goes to its end.
"""

import os
import signal
import sys
import threading

from small_runs import small_config

from codea1_jax import (
  dumps,
  jsonl,
  player,
  problems,
  run_log,
  trainer,
  writing,
)
from codea1_jax.checkpointing import Checkpoints
from codea1_jax.sandbox import SandboxPool

STAGES = {
  "rollout": (writing, "sample_suites"),
  "sandbox": (SandboxPool, "run"),
  "update": (player.Player, "learn"),
  "saving": (Checkpoints, "save"),
  "writing": (jsonl.JsonlWriter, "write"),
  "dumping": (dumps.DumpWriter, "write"),
  "evaluation": (run_log.RunLog, "evaluation_is_due"),
}
SETTINGS = {
  "rollout.questions": 2,
  "rollout.codes": 3,
  "rollout.suites": 2,
  "code.max_new_tokens": 64,
  "test.max_new_tokens": 64,
  "checkpoint.keep": 3,
  "sandbox.workers": 1,
}


def kill_in(stage, call, delay, number):
  """Has a thread send the signal to this process."""
  owner, name = STAGES[stage]
  original, calls = getattr(owner, name), iter(range(10**6))

  def called(*args, **kwargs):
    if next(calls) == call:
      kill = threading.Timer(delay, os.kill, (os.getpid(), number))
      kill.daemon = True
      kill.start()
    return original(*args, **kwargs)

  setattr(owner, name, called)


def main(workdir, steps, stage=None, call="0", delay="0", name="SIGKILL"):
  load = problems.load_problems
  problems.load_problems = lambda path: load(path)[
    : 4 if "heldout" in str(path) else 20
  ]
  if stage:
    kill_in(stage, int(call), float(delay), signal.Signals[name])
  trainer.train(small_config(num_steps=int(steps), **SETTINGS), workdir)


if __name__ == "__main__":
  main(*sys.argv[1:])
