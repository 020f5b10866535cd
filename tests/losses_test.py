"""The loss of given log-probs: published values, numbers and identities."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1_jax import grpo, losses, train_state

FIXTURES = (
  pathlib.Path(__file__).parents[2]
  / "shared"
  / "fixtures"
  / "reference_fixtures.json"
)
PLAIN = losses.GrpoLossConfig(kl_estimator="none")


def _cases():
  if not FIXTURES.exists():
    return [pytest.param(None, marks=pytest.mark.skip(reason="no fixtures"))]
  return json.loads(FIXTURES.read_text())["grpo"]


def _array(rows):
  return jnp.asarray(rows, jnp.float32)


def _batch(mask, advantages, behavior, **fields):
  """A minibatch of which the objective reads only these."""
  fields = {name: _array(value) for name, value in fields.items()}
  return train_state.UpdateBatch(
    tokens=None,
    valid=None,
    completion_mask=_array(mask),
    advantages=_array(advantages),
    behavior_log_probs=_array(behavior),
    **fields,
  )


def _loss(config, log_probs, batch, entropy=None):
  """(loss, metrics), gradient by log-probs."""
  log_probs = _array(log_probs)
  entropy = jnp.zeros_like(log_probs) if entropy is None else _array(entropy)
  denominators = grpo.count_denominators(batch.completion_mask)

  def loss_fn(log_probs):
    return losses.grpo_objective(
      config, log_probs, entropy, batch, denominators
    )

  return jax.value_and_grad(loss_fn, has_aux=True)(log_probs)


def _case_batch(case):
  return _batch(
    case["completion_mask"],
    case["advantages"],
    case["behavior_log_probs"],
    ref_log_probs=case["ref_log_probs"],
  )


def _random(seed=0):
  """Ragged rows, the last without a token, and log-probs of three policies."""
  rng = np.random.default_rng(seed)
  mask = np.arange(5)[None] < np.array([1, 3, 5, 2, 0])[:, None]
  advantages = rng.normal(size=5)
  return mask, advantages, *rng.uniform(-3, -1, (3, 5, 5))


def _weights(mask, aggregation, horizon):
  """What each token counts for, written down directly."""
  lengths = mask.sum(1, keepdims=True)
  weights = {
    "token_mean": mask / mask.sum(),
    "seq_mean_token_mean": mask / np.maximum(lengths, 1) / (lengths > 0).sum(),
    "seq_mean_token_sum": mask / (lengths > 0).sum(),
    "seq_mean_token_sum_norm": mask / horizon,
  }
  return weights[aggregation]


@pytest.mark.parametrize("case", _cases())
def test_published_loss_metrics_and_gradient(case):
  fields = ("clip_eps_low", "clip_eps_high", "dual_clip", "kl_coef")
  config = losses.GrpoLossConfig(**{name: case[name] for name in fields})
  (loss, metrics), gradient = _loss(
    config, case["log_probs"], _case_batch(case)
  )
  metrics["k3_kl"] = metrics["kl"]
  metrics["clip_fraction_lower"] = metrics["clip_fraction/dual"]
  assert loss == metrics["loss"]
  published = set(metrics) & set(case)
  assert published == {
    *("loss", "policy_loss", "clip_fraction", "clip_fraction_lower"),
    *("approx_kl", "k3_kl"),
  }
  for name in published:
    np.testing.assert_allclose(
      metrics[name], case[name], atol=1e-5, err_msg=name
    )
  np.testing.assert_allclose(gradient, case["grad"], atol=1e-5)


@pytest.mark.parametrize("case", _cases())
@pytest.mark.parametrize("aggregation", grpo.AGGREGATIONS)
def test_published_aggregations_and_their_gradients(case, aggregation):
  mask = np.array(case["completion_mask"])
  config = losses.GrpoLossConfig(kl_coef=1.0, aggregation=aggregation)
  batch = _case_batch(case).replace(advantages=jnp.zeros(len(mask)))
  (loss, _), gradient = _loss(config, case["log_probs"], batch)
  published = case["k3_kl_aggregations"]
  assert len(published) == len(grpo.AGGREGATIONS)
  published = published[aggregation.replace("_", "-")]
  np.testing.assert_allclose(loss, published, atol=1e-5)
  # d k3 = 1 - exp(d), and nothing where the estimate is cut at 10.
  difference = np.subtract(case["ref_log_probs"], case["log_probs"])
  inside = np.exp(difference) - difference - 1 < 10
  slope = np.where(inside, 1 - np.exp(difference), 0)
  expected = slope * _weights(mask, aggregation, mask.shape[1])
  np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.parametrize(
  "advantage, ratios, loss, slope, clipped, dual",
  [
    (1, (1.44, 1.0), -1.2, -0.6, 0, 0),  # sqrt(1.44): no token's, both pass
    (1, (4.0, 1.0), -1.28, 0, 1, 0),
    (1, (4.0, 0.25), -1, -0.5, 0, 0),  # one policy for the whole sequence
    (-1, (0.25, 1.0), 0.8, 0, 1, 0),
    (-1, (4.0, 1.0), 2, 1, 0, 0),
    (-1, (9.0, 4.0), 3, 0, 0, 1),
  ],
)
def test_sequence_ratio_by_hand(advantage, ratios, loss, slope, clipped, dual):
  config = dataclasses.replace(
    PLAIN, ratio="sequence", aggregation="seq_mean_token_mean", dual_clip=3.0
  )
  batch = _batch([[1, 1, 0]], [advantage], [[0, 0, np.nan]])
  log_probs = np.log([[*ratios, 7.0]])
  (value, metrics), gradient = _loss(config, log_probs, batch)
  np.testing.assert_allclose(value, loss, rtol=1e-5)
  np.testing.assert_allclose(gradient, [[slope, slope, 0]], atol=1e-5)
  for name in ("ratio/mean", "ratio/max"):
    np.testing.assert_allclose(
      metrics[name], np.sqrt(np.prod(ratios)), rtol=1e-5
    )
  assert metrics["clip_fraction"] == clipped
  assert metrics["clip_fraction/dual"] == dual


def test_ratio_kinds_are_one_where_a_sequence_is_one_token():
  _, advantages, log_probs, behavior, _ = _random()
  batch = _batch(np.eye(5), advantages, behavior)
  sequence = dataclasses.replace(PLAIN, ratio="sequence")
  (expected, _), expected_gradient = _loss(PLAIN, log_probs, batch)
  (loss, metrics), gradient = _loss(sequence, log_probs, batch)
  assert 0 < metrics["clip_fraction"] < 1
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6)
  # With more tokens they are not.
  batch = batch.replace(completion_mask=jnp.ones((5, 5)))
  difference = _loss(PLAIN, log_probs, batch)[0][0]
  difference -= _loss(sequence, log_probs, batch)[0][0]
  assert abs(difference) > 1e-3


@pytest.mark.parametrize("ratio", grpo.RATIOS)
@pytest.mark.parametrize("aggregation", grpo.AGGREGATIONS)
def test_first_on_policy_gradient_is_that_of_reinforce(ratio, aggregation):
  mask, advantages, log_probs, _, _ = _random()
  config = losses.GrpoLossConfig(
    ratio=ratio, aggregation=aggregation, horizon=7
  )
  batch = _batch(mask, advantages, log_probs, ref_log_probs=log_probs)
  (_, metrics), gradient = _loss(config, log_probs, batch)
  weights = _weights(mask, aggregation, 7) * advantages[:, None]
  expected = jax.grad(lambda x: -(_array(weights) * x).sum())(_array(log_probs))
  np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)
  assert metrics["ratio/mean"] == metrics["ratio/max"] == 1
  kinds = ("", "/low", "/high", "/dual")
  zeros = (*(f"clip_fraction{kind}" for kind in kinds), "approx_kl", "kl")
  assert [float(metrics[name]) for name in zeros] == [0] * 6


@pytest.mark.parametrize("ratio", grpo.RATIOS)
def test_equal_rewards_leave_the_gradient_of_kl_alone(ratio):
  mask, _, log_probs, behavior, ref = _random()
  advantages = grpo.group_advantages(np.full(5, 0.7, np.float32))
  batch = _batch(mask, advantages, behavior, ref_log_probs=ref)
  config = losses.GrpoLossConfig(ratio=ratio, kl_coef=0.1)
  (_, metrics), gradient = _loss(config, log_probs, batch)
  assert metrics["policy_loss"] == 0
  expected = 0.1 * (1 - np.exp(ref - log_probs)) * mask / mask.sum()
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-7)
  (loss, _), gradient = _loss(
    dataclasses.replace(config, kl_estimator="none"), log_probs, batch
  )
  assert loss == 0 and not gradient.any()


@pytest.mark.parametrize(
  "estimator, value, slope",
  [
    ("k1", np.log(2), 1),
    ("k2", np.log(2) ** 2 / 2, np.log(2)),
    ("k3", np.log(2) - 0.5, 0.5),
  ],
)
def test_kl_by_hand(estimator, value, slope):
  # Probability 1/2 now and 1/4 in the reference; no advantage.
  batch = _batch(
    [[1, 0]], [0], [[0, 0]], ref_log_probs=[[np.log(0.25), np.nan]]
  )
  config = losses.GrpoLossConfig(kl_estimator=estimator, kl_coef=3.0)
  (loss, metrics), gradient = _loss(config, [[np.log(0.5), -1]], batch)
  np.testing.assert_allclose(metrics["kl"], value, rtol=1e-5)
  np.testing.assert_allclose(loss, 3 * value, rtol=1e-5)
  np.testing.assert_allclose(gradient, [[3 * slope, 0]], rtol=1e-5)


def test_without_an_estimator_no_reference_is_read():
  mask, advantages, log_probs, behavior, ref = _random()
  batch = _batch(mask, advantages, behavior, ref_log_probs=ref)
  off = losses.GrpoLossConfig(kl_coef=0.0)
  none = losses.GrpoLossConfig(kl_coef=5.0, kl_estimator="none")
  assert losses.GrpoLossConfig().needs_reference
  assert not off.needs_reference and not none.needs_reference
  (expected, metrics), expected_gradient = _loss(off, log_probs, batch)
  assert metrics["kl"] > 0  # a reference that is there is still measured
  for given in (None, jnp.full(ref.shape, jnp.nan)):
    (loss, metrics), gradient = _loss(
      none, log_probs, batch.replace(ref_log_probs=given)
    )
    assert loss == expected and "kl" not in metrics
    np.testing.assert_array_equal(gradient, expected_gradient)
  with pytest.raises(ValueError, match=r"kl_coef .* needs ref_log_probs"):
    _loss(
      losses.GrpoLossConfig(kl_coef=0.5),
      log_probs,
      batch.replace(ref_log_probs=None),
    )


@pytest.mark.parametrize("ratio", grpo.RATIOS)
def test_padding_may_hold_nan(ratio):
  mask, advantages, log_probs, behavior, ref = _random()
  config = losses.GrpoLossConfig(ratio=ratio, kl_coef=0.1)
  results = []
  for padding in (0.0, np.nan):
    batch = _batch(
      mask,
      advantages,
      np.where(mask, behavior, padding),
      ref_log_probs=np.where(mask, ref, padding),
      importance_weights=np.where(mask, 0.5, padding),
    )
    results.append(_loss(config, log_probs, batch))
  assert np.isfinite(results[0][1]).all() and results[0][1].any()
  jax.tree.map(np.testing.assert_array_equal, *results)


def test_importance_weights_by_hand():
  # Ratios 1.2 and 0.9, weights 0.5 and 2, advantage 2; k1 is log 1.2, log 0.9.
  batch = _batch(
    [[1, 1, 0]],
    [2],
    [[0, 0, 0]],
    ref_log_probs=[[0, 0, 0]],
    importance_weights=[[0.5, 2, np.nan]],
  )
  config = losses.GrpoLossConfig(kl_coef=0.1, kl_estimator="k1")
  log_probs = np.log([[1.2, 0.9, 0.3]])
  (loss, metrics), gradient = _loss(config, log_probs, batch)
  np.testing.assert_allclose(metrics["policy_loss"], -(1.2 + 3.6) / 2)
  kl = np.log(1.2 * 0.9) / 2  # which the weights leave alone
  np.testing.assert_allclose(loss, -2.4 + 0.1 * kl, rtol=1e-6)
  np.testing.assert_allclose(
    gradient, [[-0.6 + 0.05, -1.8 + 0.05, 0]], rtol=1e-5
  )
  np.testing.assert_allclose(metrics["importance_weight"], 1.25)


def test_importance_weights_of_one_change_nothing():
  mask, advantages, log_probs, behavior, _ = _random()
  batch = _batch(mask, advantages, behavior)
  (expected, metrics), expected_gradient = _loss(PLAIN, log_probs, batch)
  assert "importance_weight" not in metrics
  ones = grpo.truncated_importance_weights(
    _array(behavior), _array(behavior), cap=2.0
  )
  (loss, metrics), gradient = _loss(
    PLAIN, log_probs, batch.replace(importance_weights=ones)
  )
  assert loss == expected and metrics["importance_weight"] == 1
  np.testing.assert_array_equal(gradient, expected_gradient)


def test_entropy_bonus_raises_entropy():
  logits = jnp.array([[[1.0, 0.0, -1.0]]])
  batch = _batch([[1]], [0], [[0]])
  denominators = grpo.count_denominators(batch.completion_mask)

  def entropy_of(logits):
    log_probs = jax.nn.log_softmax(logits)
    return -(jnp.exp(log_probs) * log_probs).sum(-1)

  def loss_fn(logits, entropy_coef):
    config = dataclasses.replace(PLAIN, entropy_coef=entropy_coef)
    log_probs = jax.nn.log_softmax(logits)[..., 0]
    return losses.grpo_objective(
      config, log_probs, entropy_of(logits), batch, denominators
    )

  before = entropy_of(logits)
  loss, metrics = loss_fn(logits, 0.5)
  np.testing.assert_allclose(loss, -0.5 * before[0, 0], rtol=1e-6)
  np.testing.assert_allclose(metrics["entropy"], before[0, 0], rtol=1e-6)
  for entropy_coef, sign in ((0.5, 1), (-0.5, -1)):
    gradient = jax.grad(loss_fn, has_aux=True)(logits, entropy_coef)[0]
    after = entropy_of(logits - 0.1 * gradient)
    assert (sign * (after - before) > 1e-3).all()
  gradient = jax.grad(loss_fn, has_aux=True)(logits, 0.0)[0]
  assert not gradient.any()


def test_unknown_names_are_refused():
  with pytest.raises(ValueError, match="ratio 'word' is not one of"):
    losses.GrpoLossConfig(ratio="word")
  with pytest.raises(ValueError, match="kl_estimator None is not one of"):
    losses.GrpoLossConfig(kl_estimator=None)
