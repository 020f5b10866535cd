"""The losses that an update can take: GRPO and supervised.

Letters: B rows, P prompt tokens, T completion tokens, S sequences of a row.
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
# metric: shares add up over micro-batches and devices. Of a metric that is
# named a maximum (`is_maximum`) it is the part's own, at least 0.
LossFn = Callable[
  [Any, UpdateBatch, grpo.Denominators], tuple[jax.Array, dict[str, jax.Array]]
]


@dataclasses.dataclass(frozen=True)
class GrpoLossConfig:
  """What the paper's loss leaves open; defaults are its own run's."""

  clip_eps_low: float = 0.2
  clip_eps_high: float = 0.28
  dual_clip: float = 10.0
  ratio: str = "token"  # or "sequence" (GSPO)
  kl_coef: float = 0.001  # ignored where kl_estimator is "none"
  kl_estimator: str = "k3"
  entropy_coef: float = 0.0
  aggregation: str = "token_mean"
  # Of seq_mean_token_sum_norm; None: T, which changes with the padding.
  horizon: int | None = None
  # Vocabulary entries whose logits exist at a time; None: all.
  chunk_size: int | None = CHUNK_SIZE
  temperature: float = 1.0  # the sampler's

  def __post_init__(self):
    choices = {
      "ratio": grpo.RATIOS,
      "kl_estimator": tuple(grpo.KL_ESTIMATORS),
      "aggregation": grpo.AGGREGATIONS,
    }
    for name, known in choices.items():
      if getattr(self, name) not in known:
        raise ValueError(
          f"{name} {getattr(self, name)!r} is not one of {known}"
        )

  @property
  def needs_reference(self) -> bool:
    """Whether the loss reads `ref_log_probs`."""
    return bool(self.kl_coef) and self.kl_estimator != "none"


def is_maximum(name: str) -> bool:
  """Whether parts of a metric join as their largest, not as their sum."""
  return name.endswith("/max")


def grpo_loss(config: GrpoLossConfig, model_config: qwen.QwenConfig) -> LossFn:
  """Code-A1's loss of a model: `grpo_objective` of its log-probs."""

  def loss_fn(params, batch, denominators):
    log_probs, entropy = completion_log_probs(
      params,
      model_config,
      batch.tokens,
      batch.valid,
      completion_length=batch.completion_mask.shape[1],
      chunk_size=config.chunk_size,
      temperature=config.temperature,
      segments=batch.segments,
      places=batch.places,
      slots=batch.slots,
    )
    return grpo_objective(config, log_probs, entropy, batch, denominators)

  return loss_fn


def grpo_objective(
  config: GrpoLossConfig,
  log_probs: jax.Array,
  entropy: jax.Array,
  batch: UpdateBatch,
  denominators: grpo.Denominators,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Code-A1's loss: w * surrogate + kl_coef * KL - entropy_coef * entropy.

  Args:
    config: which variant.
    log_probs: [B, T] of the completions under the policy that is trained.
    entropy: [B, T] of its distributions.
    batch: the rows; w are its `importance_weights`. Masked tokens may hold NaN.
    denominators: of the whole global minibatch.

  Returns:
    This part's share of the loss, and of every metric.

  Raises:
    ValueError: a KL term without `ref_log_probs`; packed rows without the
      horizon that their aggregation needs.
  """
  mask = batch.completion_mask
  mean = functools.partial(
    grpo.aggregate,
    completion_mask=mask,
    denominators=denominators,
    aggregation=config.aggregation,
    horizon=config.horizon,
    sequences=completion_sequences(batch),
  )
  token_mean = functools.partial(
    grpo.token_mean, completion_mask=mask, denominators=denominators
  )
  ratio = _ratio(config, log_probs, batch)
  policy_loss, metrics = _policy_loss(config, ratio, batch, mean)
  metrics["approx_kl"] = _sane(batch.behavior_log_probs, batch) - log_probs
  loss = policy_loss
  kl = _reference_kl(config, log_probs, batch)
  if kl is not None:
    loss = loss + config.kl_coef * mean(kl)
    metrics["kl"] = kl
  if config.entropy_coef:
    loss = loss - config.entropy_coef * mean(entropy)
  metrics = {
    name: token_mean(value)
    for name, value in {**metrics, "entropy": entropy}.items()
  }
  return loss, {
    "loss": loss,
    "policy_loss": policy_loss,
    "ratio/max": _sane(ratio, batch).max(),
    **metrics,
  }


def _ratio(config, log_probs, batch):
  """[B, T] of the policy that is trained over the one that sampled."""
  behavior_log_probs = _sane(batch.behavior_log_probs, batch)
  if config.ratio == "token":
    return grpo.importance_ratio(log_probs, behavior_log_probs)
  return jnp.exp(
    grpo.sequence_log_ratio(
      log_probs,
      behavior_log_probs,
      batch.completion_mask,
      completion_sequences(batch),
    )
  )


def _policy_loss(config, ratio, batch, mean):
  """The surrogate's share, and metrics of every token."""
  surrogate = grpo.clipped_surrogate(
    ratio,
    batch.advantages,
    clip_eps_low=config.clip_eps_low,
    clip_eps_high=config.clip_eps_high,
    dual_clip=config.dual_clip,
  )
  metrics = {
    "ratio/mean": ratio,
    "clip_fraction": surrogate.clipped,
    "clip_fraction/low": surrogate.clipped * (ratio < 1),
    "clip_fraction/high": surrogate.clipped * (ratio > 1),
    "clip_fraction/dual": surrogate.dual_clipped,
  }
  token_loss = surrogate.loss
  if batch.importance_weights is not None:
    weights = _sane(batch.importance_weights, batch)
    token_loss = token_loss * weights
    metrics["importance_weight"] = weights
  return mean(token_loss), metrics


def _reference_kl(config, log_probs, batch):
  """The estimate for every token; None without a reference."""
  if config.kl_estimator == "none":
    return None
  if batch.ref_log_probs is None:
    if config.needs_reference:
      raise ValueError(f"kl_coef {config.kl_coef} needs ref_log_probs: None")
    return None
  estimator = grpo.KL_ESTIMATORS[config.kl_estimator]
  return estimator(log_probs, _sane(batch.ref_log_probs, batch))


def _sane(values, batch):
  """0 at padding: a NaN there, which `where` in a mean keeps out of the loss,
  would still come into the gradient."""
  return jnp.where(batch.completion_mask > 0, values, 0.0)


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
      segments=batch.segments,
      places=batch.places,
      slots=batch.slots,
    )
    mask = batch.completion_mask
    loss = grpo.token_mean(-log_probs, mask, denominators)
    entropy = grpo.token_mean(entropy, mask, denominators)
    return loss, {"loss": loss, "entropy": entropy}

  return loss_fn


def completion_sequences(batch: UpdateBatch) -> jax.Array | None:
  """[..., S, T] bool, the completion tokens of each sequence of rows that hold
  several; None where a row is one sequence."""
  if batch.segments is None:
    return None
  if batch.slots is not None:
    owners = batch.segments[..., batch.slots[0] :]
  else:
    owners = jnp.take_along_axis(batch.segments, batch.places, axis=-1)
  numbers = jnp.arange(1, batch.max_segments + 1)[:, None]
  numbers = numbers.reshape((1,) * (owners.ndim - 1) + numbers.shape)
  return owners[..., None, :] == numbers


def completion_log_probs(
  params: Any,
  model_config: qwen.QwenConfig,
  tokens: jax.Array,
  valid: jax.Array,
  *,
  completion_length: int,
  chunk_size: int | None,
  temperature: float = 1.0,
  segments: jax.Array | None = None,
  places: jax.Array | None = None,
  slots: tuple[int, int] | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Log-probs and entropies [B, T] of the last T of [B, P + T] tokens.

  The state at position P - 1 predicts the first completion token; prompt
  states never meet the vocabulary. Of packed rows, of which `segments` and
  `places` [B, T] tell, the tokens that the states at `places` predict; behind a
  shared prompt its last state predicts the first token of every sequence.
  """
  start = tokens.shape[1] - completion_length
  if start < 1:
    raise ValueError(
      f"completion_length {completion_length} leaves no prompt in rows of "
      f"{tokens.shape[1]} tokens"
    )
  hidden = qwen.hidden_states(
    params, model_config, tokens, valid, segments, slots
  )
  if places is None:
    states, targets = hidden[:, start - 1 : -1], tokens[:, start:]
    if slots is not None:
      by_slot = segments[:, start:].reshape(-1, slots[1])
      begins = jnp.diff(by_slot, axis=1, prepend=-1) != 0
      begins = begins.reshape(*targets.shape, 1)
      states = jnp.where(begins, hidden[:, start - 1 : start], states)
  else:
    states = jnp.take_along_axis(hidden, places[..., None], axis=1)
    targets = jnp.take_along_axis(tokens, places + 1, axis=1)
  return grpo.token_log_probs(
    states,
    qwen.head_matrix(params, model_config),
    targets,
    chunk_size=chunk_size,
    temperature=temperature,
  )
