"""Where a run begins: where it stopped, at another run's checkpoint,
or anew."""

import dataclasses
import pathlib
import sys
from typing import Any

from codea1_jax import assembly, checkpoint, checks
from codea1_jax.assembly import InputError, Run
from codea1_jax.checkpointing import Checkpoints
from codea1_jax.train_state import RunState


@dataclasses.dataclass(frozen=True)
class Start:
  """What the user says of a run's beginning; paths are "WORKDIR[:STEP]"."""

  resume: bool = True  # False: the workdir must hold no run yet
  restore: str = ""  # the whole game of another run, its step and book too
  restore_code: str = ""  # one policy of it, after or without the whole
  restore_test: str = ""
  params_only: bool = False  # optimizers, book and step begin anew
  allow_config_change: tuple[str, ...] = ()  # fields, or groups of them

  def check(self, workdir: pathlib.Path, config: Any) -> None:
    """Before anything is built.

    Raises:
      InputError: a checkpoint that is not there, or a run that is.
    """
    try:
      for source in filter(None, self._sources()):
        checkpoint.find(source)
      checks.check_fields(config, self.allow_config_change)
    except (checkpoint.CheckpointError, ValueError) as error:
      raise InputError(str(error)) from error
    if (workdir / "config.json").exists() and not self.resume:
      raise InputError(
        f"{workdir} holds a run already: choose another --workdir, or go on"
        " with it by leaving --noresume out"
      )

  def _sources(self) -> tuple[str, str, str]:
    return self.restore, self.restore_code, self.restore_test


AFRESH = Start()


def first_state(run: Run, checkpoints: Checkpoints, start: Start) -> RunState:
  """The state that the first step of this process begins with.

  Raises:
    InputError: no checkpoint is whole, or another run's does not fit.
  """
  state = run.initial_state()
  try:
    if run.resume and checkpoints.latest_step() is not None:
      state = checkpoints.restore(state, run.parallel)
      print(f"going on at step {state.step}", file=sys.stderr)
      return state
    restored = _from_others(run, state, start)
  except checkpoint.CheckpointError as error:
    raise InputError(str(error)) from error
  if restored is not state:
    # From here on the run needs the others no more.
    checkpoints.save(restored, run.parallel, run.config)
  return restored


def _from_others(run: Run, state: RunState, start: Start) -> RunState:
  """`state` with what the user takes from other runs."""
  trained = assembly.TRAINED[run.config.method]
  for role, text in (
    ("code", start.restore_code or start.restore),
    ("test", start.restore_test or start.restore),
  ):
    if not text:
      continue
    if role not in trained and text != start.restore:
      raise InputError(
        f"--restore_{role}: method {run.config.method} trains"
        f" {' and '.join(trained)} only"
      )
    source = checkpoint.find(text)
    policy = checkpoint.read_policy(
      source,
      role,
      getattr(state, role),
      run.parallel[role],
      start.params_only,
    )
    state = state.replace(**{role: policy})
    print(f"the {role} policy is that of {source}", file=sys.stderr)
  if start.restore and not start.params_only:
    game = checkpoint.read_game(checkpoint.find(start.restore))
    state = state.replace(**game)
  return state
