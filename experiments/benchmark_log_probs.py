"""Time and memory of log-probs and their gradients, side by side in one run.

  python -m experiments.benchmark_log_probs --tokens=1024 --rounds=5

Prints a Markdown table for each vocabulary: medians as ratios to the best form
that holds all logits, and the extra memory (beside inputs and gradients, as the
compiler reports it) as a share of those logits. Forms take turns, so that a
busy machine slows all of them.
"""

import functools
import statistics
import time

import jax
import jax.numpy as jnp
from absl import app, flags

from codea1_jax import log_probs
from experiments.benchmark_flags import ROUNDS

_TOKENS = flags.DEFINE_integer("tokens", 1024, "Tokens to score.")
_WIDTH = flags.DEFINE_integer("width", 896, "Hidden width.")
_VOCABS = flags.DEFINE_multi_integer(
  "vocab", [32_768, 151_936], "Vocabulary sizes."
)
_CHUNKS = flags.DEFINE_multi_integer(
  "chunk", [512, 1024, 2048, 4096], "Vocabulary entries of a chunk."
)
_DTYPE = flags.DEFINE_string("dtype", "float32", "Of hidden states and head.")
_CPU = flags.DEFINE_bool(
  "cpu_time", False, "CPU seconds, not wall time: for a machine that is shared."
)


def log_softmax_gather(hidden, head, targets):
  logits = jnp.einsum(
    "BTD,VD->BTV", hidden, head, preferred_element_type=jnp.float32
  )
  log_p = jax.nn.log_softmax(logits)
  chosen = jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0]
  return chosen, -(jnp.exp(log_p) * log_p).sum(-1)


def forms():
  """Name -> fn(hidden, head, targets); the first two hold all logits."""
  chunked = {
    f"chunks of {size:,}": functools.partial(
      log_probs.token_log_probs, chunk_size=size
    )
    for size in _CHUNKS.value
  }
  return {
    "log_softmax + gather": log_softmax_gather,
    "gather - logsumexp": log_probs.token_log_probs,
    **chunked,
  }


def compiled(fn, inputs, backward: bool):
  """fn itself, or the gradient of a sum of its outputs by hidden and head."""

  def loss(hidden, head, targets):
    chosen, entropy = fn(hidden, head, targets)
    return (chosen + 0.1 * entropy).sum()

  call = jax.value_and_grad(loss, (0, 1)) if backward else fn
  return jax.jit(call).lower(*inputs).compile()


def medians(calls, inputs) -> dict[str, float]:
  """Seconds of each, by rounds in which every form has its turn."""
  clock = time.process_time if _CPU.value else time.perf_counter
  seconds = {name: [] for name in calls}
  for _ in range(ROUNDS.value + 1):  # the first round warms up
    for name, call in calls.items():
      start = clock()
      jax.block_until_ready(call(*inputs))
      seconds[name].append(clock() - start)
  return {name: statistics.median(s[1:]) for name, s in seconds.items()}


def main(_):
  for vocab in _VOCABS.value:
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = (1, _TOKENS.value, _WIDTH.value), (vocab, _WIDTH.value)
    hidden = jax.random.normal(keys[0], shapes[0], _DTYPE.value)
    head = 0.02 * jax.random.normal(keys[1], shapes[1], _DTYPE.value)
    inputs = hidden, head, jax.random.randint(keys[2], shapes[0][:2], 0, vocab)
    rows = {name: [] for name in forms()}
    for backward in (False, True):
      calls = {n: compiled(f, inputs, backward) for n, f in forms().items()}
      times = medians(calls, inputs)
      best = min(list(times.values())[:2])
      for name, call in calls.items():
        extra = call.memory_analysis().temp_size_in_bytes
        share = extra / (4 * _TOKENS.value * vocab)
        rows[name] += [f"{times[name] / best:.2f} x", f"{share:.1%}"]
    print(f"\nV = {vocab:,}, {_TOKENS.value:,} tokens, {_DTYPE.value}\n")
    print("| | forward | extra memory | and backward | extra memory |")
    print("|---|---|---|---|---|")
    for name, cells in rows.items():
      print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
  app.run(main)
