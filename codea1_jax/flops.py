"""Floating point operations of a step, counted from shapes.

An addition and a multiplication are two. Counted are products: those of
weights, of attention and of the head; all else is small beside them.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from codea1_jax.models import attention
from codea1_jax.models.config import QwenConfig


@dataclasses.dataclass(frozen=True)
class Work:
  """What one role does in a step, at its longest."""

  model: QwenConfig
  prompts: int  # that completions are drawn of
  samples: int  # a prompt
  trained: int  # completions that are scored and trained on, an epoch each
  prompt_length: int  # tokens, padding too
  length: int  # of a completion
  scorings: int = 1  # 2 with a reference
  epochs: int = 1
  trains_weights: bool = True  # False: adapters


def rollout(work: Work) -> int:
  """Every prompt once, and every token of its completions.

  Decoding meets the whole cache, filled or not.
  """
  model = work.model
  prefill = forward(model, work.prompt_length)
  token = 2 * model.num_layers * matrix_size(model) + head(model)
  token += _attention(model) * (work.prompt_length + work.length)
  return work.prompts * (prefill + work.samples * work.length * token)


def scoring(work: Work) -> int:
  """Of the policy, and of the reference."""
  row = forward(work.model, work.prompt_length + work.length)
  row += work.length * head(work.model)
  return work.scorings * work.trained * row


def update(work: Work) -> int:
  """Forward, by inputs and by weights, and what is computed again."""
  model, length = work.model, work.prompt_length + work.length
  row = forward(model, length) * (3 if work.trains_weights else 2)
  if model.remat == "full":
    row += forward(model, length)
  # Of the head: forward, again in the backward pass, and two gradients.
  row += 4 * work.length * head(model)
  return work.epochs * work.trained * row


def sequences(model: QwenConfig, lengths: np.ndarray, predicted: int) -> int:
  """What rows need: no padding, attention to earlier tokens alone.

  Args:
    model: its shape.
    lengths: tokens of each row.
    predicted: tokens of all rows whose logits are wanted.
  """
  lengths = np.asarray(lengths, np.int64)
  pairs = int((lengths * (lengths + 1) // 2).sum())
  weights = 2 * int(lengths.sum()) * model.num_layers * matrix_size(model)
  return weights + _attention(model) * pairs + int(predicted) * head(model)


def matrix_size(model: QwenConfig) -> int:
  """Weights of the matrices of one layer."""
  heads = model.num_heads + 2 * model.num_kv_heads
  attended = (heads + model.num_heads) * model.head_dim
  return model.hidden_size * (attended + 3 * model.intermediate_size)


def head(model: QwenConfig) -> int:
  """Logits of one token."""
  return 2 * model.vocab_size * model.hidden_size


def forward(model: QwenConfig, length: int) -> int:
  """One row through all layers."""
  weights = 2 * length * model.num_layers * matrix_size(model)
  met = sum(size * keys for size, keys in query_blocks(length))
  return weights + _attention(model) * met


def query_blocks(length: int) -> Iterator[tuple[int, int]]:
  """(queries, keys that they meet) of attention's blocks."""
  size = max(attention._QUERY_BLOCK, -(-length // attention._MOST_BLOCKS))
  for start in range(0, length, size):
    stop = min(start + size, length)
    yield stop - start, stop


def _attention(model: QwenConfig) -> int:
  """Of one query and one key, and of one weight and one value; all layers."""
  return 4 * model.num_layers * model.num_heads * model.head_dim
