"""What a decode loop and an update need at least, and what the machine can do.

The accounting of a decode loop, for R rows in it at once, all sizes of the
model's dtype:

  operations  2 x (parameters of the layers + of the head) a decoded token
  weights     every parameter but the embedding table once a step;
              steps = max(longest completion, decoded tokens / R)
  keys and    of a decoded token: those of all tokens sampled before it;
  values      of a prompt: once a step as long as one of its samples runs

  bound = max(operations / matmul rate, weights / their read rate
              + keys and values / their read rate)

The first token of a row comes from the prompt's own pass (prefill), which is
measured apart and taken off: decoded are all tokens after the first. Attention
scores, norms, softmax over the vocabulary and the draw count as nothing, and so
does waste: rows that have ended, padding, steps with few rows left.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from codea1_jax.models.config import QwenConfig

_SECONDS = 0.25  # of one measurement
_WIDTH = 1024


@dataclasses.dataclass(frozen=True)
class Work:
  """What decoding needs at least (see the top of the file)."""

  operations: float
  weight_bytes: float
  kv_bytes: float


def matrix_parameters(config: QwenConfig) -> int:
  """Parameters that a decode step multiplies with: the layers', the head's."""
  return _layer_parameters(config) + _head_parameters(config)


def _layer_parameters(config: QwenConfig) -> int:
  inner = config.head_dim * config.num_heads
  fused = config.head_dim * (config.num_heads + 2 * config.num_kv_heads)
  layer = config.hidden_size * (fused + inner + 3 * config.intermediate_size)
  return config.num_layers * layer


def _head_parameters(config: QwenConfig) -> int:
  return config.vocab_size * config.hidden_size


def kv_elements(config: QwenConfig) -> int:
  """Numbers that one token leaves in the cache."""
  return 2 * config.num_layers * config.num_kv_heads * config.head_dim


def decode_work(
  config: QwenConfig,
  prompt_lengths: Sequence[int],
  lengths: Sequence[int],
  *,
  num_samples: int,
  max_rows: int,
  itemsize: int,
) -> Work:
  """The work of completions of such lengths, row p * num_samples + n."""
  decoded = sum(lengths) - len(lengths)
  steps = max(max(lengths) - 1, decoded / max_rows)
  own = sum(length * (length - 1) // 2 for length in lengths)
  groups = (
    lengths[p * num_samples : (p + 1) * num_samples]
    for p in range(len(prompt_lengths))
  )
  shared = sum(
    prompt * (max(group) - 1) for prompt, group in zip(prompt_lengths, groups)
  )
  parameters = matrix_parameters(config)
  return Work(
    operations=2.0 * parameters * decoded,
    weight_bytes=float(itemsize * parameters * steps),
    kv_bytes=float(itemsize * kv_elements(config) * (own + shared)),
  )


def update_operations(
  config: QwenConfig, prompt_tokens: int, lengths: Sequence[int]
) -> float:
  """Operations of an update on rows of a prompt and so many tokens each."""
  rows = [prompt_tokens + length for length in lengths]
  pairs = sum(row * (row + 1) // 2 for row in rows)
  forward = 2.0 * _layer_parameters(config) * sum(rows)
  forward += 2.0 * _head_parameters(config) * sum(lengths)
  width = config.num_heads * config.head_dim
  return 3 * (forward + 4.0 * width * config.num_layers * pairs)


def bound_seconds(work: Work, rates: dict[str, float], dtype: str):
  """Seconds the work needs at the rates, and which of them binds."""
  matmul = work.operations / rates[f"matmul_{dtype}"]
  read = work.weight_bytes / rates["read_weights"]
  read += work.kv_bytes / rates["read_kv"]
  return max((matmul, "matmul"), (read, "reads"))


def _rate(function: Callable, *arguments, amount: float) -> dict[str, float]:
  """Amount a second, wall and CPU, of calls made for a while."""
  function(*arguments).block_until_ready()
  wall, cpu, calls = time.perf_counter(), time.process_time(), 0
  while time.perf_counter() - wall < _SECONDS:
    function(*arguments).block_until_ready()
    calls += 1
  wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
  return {"wall": amount * calls / wall, "cpu": amount * calls / cpu}


def _read_rate(size: int) -> dict[str, float]:
  """Bytes a second of the better of two ways to read an array once."""
  import jax
  import jax.numpy as jnp

  matrix = jnp.ones((max(1, size // (4 * _WIDTH)), _WIDTH))
  vector = jnp.ones(_WIDTH)
  ways = (
    _rate(jax.jit(jnp.matmul), matrix, vector, amount=matrix.nbytes),
    _rate(jax.jit(lambda m: m.sum(1)), matrix, amount=matrix.nbytes),
  )
  return max(ways, key=lambda rates: rates["wall"])


def measure(weight_bytes: int, kv_bytes: int) -> dict[str, Any]:
  """Rates by name, each by wall and by CPU second.

  Args:
    weight_bytes: size of the array read for `read_weights`: where the weights
      of a small model stay in the cache, so must this.
    kv_bytes: the same for `read_kv`.
  """
  import jax
  import jax.numpy as jnp

  @jax.jit
  def product(x):
    return jnp.matmul(x, x, preferred_element_type=jnp.float32)

  rates = {}
  for dtype in ("float32", "bfloat16"):
    square = jnp.ones((_WIDTH, _WIDTH), dtype)
    rates[f"matmul_{dtype}"] = _rate(product, square, amount=2.0 * _WIDTH**3)
  rates["read_weights"] = _read_rate(weight_bytes)
  rates["read_kv"] = _read_rate(kv_bytes)
  return rates
