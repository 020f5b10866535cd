"""A policy as the game uses it: what it samples with and how it learns.

Everything compiled for one role stands here once; the parameters themselves
live in the training state and are passed in.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax

from codea1_jax import flops, grpo, packing, rollout
from codea1_jax import update as updates
from codea1_jax.devices import Parallel
from codea1_jax.losses import is_maximum
from codea1_jax.reference import Reference
from codea1_jax.train_state import PolicyState, UpdateBatch
from codea1_jax.types import Completion

Messages = Sequence[dict[str, str]]


@dataclasses.dataclass(frozen=True)
class Samples:
  """Completions of one role with the prompts they answer."""

  prompts: list[list[int]]  # [P] token ids
  completions: list[list[Completion]]  # [P][n]
  prompt_cut_share: float = 0.0  # prompts that lost their beginning

  def rows(self, chosen: Sequence[int]) -> list[tuple[list[int], Completion]]:
    """(prompt, completion) of the prompts at `chosen`, samples in order."""
    return [
      (self.prompts[p], completion)
      for p in chosen
      for completion in self.completions[p]
    ]

  def take(self, chosen: Sequence[int]) -> "Samples":
    """The prompts at `chosen` with their completions."""
    return Samples(
      [self.prompts[p] for p in chosen],
      [self.completions[p] for p in chosen],
      self.prompt_cut_share,
    )


def join_samples(parts: Sequence[Samples]) -> Samples:
  """The prompts of all parts, in their order."""
  total = sum(len(part.prompts) for part in parts)
  cut = sum(part.prompt_cut_share * len(part.prompts) for part in parts)
  return Samples(
    [prompt for part in parts for prompt in part.prompts],
    [row for part in parts for row in part.completions],
    cut / total,
  )


@dataclasses.dataclass(frozen=True)
class Player:
  """One role's policy, compiled functions and settings."""

  role: str  # "code" or "test"; prefix of metrics, part of the seed
  parallel: Parallel
  policy: rollout.Policy
  draw: Callable  # rollout.make_sampler's, for training
  score: Callable  # update.make_score's
  update: Callable  # update.make_update's
  learning_rate: optax.Schedule
  reference: Reference | None  # of the KL term
  # Placed parameters that are not trained, and what makes all of them of
  # these and the trained ones; None and None where all are trained.
  frozen: Any
  bind: updates.Bind | None
  temperature: float  # that `draw` samples at
  max_prompt_tokens: int  # of a longer prompt the last ones stay
  minibatch_size: int
  epochs: int
  mask_cut: bool  # completions cut by the length limit do not train
  bucket: int
  groups_a_step: int  # groups that one step trains on
  behavior: str  # whose log-probs the update compares with
  importance_cap: float  # of trainer over sampler; 0 for no correction
  pack_length: int  # tokens of a packed row of an update; 0 for padded rows
  max_slots: int  # of a row that shares a prompt; 0: none do
  rows_multiple: int  # of which the number of packed rows is one

  def full(self, params: Any) -> Any:
    """All parameters, of the trained ones; the others are not copied."""
    return self.bind(self.frozen, params) if self.bind else params

  def encode(self, chats: Sequence[Messages]) -> tuple[list[list[int]], float]:
    """Prompts, of long ones the end, and the share that lost its beginning."""
    encoded = rollout.encode_prompts(self.policy, chats)
    prompts = [ids[-self.max_prompt_tokens :] for ids in encoded]
    cut = sum(len(a) > len(b) for a, b in zip(encoded, prompts))
    return prompts, cut / len(prompts)

  def read(self, prompts: Sequence[Sequence[int]]) -> list[str]:
    """Prompts as the policy sees them, special tokens included."""
    return self.policy.tokenizer.batch_decode(prompts)

  def sample(
    self,
    params: Any,
    chats: Sequence[Messages],
    seed: Sequence[int],
    first: int = 0,
  ) -> Samples:
    """`n` completions of each chat, the same for the same seed; of chats that
    come in several calls, `first` is how many came before."""
    prompts, cut_share = self.encode(chats)
    drawn = self.draw(self.full(params), prompts, seed, first=first)
    return Samples(prompts, drawn, cut_share)

  def drawn(self, samples: Samples) -> dict[str, float]:
    """How much was sampled, and the floating point operations it took."""
    model = self.policy.model_config
    rows = samples.rows(range(len(samples.prompts)))
    prompts = [len(prompt) for prompt, _ in rows]
    written = [len(completion.tokens) for _, completion in rows]
    tokens = sum(written)
    # Samples of a prompt share its pass.
    needed = flops.sequences(model, np.add(prompts, written), tokens)
    needed -= flops.sequences(model, prompts, 0)
    needed += flops.sequences(model, list(map(len, samples.prompts)), 0)
    return {
      "prompt_cut_share": samples.prompt_cut_share,
      "tokens/sampled": tokens,
      "flops/rollout": needed,
    }

  def supervised(
    self, chats: Sequence[Messages], answers: Sequence[str]
  ) -> UpdateBatch:
    """Rows that end with given answers, for a loss that is cross-entropy."""
    prompts, _ = self.encode(chats)
    texts = self.policy.tokenizer(list(answers), add_special_tokens=False)
    return rollout.pack(
      prompts,
      [[*ids, self.policy.eos_ids[0]] for ids in texts["input_ids"]],
      pad_id=self.policy.pad_id,
      bucket=self.bucket,
    )

  def prepare(
    self,
    params: Any,
    rows: Sequence[tuple[list[int], Completion]],
    advantages: np.ndarray,
    mask: np.ndarray,
  ) -> tuple[UpdateBatch, dict[str, float]]:
    """Rows of one step, scored by the policy that sampled them.

    Args:
      params: placed, as they sampled.
      rows: [B] prompts and completions.
      advantages: [B].
      mask: [B] bool, False: the row stays out of the loss.

    Returns:
      The batch of all rows, and metrics about them.
    """
    batch = rollout.pack(
      [prompt for prompt, _ in rows],
      [completion.tokens for _, completion in rows],
      pad_id=self.policy.pad_id,
      bucket=self.bucket,
    )
    finished = np.array([c.finished for _, c in rows])
    kept = mask & finished if self.mask_cut else mask
    length = batch.completion_mask.shape[1]
    completions = [c for _, c in rows]
    sampler = self._sampler_log_probs(completions, length)
    score = self._scorer(batch)
    log_probs, reference, scorings = sampler, None, 0
    if self.behavior == "trainer":
      log_probs, scorings = score(self.full(params)), 1
    if self.reference is not None:
      reference = score(self.reference.on_devices())
      scorings += 1
    metrics = self._describe(batch, completions, log_probs, sampler)
    metrics["flops/score"] = scorings * self._forward_flops(batch)
    weights = None
    if self.importance_cap:
      weights = np.asarray(
        grpo.truncated_importance_weights(
          log_probs, sampler, cap=self.importance_cap
        )
      )
      metrics |= self._describe_weights(batch, weights)
    batch = batch.replace(
      completion_mask=batch.completion_mask * kept[:, None],
      advantages=advantages.astype(np.float32),
      behavior_log_probs=log_probs,
      ref_log_probs=reference,
      importance_weights=weights,
    )
    return batch, metrics

  def _scorer(self, batch: UpdateBatch) -> Callable[[Any], np.ndarray]:
    """placed params -> log-probs [B, T] of the padded rows' completions."""
    if not self.max_slots:
      return lambda params: self.score(params, batch)[0]
    shared, places = self._share_prompts(batch)

    def score(params):
      log_probs, _ = self.score(params, shared)
      return log_probs.reshape(-1)[places] * batch.completion_mask

    return score

  def _share_prompts(
    self, batch: UpdateBatch
  ) -> tuple[UpdateBatch, np.ndarray]:
    return packing.share_prompts(
      batch,
      max_slots=self.max_slots,
      rows_multiple=self.rows_multiple,
      bucket=self.bucket,
      pad_id=self.policy.pad_id,
    )

  def _forward_flops(self, batch: UpdateBatch) -> int:
    """Of one forward pass of the padded rows that have something to learn, each
    with a prompt of its own."""
    rows = batch.completion_mask.any(1)
    return flops.sequences(
      self.policy.model_config,
      batch.valid[rows].sum(1),
      batch.completion_mask.sum(),
    )

  def _sampler_log_probs(
    self, completions: Sequence[Completion], length: int
  ) -> np.ndarray | None:
    """[B, T] as drawn; None where they are of another temperature: the
    sampler's are always those at 1."""
    if self.temperature != 1.0:
      return None
    rows = [c.log_probs for c in completions]
    return rollout.pad_rows(rows, length, 0.0, np.float32)[0]

  def _describe(
    self,
    batch: UpdateBatch,
    completions: Sequence[Completion],
    log_probs: np.ndarray,
    sampler: np.ndarray | None,
  ) -> dict[str, float]:
    """Lengths, and how far sampler and trainer are apart in log-probs."""
    mask = batch.completion_mask
    lengths = mask.sum(1)
    metrics = {
      "length/mean": float(lengths.mean()),
      "length/max": float(lengths.max()),
      "length/p90": float(np.percentile(lengths, 90)),
      "cut_share": float(np.mean([not c.finished for c in completions])),
    }
    if sampler is not None and sampler is not log_probs:
      gap = np.abs(log_probs - sampler) * mask
      metrics["sampler_gap"] = float(gap.sum() / max(mask.sum(), 1.0))
    return metrics

  def _describe_weights(
    self, batch: UpdateBatch, weights: np.ndarray
  ) -> dict[str, float]:
    """Importance weights of trainer over sampler: mean, and share capped."""
    ours = weights[batch.completion_mask > 0]
    return {
      "importance_weight/mean": float(ours.mean()),
      "importance_weight/capped_share": float(
        (ours >= self.importance_cap).mean()
      ),
    }

  def learn(
    self, state: PolicyState, batch: UpdateBatch, seed: Sequence[int]
  ) -> tuple[PolicyState, dict[str, float]]:
    """Every minibatch of `epochs` passes in a random order: one update each."""
    if not batch.completion_mask.any():  # nothing to learn from: no update
      return state, {}
    rows = batch.tokens.shape[0]
    rng = np.random.default_rng(list(seed))
    history = []
    for _ in range(self.epochs):
      order = rng.permutation(rows)
      for start in range(0, rows, self.minibatch_size):
        part = order[start : start + self.minibatch_size]
        minibatch = jax.tree.map(lambda leaf: leaf[part], batch)  # noqa: B023
        if not minibatch.completion_mask.any():  # momentum alone is no lesson
          continue
        minibatch = self._packed(minibatch)
        fill = {"update/fill": float(minibatch.valid.mean())}
        state, metrics = self.update(state, minibatch, self.frozen)
        history.append(metrics | fill)
    means = {
      k: float((np.max if is_maximum(k) else np.mean)([m[k] for m in history]))
      for k in history[0]
    }
    step = int(np.asarray(state.step).reshape(-1)[0])
    means["learning_rate"] = float(self.learning_rate(step - 1))
    means["tokens/trained"] = sum(m["completion_tokens"] for m in history)
    # Backward by inputs and by weights; of adapters, which are small, not.
    passes = 2 if self.bind else 3
    means["flops/update"] = passes * self.epochs * self._forward_flops(batch)
    return state, means

  def _packed(self, minibatch: UpdateBatch) -> UpdateBatch:
    """With several sequences in a row, where the config asks for it."""
    if self.max_slots:
      return self._share_prompts(minibatch)[0]
    if not self.pack_length:
      return minibatch
    return packing.pack_sequences(
      minibatch,
      length=self.pack_length,
      rows_multiple=self.rows_multiple,
      bucket=self.bucket,
      pad_id=self.policy.pad_id,
    )
