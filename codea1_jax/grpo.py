"""Group-relative policy optimization: the maths of Code-A1's two updates.

Arrays and scalars only; never a config, a model or a device. Advantages and
TopVar work on a step's few thousand rewards and are numpy; everything that is
differentiated is jax.

Letters: B rows, T completion tokens, S sequences that share a packed row, G
samples of one group, and Q, M, N as in types.py. Equations: Code-A1 (arXiv
2603.15611), GRPO (arXiv 2402.03300), DAPO's asymmetric clip (arXiv 2503.14476),
GSPO's ratios of whole sequences (arXiv 2507.18071). `token_log_probs` fills
log_probs.py; averages of a minibatch stand in aggregation.py.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from codea1_jax.aggregation import (  # noqa: F401
  AGGREGATIONS,
  Denominators,
  aggregate,
  count_denominators,
  sequence_lengths,
  sequence_sums,
  token_mean,
)
from codea1_jax.log_probs import token_log_probs as token_log_probs

LOG_RATIO_LIMIT = 20.0  # exp(20) is still far from overflow in float32
K3_LIMIT = 10.0
STDS = ("sample", "population")
RATIOS = ("token", "sequence")
_TIE_DECIMALS = 6  # below this, float32 rewards do not tell two spreads apart


def group_advantages(
  rewards: np.ndarray,
  *,
  mask: np.ndarray | None = None,
  norm_by_std: bool = True,
  std: str = "sample",
  eps: float = 1e-6,
) -> np.ndarray:
  """Advantages of samples within their group (Code-A1, GRPO).

  A = (r - mean) / (std + eps);
  A = r - mean for `norm_by_std=False` (Dr. GRPO, arXiv 2503.20783).

  Args:
    rewards: [..., G] rewards; the last axis is one group.
    mask: [..., G], False where a sample has no reward (infrastructure); such a
      sample gets 0 and does not count in the others' mean.
    norm_by_std: divide by the group's standard deviation.
    std: which one: of a `sample`, over n - 1 (Code-A1), or of a `population`,
      over n.
    eps: added to the standard deviation.

  Returns:
    [..., G] float32; 0 for a group of one and for a group of equal rewards.

  Raises:
    ValueError: unknown std, or a mask that is not shaped as the rewards.
  """
  if std not in STDS:
    raise ValueError(f"std {std!r} is not one of {STDS}")
  rewards = np.asarray(rewards, np.float64)
  kept = _as_mask(mask, rewards)
  count = kept.sum(-1, keepdims=True)
  mean = _masked_sum(rewards, kept) / np.maximum(count, 1)
  centered = np.where(kept, rewards - mean, 0.0)
  if norm_by_std:
    divisor = count - 1 if std == "sample" else count
    variance = _masked_sum(centered**2, kept) / np.maximum(divisor, 1)
    centered = centered / (np.sqrt(variance) + eps)
  # Rounding must not make a signal out of equal rewards: 0 exactly.
  informative = (count > 1) & (reward_spread(rewards, kept)[..., None] > 0)
  return np.where(informative, centered, 0.0).astype(np.float32)


def top_variance(
  rewards: np.ndarray, k: int, mask: np.ndarray | None = None
) -> np.ndarray:
  """TopVar: the k codes a question whose suites' rewards vary most (Code-A1).

  Args:
    rewards: [Q, M, N] rewards of N suites of each of M codes.
    k: codes to keep for a question.
    mask: [Q, M, N], False where a suite has no reward (infrastructure).

  Returns:
    [Q, k] int indices into M, largest population standard deviation first; the
    first of equals.

  Raises:
    ValueError: k is not in 1..M, or rewards are not [Q, M, N].
  """
  rewards = np.asarray(rewards, np.float64)
  if rewards.ndim != 3:
    raise ValueError(f"top_variance: rewards {rewards.shape}, not [Q, M, N]")
  if not 1 <= k <= rewards.shape[1]:
    raise ValueError(f"top_variance: k = {k} of M = {rewards.shape[1]} codes")
  kept = _as_mask(mask, rewards)
  count = kept.sum(-1, keepdims=True)
  mean = _masked_sum(rewards, kept) / np.maximum(count, 1)
  squares = np.where(kept, (rewards - mean) ** 2, 0.0)
  std = np.sqrt(squares.sum(-1) / np.maximum(count[..., 0], 1))
  std = np.where(count[..., 0] > 0, np.round(std, _TIE_DECIMALS), -1.0)
  return np.argsort(-std, axis=-1, kind="stable")[:, :k]


class Surrogate(NamedTuple):
  """Per-token policy loss, and where a clip replaced the plain term."""

  loss: jax.Array  # [B, T]
  clipped: jax.Array  # [B, T] 1 where the ratio's clip binds
  dual_clipped: jax.Array  # [B, T] 1 where the dual clip binds


def clipped_surrogate(
  ratio: jax.Array,
  advantages: jax.Array,
  *,
  clip_eps_low: float = 0.2,
  clip_eps_high: float = 0.28,
  dual_clip: float = 10.0,
) -> Surrogate:
  """PPO's clipped loss with asymmetric clip and dual clip (Code-A1).

  L = max(-A rho, -A clip(rho, 1 - low, 1 + high)); for A < 0: min(L, -A dual)

  Args:
    ratio: [B, T] rho, a token's or its whole sequence's.
    advantages: [B], one a row, or [B, T].
    clip_eps_low: how far the ratio may fall below 1.
    clip_eps_high: how far it may rise above 1.
    dual_clip: bound of the loss of a bad sample (arXiv 1912.09729), above 1.

  Returns:
    Per-token loss and the two indicators that average to clip fractions.
  """
  if advantages.ndim == 1:
    advantages = advantages[:, None]
  plain = -advantages * ratio
  clipped = -advantages * jnp.clip(ratio, 1 - clip_eps_low, 1 + clip_eps_high)
  loss = jnp.maximum(plain, clipped)
  bound = -advantages * dual_clip
  negative = advantages < 0
  return Surrogate(
    loss=jnp.where(negative, jnp.minimum(loss, bound), loss),
    clipped=(clipped > plain).astype(jnp.float32),
    dual_clipped=(negative & (loss > bound)).astype(jnp.float32),
  )


def importance_ratio(
  log_probs: jax.Array, behavior_log_probs: jax.Array
) -> jax.Array:
  """rho = exp(clip(log_probs - behavior_log_probs, -20, 20)), [B, T]."""
  return jnp.exp(_limited(log_probs - behavior_log_probs))


def sequence_log_ratio(
  log_probs: jax.Array,
  behavior_log_probs: jax.Array,
  completion_mask: jax.Array,
  sequences: jax.Array | None = None,
) -> jax.Array:
  """The log of GSPO's ratio, one for all the tokens of a sequence.

  log s = clip(sum_t (log_probs - behavior_log_probs) / length, -20, 20)
  (arXiv 2507.18071). GSPO itself averages with `seq_mean_token_mean`.

  Args:
    log_probs: [B, T] of the policy that is trained.
    behavior_log_probs: [B, T] of the policy that sampled.
    completion_mask: [B, T]; masked tokens do not count and may hold NaN.
    sequences: [B, S, T], as `sequence_sums` takes them.

  Returns:
    [B, T], equal along a sequence; 0 for one without tokens.
  """
  difference = log_probs - behavior_log_probs
  total = sequence_sums(difference, completion_mask, sequences)
  lengths = sequence_lengths(completion_mask, sequences)
  mean = _limited(total / jnp.maximum(lengths, 1))
  if sequences is None:
    return jnp.broadcast_to(mean, log_probs.shape)
  return jnp.where(sequences, mean[..., None], 0.0).sum(-2)


def truncated_importance_weights(
  log_probs: jax.Array, sampler_log_probs: jax.Array, *, cap: float
) -> jax.Array:
  """min(rho, cap) of trainer over sampler: corrects the gap between the two.

  Both describe one policy, computed by two programs; the weight multiplies the
  per-token policy loss and carries no gradient (truncated importance sampling:
  Yao et al., On the Rollout-Training Mismatch in Modern RL Systems, 2025).

  Args:
    log_probs: [B, T] as the trainer scores the sampled tokens.
    sampler_log_probs: [B, T] as the sampler saw them.
    cap: largest weight.

  Returns:
    [B, T] in (0, cap].
  """
  weights = importance_ratio(log_probs, sampler_log_probs)
  return jax.lax.stop_gradient(jnp.minimum(weights, cap))


def k1_kl(log_probs: jax.Array, ref_log_probs: jax.Array) -> jax.Array:
  """k1 = log_probs - ref_log_probs, [B, T]: unbiased, high variance.

  As a loss it only adds noise: the mean of its gradient is 0 on-policy.
  """
  return log_probs - ref_log_probs


def k2_kl(log_probs: jax.Array, ref_log_probs: jax.Array) -> jax.Array:
  """k2 = (log_probs - ref_log_probs)^2 / 2, [B, T]: biased, low variance.

  As a loss it has the gradient of KL(policy || reference) on-policy.
  """
  return 0.5 * jnp.square(log_probs - ref_log_probs)


def k3_kl(log_probs: jax.Array, ref_log_probs: jax.Array) -> jax.Array:
  """k3 = clip(exp(d) - d - 1, -10, 10), d = clip(ref - log_probs, -20, 20).

  Schulman's estimator of KL(policy || reference), as Code-A1 uses it; [B, T].
  As a loss it has the gradient of KL(reference || policy) on-policy.
  """
  difference = _limited(ref_log_probs - log_probs)
  kl = jnp.exp(difference) - difference - 1
  return jnp.clip(kl, -K3_LIMIT, K3_LIMIT)


# By the names that configs use; "none" is a loss without a reference.
KL_ESTIMATORS = {"none": None, "k1": k1_kl, "k2": k2_kl, "k3": k3_kl}


def _limited(log_ratio):
  return jnp.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _as_mask(mask, rewards):
  if mask is None:
    return np.ones(rewards.shape, bool)
  mask = np.asarray(mask, bool)
  if mask.shape != rewards.shape:
    raise ValueError(f"mask {mask.shape} of rewards {rewards.shape}")
  return mask


def _masked_sum(values, kept):
  return np.where(kept, values, 0.0).sum(-1, keepdims=True)


def reward_spread(rewards: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """Largest minus smallest reward of each group [..., G] -> [...].

  Only where `mask` is True; negative infinity for a group without any.
  """
  kept = np.asarray(mask, bool)
  return np.where(kept, rewards, -np.inf).max(-1) - np.where(
    kept, rewards, np.inf
  ).min(-1)
