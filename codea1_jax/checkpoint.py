"""The whole game as one Orbax checkpoint: policies, optimizers, book, step."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp

from codea1_jax.curriculum import PassRates
from codea1_jax.devices import Parallel
from codea1_jax.mistake_book import MistakeBook
from codea1_jax.train_state import RunState


class Checkpoints:
  """Saves and restores RunStates below `workdir/checkpoints`."""

  def __init__(self, workdir: str | pathlib.Path, keep: int):
    self._directory = (pathlib.Path(workdir) / "checkpoints").absolute()
    options = ocp.CheckpointManagerOptions(
      max_to_keep=keep, create=True, enable_async_checkpointing=False
    )
    self._manager = ocp.CheckpointManager(self._directory, options=options)

  def latest_step(self) -> int | None:
    return self._manager.latest_step()

  def save(self, state: RunState, parallel: Mapping[str, Parallel]) -> None:
    """Writes both policies and the book in one commit; once a step."""
    if state.step in self._manager.all_steps():
      return
    self._manager.save(
      state.step,
      args=ocp.args.Composite(
        policies=ocp.args.StandardSave(_policies(state, parallel)),
        game=ocp.args.JsonSave(
          {
            "step": state.step,
            "book": json.loads(state.book.to_json()),
            "pass_rates": json.loads(state.pass_rates.to_json()),
          }
        ),
      ),
      force=True,
    )
    self._manager.wait_until_finished()

  def restore(
    self, state: RunState, parallel: Mapping[str, Parallel]
  ) -> RunState:
    """The newest checkpoint; `state` gives structure, shapes and types, and on
    a mesh how it is cut; it may be another mesh than the one that saved.

    Raises:
      FileNotFoundError: there is none.
    """
    step = self.latest_step()
    if step is None:
      raise FileNotFoundError(f"no checkpoint below {self._directory}")
    template = jax.tree.map(
      ocp.utils.to_shape_dtype_struct, _policies(state, parallel)
    )
    restored = self._manager.restore(
      step,
      args=ocp.args.Composite(
        policies=ocp.args.StandardRestore(template),
        game=ocp.args.JsonRestore(),
      ),
    )
    policies = {
      role: parallel[role].place(policy)
      for role, policy in restored["policies"].items()
    }
    game = restored["game"]
    return RunState(
      code=policies["code"],
      test=policies["test"],
      book=MistakeBook.from_json(json.dumps(game["book"])),
      step=game["step"],
      pass_rates=PassRates.from_json(json.dumps(game["pass_rates"])),
    )

  def close(self) -> None:
    self._manager.close()


def require(workdir: str | pathlib.Path) -> pathlib.Path:
  """The directory of a run's checkpoints.

  Raises:
    FileNotFoundError: there is no checkpoint in it.
  """
  directory = (pathlib.Path(workdir) / "checkpoints").absolute()
  if not any(path.name.isdigit() for path in directory.glob("*")):
    raise FileNotFoundError(f"no checkpoint below {directory}")
  return directory


def read_book(workdir: str | pathlib.Path) -> MistakeBook:
  """The book of a run's newest checkpoint; no policy is read.

  Raises:
    FileNotFoundError: there is none.
  """
  with ocp.CheckpointManager(require(workdir)) as manager:
    step = manager.latest_step()
    restored = manager.restore(
      step, args=ocp.args.Composite(game=ocp.args.JsonRestore())
    )
  return MistakeBook.from_json(json.dumps(restored["game"]["book"]))


def _policies(
  state: RunState, parallel: Mapping[str, Parallel]
) -> dict[str, Any]:
  """One copy of each policy, whatever the number of devices."""
  return {
    role: parallel[role].fetch(getattr(state, role))
    for role in ("code", "test")
  }
