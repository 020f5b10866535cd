"""Runs that collapse: warned of once, or stopped with everything on disk."""

import re
import types

import pytest
from small_runs import small_config

from codea1_jax import checkpoint, guards, heldout, jsonl, trainer
from experiments import train

FINE = {
  f"{role}/{name}": value
  for name, value in (
    ("entropy", 0.5),
    ("valid_share", 1.0),
    ("validity", 0.5),
    ("zero_variance_share", 0.0),
  )
  for role in ("code", "test")
}


def settings(**changes):
  changes = {"guards.steps": 2} | {f"guards.{k}": v for k, v in changes.items()}
  return small_config(**changes).guards


def run_through(guard, rows, first=0):
  return [guard.check(first + k, FINE | row) for k, row in enumerate(rows)]


def test_a_mean_of_steps_warns_once_until_it_recovers():
  guard = guards.Guards(settings(min_entropy=0.1))
  entropies = (0.0, 0.3, 0.0, 0.1, 0.1, 0.1, 0.0)
  said = run_through(guard, [{"test/entropy": e} for e in entropies])
  # Means of two: 0.15, 0.15, 0.05, 0.1 (which is not below), 0.1, 0.05.
  beginning = "test/entropy is 0.05, the mean of steps"
  assert said == [
    *([], [], []),
    [f"{beginning} 2 to 3: below guards.min_entropy = 0.1"],
    *([], []),
    [f"{beginning} 5 to 6: below guards.min_entropy = 0.1"],
  ]


@pytest.mark.parametrize(
  ("key", "value", "line"),
  [
    ("code/entropy", 0.0, "code/entropy is 0,.*below guards.min_entropy"),
    ("code/valid_share", 0.0, "code/valid_share is 0,.*guards.min_validity"),
    ("test/validity", 0.04, "test/validity is 0.04,.*below guards.min_valid"),
    ("code/zero_variance_share", 1.0, "code/zero_var.* is 1,.*above guards"),
    ("test/zero_variance_share", 0.96, "steps 0 to 1: above guards.max_zero"),
  ],
)
def test_either_policy_and_every_bound(key, value, line):
  guard = guards.Guards(settings())
  nothing, (said,) = run_through(guard, [{key: value}] * 2)
  assert nothing == []
  assert re.search(line, said)


def test_stop_says_so_at_every_step_and_off_never():
  bad = [{"code/entropy": 0.0}] * 4
  stop = run_through(guards.Guards(settings(action="stop")), bad)
  assert [len(lines) for lines in stop] == [0, 1, 1, 1]
  off = run_through(guards.Guards(settings(action="off")), bad)
  assert off == [[]] * 4


def test_a_step_without_the_metric_does_not_count():
  guard = guards.Guards(settings())
  rows = [{"code/entropy": e} for e in (0.0, None, float("nan"), 0.0)]
  *before, (line,) = run_through(guard, rows)
  assert before == [[]] * 3 and "steps 0 to 3" in line


def test_a_resumed_run_knows_its_last_steps():
  rows = [{"step": k} | FINE | {"code/entropy": 0.0} for k in range(5)]
  bad = [{"code/entropy": 0.0}]
  assert run_through(guards.Guards(settings(), rows[:1]), bad, 1) != [[]]
  # Already said before it stopped.
  assert run_through(guards.Guards(settings(), rows), bad, 5) == [[]]


@pytest.fixture
def collapsing(monkeypatch):
  """Steps of a policy without entropy, and evaluations of nothing."""

  def step(run, state, stop):
    return (
      state.replace(step=state.step + 1),
      FINE | {"test/entropy": 0.001},
      [],
    )

  monkeypatch.setitem(trainer.STEPS, "code_a1", step)
  monkeypatch.setattr(
    heldout,
    "evaluate",
    lambda run, state: {"step": state.step, "eval/test/validity": 0.5},
  )


def config_of(action):
  return small_config(
    **{
      "num_steps": 5,
      "checkpoint.every": 100,
      "guards.action": action,
      "guards.steps": 3,
    }
  )


def test_a_stopped_run_is_saved_and_says_why(collapsing, tmp_path, capsys):
  with pytest.raises(guards.Breach, match=r"test/entropy is 0\.001, the"):
    trainer.train(config_of("stop"), tmp_path)
  rows = jsonl.read_jsonl(tmp_path / "metrics.jsonl")
  assert [row["step"] for row in rows] == [0, 1, 2]
  assert checkpoint.find(str(tmp_path)).step == 3
  assert "stopped and saved at step 3" in capsys.readouterr().out


def test_a_warned_run_goes_on(collapsing, tmp_path, capsys):
  trainer.train(config_of("warn"), tmp_path)
  assert len(jsonl.read_jsonl(tmp_path / "metrics.jsonl")) == 5
  lines = [
    line
    for line in capsys.readouterr().err.replace("\r", "\n").splitlines()
    if line.startswith("warning: ")
  ]
  assert lines == [
    "warning: test/entropy is 0.001, the mean of steps 0 to 2: below"
    " guards.min_entropy = 0.005"
  ]


def test_the_command_ends_with_one_line_and_a_code_of_its_own(
  monkeypatch, capsys
):
  def breach(*_):
    raise guards.Breach("code/entropy is 0")

  monkeypatch.setattr(trainer, "train", breach)
  for name in [n for n in vars(train) if n.isupper()]:
    monkeypatch.setattr(
      train, name, types.SimpleNamespace(value="" if name != "_ALLOWED" else [])
    )
  with pytest.raises(SystemExit) as ended:
    train.main(None)
  assert ended.value.code == 3
  assert capsys.readouterr().err == "error: code/entropy is 0\n"
