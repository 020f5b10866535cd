"""TensorBoard and Weights & Biases, beside the JSONL files.

Both get every number of the steps and of the evaluations. The JSONL files stay
what counts: a board that fails is given up with one warning.
"""

import importlib.util
import pathlib
import secrets
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tqdm

from codea1_jax import metrics

# Field of `config.logging` -> (package, extra that installs it).
_PACKAGES = {
  "tensorboard": ("tensorboardX", "tensorboard"),
  "wandb": ("wandb", "wandb"),
}


def require(settings: Any) -> None:
  """Raises ValueError for a board whose package is not there."""
  for field, (package, extra) in _PACKAGES.items():
    if settings[field] and importlib.util.find_spec(package) is None:
      raise ValueError(
        f"config.logging.{field} needs {package}: pip install -e '.[{extra}]'"
      )


class Boards:
  """The boards of a run; none of them can end it."""

  def __init__(self, boards: Iterable[Any] = ()):
    self._boards = list(boards)

  def write(
    self, step: int, values: Mapping[str, Any], complete: bool = True
  ) -> None:
    """Sends the numbers among `values`; what is text or None stays out.

    Args:
      step: of the numbers.
      values: metrics; "step" is none.
      complete: False where more numbers of this step may come.
    """
    numbers = {
      name: float(value)
      for name, value in values.items()
      if name != "step" and metrics.is_number(value)
    }
    for board in list(self._boards):
      try:
        board.write(step, numbers, complete)
      except Exception as error:  # of any kind: packages raise their own
        self._boards.remove(board)
        warn(f"{board.name} is given up", error)

  def close(self) -> None:
    """Sends what is left."""
    for board in self._boards:
      try:
        board.close()
      except Exception as error:
        warn(f"{board.name} did not close", error)
    self._boards = []


def warn(what: str, error: Exception) -> None:
  """One line; the metrics are in the JSONL files all the same."""
  text = " ".join(str(error).split()) or repr(error)
  tqdm.tqdm.write(f"warning: {what}: {text}", file=sys.stderr)


def open_boards(
  config: Any,
  workdir: pathlib.Path,
  step: int,
  kept: Sequence[Mapping[str, Any]] = (),
) -> Boards:
  """The boards of a config, as of a step.

  Args:
    config: see configs/tiny.py.
    workdir: gets `tensorboard/`, `wandb/` and `wandb_id`.
    step: that a run starts at; what boards show of it and of later steps is
      done once more.
    kept: evaluations of `step` that are not.

  Raises:
    ValueError: a new run's board does not open; a resumed run, which may be
      alone in the night, warns and goes on without it.
  """
  found = []
  for field, make in (
    ("tensorboard", lambda: TensorBoard(workdir / "tensorboard", step)),
    ("wandb", lambda: WeightsAndBiases(config, workdir)),
  ):
    if not config.logging[field]:
      continue
    try:
      found.append(make())
    except Exception as error:
      if not step:
        raise ValueError(f"logging.{field}: {error}") from error
      warn(f"logging.{field} does not open", error)
  boards = Boards(found)
  for row in kept:
    boards.write(row["step"], row, complete=False)
  return boards


class TensorBoard:
  """One event file a start, which hides what earlier ones have from `step` on.

  tensorboardX's SummaryWriter writes from a thread, behind a queue of ten:
  where the disk is full the thread dies, and the next steps wait for ever. Its
  event file alone raises, and a step that is written is on disk.
  """

  name = "TensorBoard"

  def __init__(self, directory: pathlib.Path, step: int):
    from tensorboardX import event_file_writer
    from tensorboardX.proto import event_pb2, summary_pb2

    self._event, self._summary = event_pb2.Event, summary_pb2.Summary
    directory.mkdir(parents=True, exist_ok=True)
    self._file = event_file_writer.EventsWriter(
      str(directory / "events"), f".{step}"
    )
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write(step, session_log=start)

  def write(
    self, step: int, numbers: Mapping[str, float], complete: bool
  ) -> None:
    values = [
      self._summary.Value(tag=name, simple_value=value)
      for name, value in numbers.items()
    ]
    self._write(step, summary=self._summary(value=values))

  def close(self) -> None:
    self._file.close()

  def _write(self, step: int, **content) -> None:
    self._file.write_event(
      self._event(wall_time=time.time(), step=step, **content)
    )
    self._file.flush()


class WeightsAndBiases:
  """One run a workdir, whose id is in `wandb_id`; WANDB_MODE=offline works.

  wandb takes nothing back: steps that it has are not sent again, so that it
  keeps the numbers of the first time (the same but for times). Offline it does
  not know what earlier starts have left: every start has a directory below
  `wandb/` to be synced, and steps done twice are in two of them.
  """

  name = "Weights & Biases"

  def __init__(self, config: Any, workdir: pathlib.Path):
    import wandb

    path = workdir / "wandb_id"
    if not path.exists():
      path.write_text(secrets.token_hex(4) + "\n", encoding="utf-8")
    self._run = wandb.init(
      project=config.logging.wandb,
      id=path.read_text(encoding="utf-8").strip(),
      name=workdir.absolute().name,
      dir=str(workdir),
      config=config.to_dict(),
      resume="allow",
      settings=wandb.Settings(console="off"),
    )
    self._next = self._run.step

  def write(
    self, step: int, numbers: Mapping[str, float], complete: bool
  ) -> None:
    if step >= self._next:
      self._run.log(numbers, step=step, commit=complete)

  def close(self) -> None:
    self._run.finish()
