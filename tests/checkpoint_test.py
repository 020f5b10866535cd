"""A run's game on disk: what is kept, torn, moved to other devices, taken."""

import contextlib
import subprocess

import jax
import numpy as np
import pytest

from codea1_jax import (
  checkpoint,
  curriculum,
  devices,
  jsonl,
  optimizer,
  train_state,
)
from codea1_jax.book_update import BookEntry
from codea1_jax.checkpoint import CheckpointError
from codea1_jax.checkpointing import Checkpoints
from codea1_jax.mistake_book import MistakeBook
from codea1_jax.models import convert
from codea1_jax.tiny import DATA
from codea1_jax.types import TestCase

ROLES = ("code", "test")
# Orbax leaves coroutines behind where a file is cut short.
pytestmark = pytest.mark.filterwarnings(
  "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def policies():
  """The shipped pair's parameters, as numpy."""
  found = {}
  for role in ROLES:
    _, params = convert.load_pretrained(DATA / f"{role}_llm")
    found[role] = jax.tree.map(np.asarray, params)
  return found


def parallel_of(kind, count, **mesh):
  both = devices.make_parallel(kind, jax.devices()[:count], **mesh)
  return {role: both for role in ROLES}


ONE = parallel_of("pmap", 1)


def make_state(policies, step=0, parallel=ONE):
  """A game whose every array and entry depends on the step."""
  adam = optimizer.make_optimizer(learning_rate=1e-3, total_steps=99)
  states = {}
  for role, params in policies.items():
    fresh = train_state.create_policy_state(params, adam)
    states[role] = parallel[role].place(
      jax.tree.map(lambda leaf: np.asarray(leaf) + step, fresh)
    )
  entry = BookEntry(TestCase(f"f({step})", "1"), step + 1, 1)
  return train_state.RunState(
    states["code"],
    states["test"],
    MistakeBook(num_updates=step, questions={"q": (entry,)}),
    step,
    curriculum.PassRates({"q": (0.5, step + 1)}),
  )


def numbers(state, parallel=ONE):
  """Every array of both policies, as numpy."""
  return {
    role: jax.tree.map(np.asarray, parallel[role].fetch(getattr(state, role)))
    for role in ROLES
  }


def assert_same(state, wanted, parallel=ONE, wanted_parallel=ONE):
  jax.tree.map(
    np.testing.assert_array_equal,
    numbers(state, parallel),
    numbers(wanted, wanted_parallel),
  )
  assert state.book == wanted.book
  assert (state.step, state.pass_rates) == (wanted.step, wanted.pass_rates)


def save_steps(workdir, policies, steps, **options):
  with Checkpoints(workdir, **({"keep": 9} | options)) as saved:
    for step in steps:
      saved.save(make_state(policies, step), ONE)


def steps_on_disk(workdir):
  return sorted(int(p.name) for p in (workdir / "checkpoints").glob("*"))


def restored(workdir, policies, parallel=ONE):
  with Checkpoints(workdir, 9) as saved:
    return saved.restore(make_state(policies, 0, parallel), parallel)


def test_all_of_the_game_comes_back(tmp_path, policies):
  save_steps(tmp_path, policies, [3])
  assert_same(restored(tmp_path, policies), make_state(policies, 3))
  assert checkpoint.read_book(tmp_path) == make_state(policies, 3).book


def test_newest_multiples_and_best_are_kept(tmp_path, policies):
  scores = jsonl.JsonlWriter(tmp_path / "eval.jsonl")
  for step in range(1, 8):
    scores.write(step, {"eval/x": {1: 0.2, 2: 0.7, 5: 0.6}.get(step)})
  save_steps(
    tmp_path, policies, range(1, 8), keep=2, keep_every=3, best="eval/x"
  )
  assert steps_on_disk(tmp_path) == [2, 3, 6, 7]


def test_the_background_copy_is_of_its_moment(tmp_path, policies):
  """Parameters are donated to the next update while they are written."""
  add = jax.jit(lambda t: jax.tree.map(lambda x: x + 1, t), donate_argnums=0)
  for kind in ("pmap", "mesh"):
    parallel = parallel_of(kind, 2)
    state = make_state(policies, 1, parallel)
    with Checkpoints(tmp_path / kind, 9) as saved:
      saved.save(state, parallel)
      moved = state.code
      for _ in range(20):
        moved = add(moved)
      jax.block_until_ready(moved)
    found = restored(tmp_path / kind, policies)
    assert_same(found, make_state(policies, 1))


def _cut(path):
  """Leaves half of the largest file."""
  files = [p for p in path.rglob("*") if p.is_file()]
  largest = max(files, key=lambda p: p.stat().st_size)
  data = largest.read_bytes()
  largest.write_bytes(data[: len(data) // 2])


def _lose(name):
  def lose(path):
    subprocess.run(["rm", "-r", path / name], check=True)

  return lose


def _scribble(path):
  (path / "game" / "metadata").write_text('{"step": 2, "bo')


@pytest.mark.parametrize(
  "damage",
  [
    _cut,
    _lose("policies"),
    _lose("game"),
    _lose("policies/manifest.ocdbt"),
    _lose("policies/_METADATA"),
    _scribble,
  ],
  ids=["cut", "policies", "game", "manifest", "metadata", "scribble"],
)
def test_a_torn_checkpoint_gives_way(tmp_path, policies, damage, capsys):
  save_steps(tmp_path, policies, [1, 2])
  damage(tmp_path / "checkpoints" / "2")
  found = restored(tmp_path, policies)
  assert_same(found, make_state(policies, 1))
  assert "checkpoint 2 is torn" in capsys.readouterr().err
  assert (tmp_path / "torn" / "2").is_dir()
  save_steps(tmp_path, policies, [2])  # its place is free
  assert_same(restored(tmp_path, policies), make_state(policies, 2))


def test_nothing_whole_is_an_error_and_loses_nothing(tmp_path, policies):
  save_steps(tmp_path, policies, [1, 2])
  for step in "12":
    _cut(tmp_path / "checkpoints" / step)
  with pytest.raises(CheckpointError, match=r"no whole .*torn: \[2, 1\]"):
    restored(tmp_path, policies)
  assert {p.name for p in (tmp_path / "torn").iterdir()} == {"1", "2"}


@contextlib.contextmanager
def small_disk(path, size):
  path.mkdir()
  mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path]
  if subprocess.run(mount, capture_output=True).returncode:
    pytest.skip("this user may not mount a small file system")
  try:
    yield
  finally:
    subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("last", [3, 4])  # seen by the end, or the next save
def test_a_full_disk_is_one_error_and_loses_nothing(tmp_path, policies, last):
  disk = tmp_path / "disk"
  save_steps(tmp_path, policies, [1])
  size = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
  with small_disk(disk, int(2.5 * size)):
    message = r"No space left on device; step 2 is the newest whole one"
    with pytest.raises(CheckpointError, match=message):
      save_steps(disk, policies, range(1, last + 1))
    assert_same(restored(disk, policies), make_state(policies, 2))
    assert steps_on_disk(disk) == [1, 2]  # no remains: they would fill it


def test_other_numbers_of_devices(tmp_path, policies):
  for kind in ("pmap", "mesh"):
    four = parallel_of(kind, 4)
    with Checkpoints(tmp_path / kind, 9) as saved:
      saved.save(make_state(policies, 3, four), four)
    for other, count, mesh in (
      ("pmap", 1, {}),
      ("pmap", 8, {}),
      ("mesh", 2, {}),
      ("mesh", 8, {"tensor": 2}),
    ):
      parallel = parallel_of(other, count, **mesh)
      found = restored(tmp_path / kind, policies, parallel)
      assert_same(found, make_state(policies, 3), parallel)
      if other == "mesh":
        leaf = found.code.params["final_norm"]
        assert len(leaf.sharding.device_set) == count


def test_a_policy_of_another_run(tmp_path, policies):
  save_steps(tmp_path, policies, [1, 4])
  fresh = make_state(policies)
  wanted = make_state(policies, 4)
  source = checkpoint.find(str(tmp_path))
  assert source.step == 4
  both = checkpoint.read_policy(source, "test", fresh.test, ONE["test"])
  jax.tree.map(np.testing.assert_array_equal, both, wanted.test)
  params = checkpoint.read_policy(
    checkpoint.find(f"{tmp_path}:1"), "test", fresh.test, ONE["test"], True
  )
  jax.tree.map(
    np.testing.assert_array_equal,
    params,
    fresh.test.replace(params=make_state(policies, 1).test.params),
  )
  with pytest.raises(CheckpointError, match=r"step 3 in .*, which has 1, 4"):
    checkpoint.find(f"{tmp_path}:3")
  with pytest.raises(CheckpointError, match="no checkpoint below"):
    checkpoint.find(str(tmp_path / "none"))


def test_a_policy_of_another_shape_is_refused(tmp_path, policies):
  save_steps(tmp_path, policies, [1])
  wider = jax.tree.map(
    lambda leaf: np.concatenate([leaf, leaf], -1) if leaf.ndim else leaf,
    policies,
  )
  message = r":1 does not fit this config: code\.params\.\S+ is .* there, "
  with pytest.raises(CheckpointError, match=message):
    checkpoint.read_policy(
      checkpoint.find(str(tmp_path)),
      "code",
      make_state(wider).code,
      ONE["code"],
    )
