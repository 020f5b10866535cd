"""Boards get every number once, and none of them can end a run."""

import importlib.util
import math
import sys
import types

import numpy as np
import pytest
from event_files import scalars, wandb_rows
from small_runs import small_config

from codea1_jax import assembly, boards


def open_boards(workdir, step=0, kept=(), **logging):
  changes = {f"logging.{name}": value for name, value in logging.items()}
  return boards.open_boards(small_config(**changes), workdir, step, kept)


def test_numbers_reach_tensorboard_and_text_does_not(tmp_path):
  pytest.importorskip("tensorboardX")
  opened = open_boards(tmp_path, tensorboard=True)
  values = {
    "code/loss": np.float32(0.5),
    "book/size": 3,
    "time/step_s": math.nan,
    "step": 7,
    "text": "nan",
    "none": None,
    "many": np.ones(2),
  }
  opened.write(7, values)
  shown = scalars(tmp_path / "tensorboard")  # before anything is closed
  assert shown.pop(("time/step_s", 7))[0] != 0  # nan
  assert shown == {("code/loss", 7): [0.5], ("book/size", 7): [3.0]}


def test_tensorboard_shows_steps_done_twice_once(tmp_path):
  pytest.importorskip("tensorboardX")
  first = open_boards(tmp_path, tensorboard=True)
  evaluation = {"step": 2, "eval/code/greedy_pass_rate": 0.25}
  for step in range(2):
    first.write(step, {"code/loss": float(step)})
  first.write(2, evaluation, complete=False)
  for step in range(2, 5):
    first.write(step, {"code/loss": float(step)})
  # Killed after step 4; the checkpoint and an evaluation are of 2.
  again = open_boards(tmp_path, 2, [evaluation], tensorboard=True)
  again.write(2, {"code/loss": 20.0})
  again.close()
  assert scalars(tmp_path / "tensorboard") == {
    ("code/loss", 0): [0.0],
    ("code/loss", 1): [1.0],
    ("code/loss", 2): [20.0],
    ("eval/code/greedy_pass_rate", 2): [0.25],
  }


def test_a_full_disk_is_one_warning(tmp_path, capsys):
  pytest.importorskip("tensorboardX")
  opened = open_boards(tmp_path, tensorboard=True)
  (board,) = opened._boards
  with open("/dev/full", "wb") as full:
    board._file._py_recordio_writer._writer = full
    for step in range(30):  # more than a queue holds
      opened.write(step, {"code/loss": 1.0})
    opened.close()
    full.raw.close()  # its buffer has nowhere to go
  (line,) = capsys.readouterr().err.strip().splitlines()
  assert line.startswith("warning: TensorBoard is given up: ")
  assert "No space left on device" in line


class FakeWandb(types.ModuleType):
  """Remembers what it is told; `step` is what its server has."""

  def __init__(self, step=0):
    super().__init__("wandb")
    self.step, self.told, self.rows, self.finished = step, None, [], False

  def Settings(self, **settings):
    return settings

  def init(self, **told):
    self.told = told
    return self

  def log(self, numbers, step, commit):
    if numbers.get("raises"):
      raise ConnectionError("no\nnetwork")
    self.rows.append((step, commit, numbers))

  def finish(self):
    self.finished = True


def test_wandb_keeps_its_run_and_is_sent_no_step_twice(tmp_path, monkeypatch):
  runs = [FakeWandb(), FakeWandb(step=4)]
  for run, step in zip(runs, (0, 2)):
    monkeypatch.setitem(sys.modules, "wandb", run)
    opened = open_boards(tmp_path, step, [], wandb="pairs")
    opened.write(step, {"step": step, "eval/x": 0.5}, complete=False)
    for number in range(step, 5):
      opened.write(number, {"code/loss": number})
    opened.close()
  first, again = (run.told for run in runs)
  assert first["id"] == again["id"] and len(first["id"]) == 8
  assert first["project"] == "pairs" and first["resume"] == "allow"
  assert first["name"] == tmp_path.name and first["dir"] == str(tmp_path)
  assert first["config"]["rollout"]["codes"] == 4
  assert runs[0].rows[:2] == [
    (0, False, {"eval/x": 0.5}),
    (0, True, {"code/loss": 0.0}),
  ]
  assert [row[0] for row in runs[0].rows] == [0, 0, 1, 2, 3, 4]
  assert runs[1].rows == [(4, True, {"code/loss": 4.0})]
  assert all(run.finished for run in runs)


def test_a_board_that_fails_leaves_the_others_alone(
  tmp_path, monkeypatch, capsys
):
  failing, fine = FakeWandb(), FakeWandb()
  for fake in (failing, fine):
    monkeypatch.setitem(sys.modules, "wandb", fake)
    fake.board = boards.WeightsAndBiases(small_config(), tmp_path)
  both = boards.Boards([failing.board, fine.board])
  fine.board.write = lambda step, numbers, _: fine.rows.append(step)
  both.write(0, {"code/loss": 1.0})
  both.write(1, {"raises": 1.0})
  both.write(2, {"code/loss": 1.0})
  assert len(failing.rows) == 1 and fine.rows == [0, 1, 2]
  assert capsys.readouterr().err.splitlines() == [
    "warning: Weights & Biases is given up: no network"
  ]


def test_what_does_not_open_ends_a_new_run_only(tmp_path, monkeypatch, capsys):
  broken = FakeWandb()
  broken.init = lambda **_: 1 / 0
  monkeypatch.setitem(sys.modules, "wandb", broken)
  with pytest.raises(ValueError, match=r"logging\.wandb: division by zero"):
    open_boards(tmp_path, 0, wandb="pairs")
  opened = open_boards(tmp_path, 3, wandb="pairs")
  opened.write(3, {"code/loss": 1.0})
  assert capsys.readouterr().err.splitlines() == [
    "warning: logging.wandb does not open: division by zero"
  ]


@pytest.mark.parametrize(
  ("field", "value", "package"),
  [("tensorboard", True, "tensorboardX"), ("wandb", "pairs", "wandb")],
)
def test_a_missing_package_is_named_before_any_work(
  field, value, package, tmp_path, monkeypatch
):
  find = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    "find_spec",
    lambda name: None if name == package else find(name),
  )
  config = small_config(**{f"logging.{field}": value})
  workdir = tmp_path / "run"
  message = rf"config\.logging\.{field} needs {package}: pip install -e"
  with (
    pytest.raises(assembly.InputError, match=message),
    assembly.open_run(config, workdir),
  ):
    pass
  assert not workdir.exists()


def test_wandb_for_real_without_a_network(tmp_path, monkeypatch):
  wandb = pytest.importorskip("wandb")
  monkeypatch.setenv("WANDB_MODE", "offline")
  monkeypatch.setenv("WANDB_SILENT", "true")
  for step in (0, 1):
    opened = open_boards(tmp_path, step, wandb="pairs")
    opened.write(step, {"eval/x": 0.5, "step": step}, complete=False)
    opened.write(step, {"code/loss": 2.0 + step})
    opened.close()
  wandb.teardown()  # its process, which writes the files, ends
  first, again = wandb_rows(tmp_path / "wandb")
  for (row,), step in ((first, "0"), (again, "1")):
    assert row["_step"] == step
    assert float(row["code/loss"]) == 2.0 + int(step)
    assert float(row["eval/x"]) == 0.5
  id_ = (tmp_path / "wandb_id").read_text().strip()
  names = [p.name for p in (tmp_path / "wandb").glob("offline-run-*")]
  assert len(names) == 2 and all(id_ in name for name in names)
