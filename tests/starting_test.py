"""Where a run begins: anew, where it stopped, or at other runs' checkpoints."""

import json

import jax
import numpy as np
import pytest
from small_runs import small_config

from codea1_jax import (
  assembly,
  checkpoint,
  devices,
  mistake_book,
  problems,
  starting,
)
from codea1_jax.assembly import InputError
from codea1_jax.checkpointing import Checkpoints
from codea1_jax.starting import Start

CHANGED = {"code.optimizer.learning_rate": 1e-5, "num_steps": 9}


@pytest.fixture(scope="module", autouse=True)
def small_world():
  """One device and few problems: neither is what is tested here."""
  load, make = problems.load_problems, devices.make_parallel

  def one_device(kind, **mesh):
    return make(kind, jax.local_devices()[:1], **mesh)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(problems, "load_problems", lambda path: load(path)[:12])
    patch.setattr(devices, "make_parallel", one_device)
    yield


def begin(config, workdir, start):
  """The state of a run's first step, and what it would have been afresh."""
  start.check(workdir, config)
  with (
    assembly.open_run(config, workdir, start.allow_config_change) as run,
    Checkpoints(workdir, 2) as saved,
  ):
    state = starting.first_state(run, saved, start)
    return state, run.initial_state()


@pytest.fixture(scope="module")
def other(tmp_path_factory):
  """A run's workdir with a checkpoint at step 5, and that game."""
  workdir = tmp_path_factory.mktemp("other") / "run"
  config = small_config()
  with (
    assembly.open_run(config, workdir) as run,
    Checkpoints(workdir, 2) as saved,
  ):
    state = run.initial_state()
    code, test = (
      jax.tree.map(lambda leaf, by=by: leaf + by, policy)
      for by, policy in ((1, state.code), (2, state.test))
    )
    book = mistake_book.MistakeBook(num_updates=7)
    state = state.replace(code=code, test=test, book=book, step=5)
    saved.save(state, run.parallel, config)
  return workdir, state


def same(ours, theirs):
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_a_whole_game_goes_on_under_another_config(other, tmp_path):
  workdir, game = other
  start = Start(restore=f"{workdir}:5")
  state, _ = begin(small_config(**CHANGED), tmp_path, start)
  same((state.code, state.test), (game.code, game.test))
  assert (state.step, state.book) == (5, game.book)
  # It is the new run's own now: the other is not asked again.
  assert checkpoint.find(str(tmp_path)).step == 5
  again, _ = begin(small_config(**CHANGED), tmp_path, Start())
  same((again.code, again.test), (game.code, game.test))


def test_one_policy_and_parameters_alone(other, tmp_path):
  workdir, game = other
  start = Start(restore_test=str(workdir))
  state, fresh = begin(small_config(), tmp_path / "one", start)
  same((state.code, state.test), (fresh.code, game.test))
  assert (state.step, state.book) == (0, fresh.book)

  start = Start(restore=str(workdir), params_only=True)
  state, fresh = begin(small_config(), tmp_path / "two", start)
  for role in ("code", "test"):
    ours, theirs = getattr(state, role), getattr(game, role)
    same(ours.params, theirs.params)
    same(ours.opt_state, getattr(fresh, role).opt_state)
  assert (state.step, state.book) == (0, fresh.book)


def test_a_changed_config_goes_on_where_it_is_named(other, tmp_path):
  workdir, _ = other
  config = small_config(**CHANGED)
  wanted = (
    r"code\.optimizer\.learning_rate: 0\.0003 there, 1e-05 here; num_steps: 2"
    r" there, 9 here.*--allow_config_change=code\.optimizer\.learning_rate,"
    r"num_steps"
  )
  with pytest.raises(InputError, match=wanted):
    begin(config, workdir, Start())
  with pytest.raises(InputError, match=r"config's run \(num_steps: 2"):
    begin(config, workdir, Start(allow_config_change=("code.optimizer",)))
  text = (workdir / "config.json").read_text()
  assert json.loads(text)["num_steps"] == 2
  allowed = Start(allow_config_change=("code.optimizer", "num_steps"))
  state, _ = begin(config, workdir, allowed)
  assert state.step == 5
  changed = json.loads((workdir / "config.json").read_text())
  assert changed["num_steps"] == 9
  begin(small_config(), workdir, allowed)  # and back, for other tests


@pytest.mark.parametrize(
  "start, message",
  [
    ({"resume": False}, "holds a run already"),
    ({"restore": "{other}:4"}, "no checkpoint of step 4 in .*, which has 5"),
    ({"restore_code": "{other}/none"}, "no checkpoint below .*none"),
    ({"allow_config_change": ("code.optimiser",)}, "no field config.code.opt"),
  ],
)
def test_mistakes_end_before_anything_is_built(other, start, message):
  workdir, _ = other
  given = {
    key: value.format(other=workdir) if isinstance(value, str) else value
    for key, value in start.items()
  }
  with pytest.raises(InputError, match=message):
    Start(**given).check(workdir, small_config())
