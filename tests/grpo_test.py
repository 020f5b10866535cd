"""Advantages, TopVar, log-probs, the surrogate: numbers and identities."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1_jax import grpo

FIXTURES = (
  pathlib.Path(__file__).parents[2]
  / "shared"
  / "fixtures"
  / "reference_fixtures.json"
)


def _fixtures(section):
  if not FIXTURES.exists():
    return [pytest.param(None, marks=pytest.mark.skip(reason="no fixtures"))]
  return json.loads(FIXTURES.read_text())[section]


def _arrays(case, *names):
  return [jnp.asarray(case[name], jnp.float32) for name in names]


def _paper_loss(log_probs, case):
  """The whole loss of one fixture, and what its metrics are made of."""
  behavior, ref, mask, advantages = _arrays(
    case,
    "behavior_log_probs",
    "ref_log_probs",
    "completion_mask",
    "advantages",
  )
  denominators = grpo.count_denominators(mask)
  surrogate = grpo.clipped_surrogate(
    log_probs,
    behavior,
    advantages,
    clip_eps_low=case["clip_eps_low"],
    clip_eps_high=case["clip_eps_high"],
    dual_clip=case["dual_clip"],
  )
  values = {
    "policy_loss": surrogate.loss,
    "clip_fraction": surrogate.clipped,
    "clip_fraction_lower": surrogate.dual_clipped,
    "approx_kl": behavior - log_probs,
    "k3_kl": grpo.k3_kl(log_probs, ref),
  }
  values = {
    name: grpo.token_mean(value, mask, denominators)
    for name, value in values.items()
  }
  loss = values["policy_loss"] + case["kl_coef"] * values["k3_kl"]
  return loss, {**values, "loss": loss}


@pytest.mark.parametrize("case", _fixtures("grpo"))
def test_published_loss_and_gradient(case):
  log_probs = jnp.asarray(case["log_probs"])
  paper_grad = jax.grad(functools.partial(_paper_loss, case=case), has_aux=True)
  gradient, values = jax.jit(paper_grad)(log_probs)
  for name, value in values.items():
    np.testing.assert_allclose(value, case[name], atol=1e-5, err_msg=name)
  np.testing.assert_allclose(gradient, case["grad"], atol=1e-5)


@pytest.mark.parametrize("case", _fixtures("grpo"))
def test_published_advantages(case):
  rewards = np.reshape(case["rewards"], (-1, case["group_size"]))
  advantages = grpo.group_advantages(rewards)
  assert advantages.dtype == np.float32
  np.testing.assert_allclose(advantages.ravel(), case["advantages"], atol=1e-5)


@pytest.mark.parametrize("case", _fixtures("grpo"))
def test_published_aggregations(case):
  log_probs, ref, mask = _arrays(
    case, "log_probs", "ref_log_probs", "completion_mask"
  )
  for name, expected in case["k3_kl_aggregations"].items():
    value = grpo.aggregate(
      grpo.k3_kl(log_probs, ref),
      mask,
      grpo.count_denominators(mask),
      aggregation=name.replace("-", "_"),
    )
    np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", _fixtures("topvar"))
def test_published_top_variance(case):
  selected = grpo.top_variance(np.array(case["rewards"]), case["k"])
  assert selected.tolist() == case["selected"]


def test_advantages_by_hand():
  # Mean 2, sample variance (1 + 1 + 0) / 2 = 1; and mean 1, variance 2.
  advantages = grpo.group_advantages(np.array([[1, 3, 2], [0, 1, 2.0]]))
  np.testing.assert_allclose(advantages, [[-1, 1, 0], [-1, 0, 1]], atol=3e-6)
  advantages = grpo.group_advantages(np.array([0.0, 2.0]))
  np.testing.assert_allclose(advantages, [-(0.5**0.5), 0.5**0.5], atol=3e-6)
  advantages = grpo.group_advantages(np.array([0.0, 4.0]), norm_by_std=False)
  assert advantages.tolist() == [-2, 2]


def test_advantages_have_mean_zero_and_std_one():
  rewards = np.random.default_rng(0).uniform(size=(5, 2, 8))
  advantages = grpo.group_advantages(rewards)
  np.testing.assert_allclose(advantages.mean(-1), 0, atol=1e-6)
  np.testing.assert_allclose(advantages.std(-1, ddof=1), 1, atol=1e-4)


def test_equal_rewards_have_exactly_no_advantage():
  # A mean of equal float32 numbers need not equal them; eps is only 1e-6.
  rewards = np.full((3, 7), [[0.1], [0.7], [1 / 3]], np.float32)
  for norm_by_std in (True, False):
    advantages = grpo.group_advantages(rewards, norm_by_std=norm_by_std)
    assert (advantages == 0).all()
  assert grpo.group_advantages(np.array([[0.9]])).tolist() == [[0]]


def test_masked_samples_leave_their_group():
  rewards = np.array([[1, 3, 2, 100], [5, 100, 100, 100.0]])
  mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)
  advantages = grpo.group_advantages(rewards, mask=mask)
  np.testing.assert_allclose(
    advantages, [[-1, 1, 0, 0], [0, 0, 0, 0]], atol=3e-6
  )
  nan = np.where(mask, rewards, np.nan)
  assert (grpo.group_advantages(nan, mask=mask) == advantages).all()
  with pytest.raises(ValueError, match=r"mask \(4,\) of rewards \(2, 4\)"):
    grpo.group_advantages(rewards, mask=mask[0])


def test_top_variance_keeps_the_first_of_equals():
  # A tenth apart each time, though floats say that the second is further.
  rewards = np.array([[[0.1, 0.2], [0.7, 0.8]], [[0.2, 0.2], [0.1, 0.1]]])
  assert rewards[0, 0].std() < rewards[0, 1].std()
  assert grpo.top_variance(rewards, 1).tolist() == [[0], [0]]


def test_top_variance_is_of_the_population():
  # Codes with different numbers of suites left: n, not n - 1, divides.
  rewards = np.array([[[0, 1.0, 0.5, 0.5], [0, 0.9, 7, 7]]])
  mask = np.array([[[1, 1, 1, 1], [1, 1, 0, 0]]], bool)
  # .354 against .45; and by n - 1 .408 against .636.
  assert grpo.top_variance(rewards, 1, mask).tolist() == [[1]]
  rewards = np.array([[[0, 1.0, 0, 1.0], [0, 0.98, 7, 7]]])
  # .5 against .49; by n - 1 .577 against .693.
  assert grpo.top_variance(rewards, 1, mask).tolist() == [[0]]
  # A code without any suite comes last.
  mask = np.array([[[0, 0, 0, 0], [0, 1, 0, 0]]], bool)
  assert grpo.top_variance(rewards, 2, mask).tolist() == [[1, 0]]


def test_top_variance_refuses_bad_arguments():
  with pytest.raises(ValueError, match="k = 3 of M = 2"):
    grpo.top_variance(np.zeros((1, 2, 4)), 3)
  with pytest.raises(ValueError, match=r"\(2, 4\), not \[Q, M, N\]"):
    grpo.top_variance(np.zeros((2, 4)), 1)


def test_on_policy_ratio_is_one():
  log_probs = -jnp.arange(1.0, 7.0).reshape(2, 3)
  advantages = jnp.array([2.0, -3.0])

  def loss(log_probs, behavior):
    surrogate = grpo.clipped_surrogate(log_probs, behavior, advantages)
    return surrogate.loss.sum(), surrogate

  gradient, surrogate = jax.grad(loss, has_aux=True)(log_probs, log_probs)
  np.testing.assert_allclose(surrogate.loss[:, 0], [-2, 3])
  # At ratio 1 the gradient is REINFORCE's: -A for every token.
  np.testing.assert_allclose(gradient, [[-2] * 3, [3] * 3])
  assert not surrogate.clipped.any() and not surrogate.dual_clipped.any()
  assert not grpo.k3_kl(log_probs, log_probs).any()


@pytest.mark.parametrize(
  "advantage, ratio, loss, slope, clipped, dual",
  [
    (1, 1.2, -1.2, -1.2, 0, 0),
    (1, 1.5, -1.28, 0, 1, 0),  # a good sample gains nothing past 1.28
    (1, 0.5, -0.5, -0.5, 0, 0),
    (-1, 0.5, 0.8, 0, 1, 0),  # a bad one nothing below 0.8
    (-1, 1.5, 1.5, 1.5, 0, 0),
    (-1, 20, 10, 0, 0, 1),  # and costs no more than ten times
    (2, 20, -2.56, 0, 1, 0),
  ],
)
def test_surrogate_by_hand(advantage, ratio, loss, slope, clipped, dual):
  def fn(log_prob):
    surrogate = grpo.clipped_surrogate(
      log_prob, jnp.zeros((1, 1)), jnp.array([advantage], jnp.float32)
    )
    return surrogate.loss.sum(), surrogate

  log_prob = jnp.log(jnp.full((1, 1), ratio, jnp.float32))
  gradient, surrogate = jax.grad(fn, has_aux=True)(log_prob)
  np.testing.assert_allclose(surrogate.loss, [[loss]], rtol=1e-5)
  np.testing.assert_allclose(gradient, [[slope]], rtol=1e-5)
  assert surrogate.clipped.tolist() == [[clipped]]
  assert surrogate.dual_clipped.tolist() == [[dual]]


def test_extreme_ratios_stay_finite():
  far = jnp.array([[-1000.0, 1000.0], [-1000.0, 1000.0]])
  ratio = grpo.importance_ratio(far, -far)
  np.testing.assert_allclose(ratio[0], np.exp([-20.0, 20.0]), rtol=1e-5)
  np.testing.assert_allclose(grpo.k3_kl(far, -far), jnp.full((2, 2), 10.0))

  def loss(log_probs):
    advantages = jnp.array([1.0, -1.0])
    surrogate = grpo.clipped_surrogate(log_probs, -far, advantages).loss
    return (surrogate + grpo.k3_kl(log_probs, -far)).sum()

  assert jnp.isfinite(jax.grad(loss)(far)).all()


def test_kl_estimators_by_hand():
  log_probs, ref = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))
  np.testing.assert_allclose(grpo.k1_kl(log_probs, ref), np.log(2), rtol=1e-6)
  np.testing.assert_allclose(
    grpo.k2_kl(log_probs, ref), np.log(2) ** 2 / 2, rtol=1e-6
  )
  np.testing.assert_allclose(
    grpo.k3_kl(log_probs, ref), 0.5 + np.log(2) - 1, rtol=1e-6
  )


def test_estimators_average_to_the_divergence():
  policy = np.array([0.5, 0.3, 0.2])
  reference = np.array([0.4, 0.4, 0.2])
  exact = (policy * np.log(policy / reference)).sum()
  for estimator in (grpo.k1_kl, grpo.k3_kl):
    values = estimator(jnp.log(policy)[None], jnp.log(reference)[None])
    np.testing.assert_allclose((policy * values[0]).sum(), exact, rtol=1e-5)


def test_truncated_importance_weights():
  log_probs = jnp.log(jnp.array([[0.5, 0.9]]))
  sampler = jnp.log(jnp.array([[0.25, 0.1]]))
  weights = grpo.truncated_importance_weights(log_probs, sampler, cap=3.0)
  np.testing.assert_allclose(weights, [[2, 3]], rtol=1e-6)
  gradient = jax.grad(
    lambda x: grpo.truncated_importance_weights(x, sampler, cap=3.0).sum()
  )(log_probs)
  assert not gradient.any()


RAGGED = jnp.array([[1, 0, 0], [1, 1, 1], [0, 0, 0]])
VALUES = jnp.array([[3.0, jnp.nan, 9], [6, 0, 3], [jnp.inf, jnp.nan, 9]])


@pytest.mark.parametrize(
  "aggregation, expected",
  [
    ("token_mean", 12 / 4),
    ("seq_mean_token_mean", (3 + 9 / 3) / 2),
    ("seq_mean_token_sum", (3 + 9) / 2),
    ("seq_mean_token_sum_norm", (3 + 9) / 6),
  ],
)
def test_aggregations_by_hand_and_by_parts(aggregation, expected):
  denominators = grpo.count_denominators(RAGGED)
  assert denominators == (4, 2)

  def share(rows):
    return grpo.aggregate(
      VALUES[rows],
      RAGGED[rows],
      denominators,
      aggregation=aggregation,
      horizon=6,
    )

  np.testing.assert_allclose(share(slice(None)), expected)
  parts = sum(share(slice(row, row + 1)) for row in range(3))
  np.testing.assert_allclose(parts, expected)


def test_no_tokens_is_zero():
  mask = jnp.zeros((2, 3))
  denominators = grpo.count_denominators(mask)
  for aggregation in grpo.AGGREGATIONS:
    value, gradient = jax.value_and_grad(grpo.aggregate)(
      jnp.ones((2, 3)), mask, denominators, aggregation=aggregation
    )
    assert value == 0 and not gradient.any()
  with pytest.raises(ValueError, match="'mean' is not one of"):
    grpo.aggregate(mask, mask, denominators, aggregation="mean")
