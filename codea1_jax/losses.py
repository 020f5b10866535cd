"""The losses that an update can take: GRPO and supervised.

Letters: B rows, P prompt tokens, T completion tokens.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from codea1_jax import grpo
from codea1_jax.log_probs import CHUNK_SIZE
from codea1_jax.models import qwen
from codea1_jax.train_state import UpdateBatch

# (params, batch, denominators) -> this part's share of the loss, and of each
# metric: shares add up over micro-batches and devices.
LossFn = Callable[
  [Any, UpdateBatch, grpo.Denominators], tuple[jax.Array, dict[str, jax.Array]]
]


@dataclasses.dataclass(frozen=True)
class GrpoLossConfig:
  """What the paper's loss leaves open; defaults are its own run's."""

  clip_eps_low: float = 0.2
  clip_eps_high: float = 0.28
  dual_clip: float = 10.0
  kl_coef: float = 0.001
  kl_estimator: str = "k3"
  entropy_coef: float = 0.0
  aggregation: str = "token_mean"
  horizon: int | None = None  # of seq_mean_token_sum_norm; None: T
  # Vocabulary entries whose logits exist at a time; None: all.
  chunk_size: int | None = CHUNK_SIZE
  temperature: float = 1.0  # the sampler's

  def __post_init__(self):
    if self.kl_estimator not in grpo.KL_ESTIMATORS:
      raise ValueError(
        f"kl_estimator {self.kl_estimator!r} is not one of "
        f"{tuple(grpo.KL_ESTIMATORS)}"
      )
    if self.aggregation not in grpo.AGGREGATIONS:
      raise ValueError(
        f"aggregation {self.aggregation!r} is not one of {grpo.AGGREGATIONS}"
      )


def grpo_loss(config: GrpoLossConfig, model_config: qwen.QwenConfig) -> LossFn:
  """Code-A1's loss: surrogate + kl_coef * KL - entropy_coef * entropy."""

  def loss_fn(params, batch, denominators):
    mask = batch.completion_mask
    log_probs, entropy = completion_log_probs(
      params,
      model_config,
      batch.tokens,
      batch.valid,
      completion_length=mask.shape[1],
      chunk_size=config.chunk_size,
      temperature=config.temperature,
    )
    mean = functools.partial(
      grpo.aggregate,
      completion_mask=mask,
      denominators=denominators,
      aggregation=config.aggregation,
      horizon=config.horizon,
    )
    token_mean = functools.partial(
      grpo.token_mean, completion_mask=mask, denominators=denominators
    )
    # Padding may hold NaN, which `where` in the mean keeps out of the loss but
    # not out of the gradient.
    behavior_log_probs = jnp.where(mask > 0, batch.behavior_log_probs, 0.0)
    surrogate = grpo.clipped_surrogate(
      log_probs,
      behavior_log_probs,
      batch.advantages,
      clip_eps_low=config.clip_eps_low,
      clip_eps_high=config.clip_eps_high,
      dual_clip=config.dual_clip,
    )
    token_loss = surrogate.loss
    if batch.importance_weights is not None:
      token_loss = token_loss * batch.importance_weights
    loss = policy_loss = mean(token_loss)
    metrics = {
      "policy_loss": policy_loss,
      "clip_fraction": token_mean(surrogate.clipped),
      "clip_fraction_lower": token_mean(surrogate.dual_clipped),
      "approx_kl": token_mean(behavior_log_probs - log_probs),
      "entropy": token_mean(entropy),
    }
    if batch.ref_log_probs is None and config.kl_coef:
      raise ValueError(f"kl_coef {config.kl_coef} needs ref_log_probs: None")
    if batch.ref_log_probs is not None:
      estimator = grpo.KL_ESTIMATORS[config.kl_estimator]
      kl = estimator(log_probs, jnp.where(mask > 0, batch.ref_log_probs, 0.0))
      loss = loss + config.kl_coef * mean(kl)
      metrics["kl"] = token_mean(kl)
    if config.entropy_coef:
      loss = loss - config.entropy_coef * mean(entropy)
    return loss, {"loss": loss, **metrics}

  return loss_fn


def sft_loss(
  model_config: qwen.QwenConfig, *, chunk_size: int | None = CHUNK_SIZE
) -> LossFn:
  """Cross-entropy of the completion, the mean over tokens."""

  def loss_fn(params, batch, denominators):
    log_probs, entropy = completion_log_probs(
      params,
      model_config,
      batch.tokens,
      batch.valid,
      completion_length=batch.completion_mask.shape[1],
      chunk_size=chunk_size,
    )
    mask = batch.completion_mask
    loss = grpo.token_mean(-log_probs, mask, denominators)
    entropy = grpo.token_mean(entropy, mask, denominators)
    return loss, {"loss": loss, "entropy": entropy}

  return loss_fn


def completion_log_probs(
  params: Any,
  model_config: qwen.QwenConfig,
  tokens: jax.Array,
  valid: jax.Array,
  *,
  completion_length: int,
  chunk_size: int | None,
  temperature: float = 1.0,
) -> tuple[jax.Array, jax.Array]:
  """Log-probs and entropies [B, T] of the last T of [B, P + T] tokens.

  The state at position P - 1 predicts the first completion token; prompt
  states never meet the vocabulary.
  """
  start = tokens.shape[1] - completion_length
  if start < 1:
    raise ValueError(
      f"completion_length {completion_length} leaves no prompt in rows of "
      f"{tokens.shape[1]} tokens"
    )
  hidden = qwen.hidden_states(params, model_config, tokens, valid)
  return grpo.token_log_probs(
    hidden[:, start - 1 : -1],
    qwen.head_matrix(params, model_config),
    tokens[:, start:],
    chunk_size=chunk_size,
    temperature=temperature,
  )
