"""Advantages, TopVar, log-probs, the surrogate: numbers and identities."""

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


@pytest.mark.parametrize("case", _fixtures("grpo"))
def test_published_advantages(case):
  rewards = np.reshape(case["rewards"], (-1, case["group_size"]))
  advantages = grpo.group_advantages(rewards)
  assert advantages.dtype == np.float32
  np.testing.assert_allclose(advantages.ravel(), case["advantages"], atol=1e-5)


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


def test_population_advantages_by_hand():
  # Variances 1, 1 and (1 + 1 + 0 + 0) / 4, or 2 / 3 without the last sample.
  rewards = np.array([[0, 2, 0, 2], [1, 3, 2, 2.0]])
  advantages = grpo.group_advantages(rewards, std="population")
  root = 2**0.5
  np.testing.assert_allclose(
    advantages, [[-1, 1, -1, 1], [-root, root, 0, 0]], atol=3e-6
  )
  mask = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], bool)
  advantages = grpo.group_advantages(rewards, mask=mask, std="population")
  root = 1.5**0.5
  np.testing.assert_allclose(
    advantages, [[-1, 1, 0, 0], [-root, root, 0, 0]], atol=3e-6
  )


def test_advantages_have_mean_zero_and_std_one():
  rewards = np.random.default_rng(0).uniform(size=(5, 2, 8))
  for std, ddof in zip(grpo.STDS, (1, 0), strict=True):
    advantages = grpo.group_advantages(rewards, std=std)
    np.testing.assert_allclose(advantages.mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(advantages.std(-1, ddof=ddof), 1, atol=1e-4)


def test_unknown_std_is_named():
  for norm_by_std in (True, False):
    with pytest.raises(ValueError, match="std 'biased' is not one of"):
      grpo.group_advantages(np.ones(2), norm_by_std=norm_by_std, std="biased")


def test_equal_rewards_have_exactly_no_advantage():
  # A mean of equal float32 numbers need not equal them; eps is only 1e-6.
  rewards = np.full((3, 7), [[0.1], [0.7], [1 / 3]], np.float32)
  for norm_by_std in (True, False):
    for std in grpo.STDS:
      advantages = grpo.group_advantages(
        rewards, norm_by_std=norm_by_std, std=std
      )
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
    ratio = grpo.importance_ratio(log_probs, behavior)
    surrogate = grpo.clipped_surrogate(ratio, advantages)
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
      grpo.importance_ratio(log_prob, jnp.zeros((1, 1))),
      jnp.array([advantage], jnp.float32),
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
    ratio = grpo.importance_ratio(log_probs, -far)
    surrogate = grpo.clipped_surrogate(ratio, advantages).loss
    return (surrogate + grpo.k3_kl(log_probs, -far)).sum()

  assert jnp.isfinite(jax.grad(loss)(far)).all()


def test_sequence_log_ratio_by_hand():
  # (log 2 + log 8) / 2 = log 4: a token without mask counts in neither.
  log_probs = jnp.log(jnp.array([[0.5, 0.8, 0.9], [0.1, 0.2, 0.3]]))
  behavior = jnp.log(jnp.array([[0.25, 0.1, 0.1], [0.1, 0.1, 0.1]]))
  behavior = behavior.at[0, 2].set(jnp.nan)
  mask = jnp.array([[1, 1, 0], [0, 0, 0]])

  def total(log_probs):
    ratio = grpo.sequence_log_ratio(log_probs, behavior, mask)
    return ratio[0].sum(), ratio

  gradient, ratio = jax.grad(total, has_aux=True)(log_probs)
  np.testing.assert_allclose(ratio, [[np.log(4)] * 3, [0] * 3], rtol=1e-6)
  # Three equal numbers, each with half of either token.
  np.testing.assert_allclose(gradient, [[1.5, 1.5, 0], [0, 0, 0]])


def test_sequence_log_ratio_is_limited():
  far = jnp.array([[-1000.0, -1000.0], [1000.0, 1000.0], [1000.0, -1000.0]])
  ratio = grpo.sequence_log_ratio(far, -far, jnp.ones((3, 2)))
  np.testing.assert_allclose(ratio, [[-20] * 2, [20] * 2, [0] * 2])


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


def test_gradients_of_estimators_on_policy():
  logits = jnp.array([0.3, -0.2, 0.1])
  ref = jnp.log(jnp.array([0.4, 0.4, 0.2]))

  def gradient_of_mean(estimator):
    """Of an average over samples of a policy that stands still."""
    samples = jax.nn.softmax(logits)

    def mean(logits):
      values = estimator(jax.nn.log_softmax(logits)[None], ref[None])
      return (samples * values[0]).sum()

    return jax.grad(mean)(logits)

  def forward(logits):
    log_probs = jax.nn.log_softmax(logits)
    return (jnp.exp(ref) * (ref - log_probs)).sum()

  def backward(logits):
    log_probs = jax.nn.log_softmax(logits)
    return (jnp.exp(log_probs) * (log_probs - ref)).sum()

  expected = {
    "k1": jnp.zeros(3),
    "k2": jax.grad(backward)(logits),
    "k3": jax.grad(forward)(logits),
  }
  assert {"none", *expected} == set(grpo.KL_ESTIMATORS)
  for name, value in expected.items():
    gradient = gradient_of_mean(grpo.KL_ESTIMATORS[name])
    np.testing.assert_allclose(gradient, value, atol=1e-6, err_msg=name)


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
