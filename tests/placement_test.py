"""A run is the same wherever its policies lie, and goes on anywhere else."""

import jax
import numpy as np
import pytest
from run_files import read
from small_runs import small_config

from codea1_jax import (
  assembly,
  checkpoint,
  checkpointing,
  checks,
  devices,
  dumps,
  metrics,
  problems,
  trainer,
)

LORA = {
  "lora.rank": 4,
  "code.model": "shipped:both_llm",
  "test.model": "shipped:both_llm",
}
MESH = {"parallel": "mesh", "mesh.fsdp": 1, "mesh.tensor": 2}


@pytest.fixture(autouse=True)
def small_world(monkeypatch):
  """Few problems; one device, of a mesh two, and of halves one each."""
  load, make = problems.load_problems, devices.make_parallel

  def first(path):
    return load(path)[: 6 if "heldout" in str(path) else 24]

  def few(kind, chosen=None, **mesh):
    count = 1 if kind == "pmap" else 2
    return make(kind, chosen or jax.devices()[:count], **mesh)

  monkeypatch.setattr(problems, "load_problems", first)
  monkeypatch.setattr(devices, "make_parallel", few)
  one, two, *_ = jax.devices()
  monkeypatch.setattr(devices, "halves", lambda: ([one], [two]))


def assert_same_run(one, two):
  """All that the seed decides, and the book."""
  for name in ("metrics.jsonl", dumps.FILE):
    ours, theirs = (read(path / name) for path in (one, two))
    assert len(ours) == len(theirs) > 0
    for row, other in zip(ours, theirs):
      for key, value in row.items():
        if metrics.is_measured(key):
          continue
        if isinstance(value, float):
          value = pytest.approx(value, rel=1e-3, abs=1e-5)
        assert other[key] == value, (name, key)
  assert checkpoint.read_book(one) == checkpoint.read_book(two)


@pytest.mark.slow
def test_a_half_of_the_devices_for_each_policy(tmp_path):
  trainer.train(small_config(), tmp_path / "colocated")
  split = small_config(placement="split")
  with assembly.open_run(split, tmp_path / "looked_at") as run:
    state = run.initial_state()
    where = [
      {d for leaf in jax.tree.leaves(policy) for d in leaf.devices()}
      for policy in (state.code, state.test, run.code.reference.params)
    ]
    assert where[0] == where[2] == {jax.devices()[0]}
    assert where[1] == {jax.devices()[1]}
  trainer.train(split, tmp_path / "split")
  assert_same_run(tmp_path / "colocated", tmp_path / "split")


@pytest.mark.slow
def test_adapters_on_a_mesh(tmp_path):
  trainer.train(small_config(**LORA), tmp_path / "one")
  trainer.train(small_config(**LORA, **MESH), tmp_path / "mesh")
  assert_same_run(tmp_path / "one", tmp_path / "mesh")
  # Either's checkpoint is the other's.
  restored = []
  for workdir, changes in (("one", MESH), ("mesh", {})):
    config = small_config(**LORA, **changes)
    with assembly.open_run(config, tmp_path / f"{workdir}_again") as run:
      with checkpointing.Checkpoints(tmp_path / workdir, 2) as saved:
        state = saved.restore(run.initial_state(), run.parallel)
      assert state.step == 2
      restored.append(run.parallel["test"].fetch(state.test))
  for x, y in zip(*map(jax.tree.leaves, restored), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
  assert len(jax.tree.leaves(restored[0].params)[0].devices()) == 2


def test_self_play_has_no_halves():
  config = small_config(method="self_play", placement="split")
  with pytest.raises(ValueError, match="placement is split: method self_play"):
    checks.check_values(config)
