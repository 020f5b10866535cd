"""The whole game as one Orbax checkpoint: policies, optimizers, book, step."""

import json
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from codea1_jax import checkpoint, jsonl
from codea1_jax.checkpoint import CheckpointError
from codea1_jax.devices import Parallel
from codea1_jax.train_state import RunState

ROLES = ("code", "test")


class Checkpoints:
  """Saves and restores RunStates below `workdir/checkpoints`.

  Args:
    workdir: of the run.
    keep: how many of the newest are kept.
    keep_every: above 0, those of its multiples are kept too.
    best: the evaluation's metric, if any, whose best checkpoint is kept too.
    hosts: what `Hosts.gather` does with a value, for several hosts.
  """

  def __init__(
    self,
    workdir: str | pathlib.Path,
    keep: int,
    keep_every: int = 0,
    best: str = "",
    gather=lambda value: [value],
  ):
    self._workdir = pathlib.Path(workdir).absolute()
    self._gather = gather
    kept = [preservation_policy.LatestN(keep)]
    if keep_every:
      kept.append(preservation_policy.EveryNSteps(keep_every))
    if best:
      kept.append(_Best(self._workdir / "eval.jsonl", best))
    self._manager = ocp.CheckpointManager(
      self._workdir / "checkpoints",
      options=ocp.CheckpointManagerOptions(
        preservation_policy=preservation_policy.AnyPreservationPolicy(kept),
        create=True,
        cleanup_tmp_directories=True,  # of a run that was killed saving
      ),
    )

  def latest_step(self) -> int | None:
    return self._manager.latest_step()

  def save(
    self,
    state: RunState,
    parallel: Mapping[str, Parallel],
    config: Any = None,
  ) -> None:
    """Writes all of the game in one commit, in the background; once a step.

    Raises:
      CheckpointError: this one, or the one before, could not be written.
    """
    if state.step in self._manager.all_steps():
      return
    # Texts: to walk through all of a large book would hold up the next step.
    game = {
      "step": state.step,
      "config": json.loads(config.to_json()) if config else None,
      "book": state.book.to_json(),
      "pass_rates": state.pass_rates.to_json(),
    }
    try:
      self._manager.save(
        state.step,
        args=ocp.args.Composite(
          policies=ocp.args.StandardSave(_policies(state, parallel)),
          game=ocp.args.JsonSave(game),
        ),
        force=True,
      )
    except (OSError, ValueError) as error:
      raise self._unwritten(error) from error

  def wait(self) -> None:
    """Until all is on disk.

    Raises:
      CheckpointError: the last one could not be written.
    """
    try:
      self._manager.wait_until_finished()
    except (OSError, ValueError) as error:
      raise self._unwritten(error) from error

  def restore(
    self, state: RunState, parallel: Mapping[str, Parallel]
  ) -> RunState:
    """The newest checkpoint that is whole; `state` gives structure, shapes and
    types, and on a mesh how it is cut, which need not be as it was saved.

    A torn one is put into `workdir/torn`, and said.

    Raises:
      CheckpointError: there is none.
    """
    template = jax.tree.map(
      ocp.utils.to_shape_dtype_struct, _policies(state, parallel)
    )
    torn = []
    for step in sorted(self._manager.all_steps(), reverse=True):
      error, restored = None, None
      try:
        restored = _read(self._manager, step, template)
      except Exception as caught:  # as Orbax raises for a file cut short
        error = checkpoint.one_line(caught)
      # Hosts go back together.
      errors = [e for e in self._gather(error) if e]
      if not errors:
        return _state(restored, parallel)
      torn.append(step)
      self._put_aside(step, errors[0])
    where = self._workdir / "checkpoints"
    raise CheckpointError(
      f"no whole checkpoint in {where}; torn: {torn or 'none'}"
    )

  def __enter__(self) -> "Checkpoints":
    return self

  def __exit__(self, kind, *_) -> None:
    """Waits for the last one, whatever else has gone wrong; see `wait`."""
    try:
      self.wait()
    except CheckpointError:
      if kind is None:
        raise
    finally:
      self._manager.close()

  def _put_aside(self, step: int, error: str) -> None:
    """Makes room for this step's checkpoint to be written again."""
    aside = self._workdir / "torn" / str(step)
    print(
      f"checkpoint {step} is torn ({error}): put into {aside}; taking the"
      " one before",
      file=sys.stderr,
    )
    if jax.process_index() == 0:
      aside.parent.mkdir(exist_ok=True)
      while aside.exists():
        aside = aside.with_name(aside.name + "_")
      (self._workdir / "checkpoints" / str(step)).rename(aside)
    self._gather(None)
    self._manager.reload()

  def _unwritten(self, error: Exception) -> CheckpointError:
    known = re.search(r"No space left on device|Permission denied", str(error))
    cause = known[0] if known else checkpoint.one_line(error)
    whole = sorted(checkpoint.saved_steps(self._workdir / "checkpoints"))
    newest = f"step {whole[-1]} is" if whole else "there is none that is"
    return CheckpointError(
      f"a checkpoint could not be written to {self._workdir}: {cause}; {newest}"
      " the newest whole one"
    )


class _Best:
  """Orbax's policy to keep the checkpoint with the best evaluation."""

  def __init__(self, evaluations: pathlib.Path, metric: str):
    self._evaluations, self._metric = evaluations, metric

  def should_preserve(self, checkpoints, *, context) -> list[bool]:
    scores = {}
    if self._evaluations.exists():
      rows = jsonl.read_jsonl(self._evaluations)
      scores = {row["step"]: row.get(self._metric) for row in rows}
    scored = [
      (scores[info.step], info.step)
      for info in checkpoints
      if isinstance(scores.get(info.step), int | float)
    ]
    best = max(scored)[1] if scored else None
    return [info.step == best for info in checkpoints]


def _read(manager, step: int, template: Any) -> Any:
  return manager.restore(
    step,
    args=ocp.args.Composite(
      policies=ocp.args.StandardRestore(template),
      game=ocp.args.JsonRestore(),
    ),
  )


def _state(restored: Any, parallel: Mapping[str, Parallel]) -> RunState:
  policies = {
    role: parallel[role].place(policy)
    for role, policy in restored["policies"].items()
  }
  game = checkpoint.game_fields(restored["game"])
  return RunState(code=policies["code"], test=policies["test"], **game)


def _policies(
  state: RunState, parallel: Mapping[str, Parallel]
) -> dict[str, Any]:
  """One copy of each policy, whatever the number of devices."""
  return {role: parallel[role].fetch(getattr(state, role)) for role in ROLES}
