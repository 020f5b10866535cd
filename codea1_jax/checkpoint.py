"""What is in the checkpoints of any run: policies, book, step."""

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from codea1_jax.curriculum import PassRates
from codea1_jax.devices import Parallel
from codea1_jax.mistake_book import MistakeBook
from codea1_jax.train_state import PolicyState


class CheckpointError(OSError):
  """A checkpoint cannot be written, or none can be read; one line."""


class Source(NamedTuple):
  """A checkpoint of some run."""

  workdir: pathlib.Path
  step: int

  def __str__(self) -> str:
    return f"{self.workdir}:{self.step}"


def find(text: str) -> Source:
  """The checkpoint of "WORKDIR[:STEP]", the newest where no step is given.

  Raises:
    CheckpointError: there is none; names the steps that there are.
  """
  path, step = re.fullmatch(r"(.*?)(?::(\d+))?", text).groups()
  directory = require(path)
  steps = sorted(saved_steps(directory))
  if step is None:
    return Source(directory.parent, steps[-1])
  if int(step) not in steps:
    raise CheckpointError(
      f"no checkpoint of step {step} in {directory}, which has"
      f" {', '.join(map(str, steps))}"
    )
  return Source(directory.parent, int(step))


def steps(workdir: str | os.PathLike) -> list[int]:
  """Of all checkpoints of a run, in order; CheckpointError: there is none."""
  return sorted(saved_steps(require(workdir)))


def read_policy(
  source: Source,
  role: str,
  like: PolicyState,
  parallel: Parallel,
  params_only: bool = False,
) -> PolicyState:
  """One policy of another run.

  Args:
    source: which checkpoint.
    role: "code" or "test".
    like: the state that this run would begin with, on its devices.
    parallel: those devices; any number, not only the other run's.
    params_only: the optimizer begins anew.

  Raises:
    CheckpointError: torn, or of another model; names an array that differs.
  """
  template = jax.tree.map(ocp.utils.to_shape_dtype_struct, parallel.fetch(like))
  if params_only:
    template = {"params": template.params}
  template = {role: template}
  wanted = ocp.args.PyTreeRestore(
    item=template,
    restore_args=ocp.checkpoint_utils.construct_restore_args(template),
    partial_restore=True,
  )
  try:
    with _reader(source) as reader:
      saved = reader.item_metadata(source.step)["policies"]
      _check_fits(source, template, saved.tree)
      restored = reader.restore(
        source.step, args=ocp.args.Composite(policies=wanted)
      )["policies"][role]
  except CheckpointError:
    raise
  except Exception as error:
    raise CheckpointError(
      f"{source} cannot be read: {one_line(error)}"
    ) from error
  if params_only:
    return like.replace(params=parallel.place(restored["params"]))
  return parallel.place(restored)


def read_game(source: Source) -> dict[str, Any]:
  """step, book and pass_rates, as RunState's fields, of another run.

  Raises:
    CheckpointError: torn.
  """
  try:
    with _reader(source) as reader:
      restored = reader.restore(
        source.step, args=ocp.args.Composite(game=ocp.args.JsonRestore())
      )
    return game_fields(restored["game"])
  except Exception as error:
    raise CheckpointError(
      f"{source} cannot be read: {one_line(error)}"
    ) from error


def require(workdir: str | os.PathLike) -> pathlib.Path:
  """The directory of a run's checkpoints.

  Raises:
    CheckpointError: there is no checkpoint in it.
  """
  directory = (pathlib.Path(workdir) / "checkpoints").absolute()
  if not saved_steps(directory):
    raise CheckpointError(f"no checkpoint below {directory}")
  return directory


def read_book(workdir: str | os.PathLike) -> MistakeBook:
  """The book of a run's newest checkpoint; no policy is read.

  Raises:
    CheckpointError: there is none.
  """
  return read_game(find(str(workdir)))["book"]


def _reader(source: Source) -> ocp.CheckpointManager:
  """Reads only: another process may be training there."""
  return ocp.CheckpointManager(
    source.workdir / "checkpoints",
    options=ocp.CheckpointManagerOptions(create=False),
    item_handlers={
      "policies": ocp.PyTreeCheckpointHandler(),
      "game": ocp.JsonCheckpointHandler(),
    },
  )


def one_line(error: Exception) -> str:
  """An error as a line; TensorStore's end with pages of their own state."""
  text = " ".join(str(error).split("See full TensorStore")[0].split())
  return f"{type(error).__name__}: {text[:300]}"


def saved_steps(directory: pathlib.Path) -> list[int]:
  """Of the checkpoints below a directory, in no order; [] where none is."""
  return [int(p.name) for p in directory.glob("*") if p.name.isdigit()]


def game_fields(saved: Mapping[str, Any]) -> dict[str, Any]:
  """What a checkpoint has beside the policies, as RunState's fields."""
  return {
    "step": saved["step"],
    "book": MistakeBook.from_json(saved["book"]),
    "pass_rates": PassRates.from_json(saved["pass_rates"]),
  }


def _check_fits(source: Source, template: Any, saved: Any) -> None:
  """Every wanted array is there in its shape; Orbax would cut or pad it."""
  theirs, ours = (
    {
      jax.tree_util.keystr(path, simple=True, separator="."): leaf.shape
      for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    for tree in (saved, template)
  )
  for name, shape in ours.items():
    found = theirs.get(name)
    if found is None or tuple(found) != tuple(shape):
      raise CheckpointError(
        f"{source} does not fit this config: {name} is {found} there,"
        f" {shape} here"
      )
