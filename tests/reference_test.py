"""References: the same log-probs wherever they lie, one copy of one policy."""

import jax
import numpy as np
import pytest
from small_runs import small_config

from codea1_jax import checks, reference, update
from codea1_jax.devices import make_parallel
from codea1_jax.models import qwen
from codea1_jax.train_state import UpdateBatch

CONFIG = qwen.QwenConfig(
  vocab_size=37,
  hidden_size=16,
  intermediate_size=24,
  num_layers=2,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
)


@pytest.fixture(scope="module")
def params():
  return qwen.init_params(CONFIG, jax.random.key(0))


@pytest.fixture(scope="module")
def parallel():
  return make_parallel("pmap", jax.devices()[:2])


def _build(params, parallel, roles=("code", "test"), **changes):
  config = small_config(**{f"reference.{k}": v for k, v in changes.items()})
  policies = {"code": (None, params), "test": (None, params)}
  both = {"code": parallel, "test": parallel}
  return reference.still_parameters(config, policies, roles, both)


def test_same_log_probs_wherever_it_lies(params, parallel):
  score = update.make_score(CONFIG, parallel, micro_batch_size=2)
  tokens = np.arange(3 * 12).reshape(3, 12).astype(np.int32)
  batch = UpdateBatch(tokens, tokens >= 0, np.ones((3, 8), np.float32))

  def log_probs(**changes):
    _, found = _build(params, parallel, **changes)
    return score(found["code"].on_devices(), batch)[0], found

  device, _ = log_probs()
  host, found = log_probs(placement="host")
  np.testing.assert_array_equal(host, device)
  leaves = jax.tree.leaves(found["code"].params)
  assert all(type(leaf) is np.ndarray for leaf in leaves)

  half, found = log_probs(dtype="bfloat16")
  both, at_host = log_probs(dtype="bfloat16", placement="host")
  np.testing.assert_array_equal(both, half)
  for each in (found, at_host):
    leaves = jax.tree.leaves(each["code"].params)
    assert {leaf.dtype.name for leaf in leaves} == {"bfloat16"}
  assert 0 < np.abs(half - device).max() < 0.02


def test_one_policy_has_one_reference(params, parallel):
  frozen, found = _build(params, parallel, placement="host")
  assert frozen["code"] is None and found["code"] is found["test"]
  _, found = _build(params, parallel, roles=("test",))
  assert found["code"] is None and found["test"] is not None


@pytest.mark.parametrize(
  "field, known",
  [
    ("reference.dtype", "same, bfloat16"),
    ("reference.placement", "device, host"),
    ("code.optimizer.moment_dtype", "float32, bfloat16"),
  ],
)
def test_wrong_values_are_named(field, known):
  with pytest.raises(ValueError, match=f"config.{field} is 'disk'.*{known}"):
    checks.check_values(small_config(**{field: "disk"}))
