"""Compiles the 7B config's programs for 64 virtual devices from shapes alone.

Prints a JSON line a program: bytes a device, and its collectives. Run by
tests/seven_b_test.py, in a process of its own: the number of devices is fixed
when jax starts.
"""

import functools
import json
import math
import re

import jax
import jax.numpy as jnp

from codea1_jax import (
  devices,
  drawing,
  generation,
  losses,
  optimizer,
  sampling,
  train_state,
  update,
)
from codea1_jax.models import convert, decoding, qwen

# Qwen2.5-Coder-7B-Instruct's config.json, computed as configs/ say.
CONFIG = qwen.QwenConfig(
  vocab_size=152064,
  hidden_size=3584,
  intermediate_size=18944,
  num_layers=28,
  num_heads=28,
  num_kv_heads=4,
  head_dim=128,
  tie_word_embeddings=False,
  dtype="bfloat16",
  scan_layers=True,
  remat="full",
)
PROMPT, LENGTH = 4096, 4096
PROMPTS, SLOTS = 4, 8  # of a group
_BYTES = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "u16": 2, "pred": 1}
_COLLECTIVE = re.compile(
  r" = (.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|"
  r"collective-permute)(?:-start)?\("
)


def collectives(text: str) -> list[tuple[str, int]]:
  """(kind, bytes of the result) of each in a compiled program's text."""
  found = []
  for line in text.splitlines():
    match = _COLLECTIVE.search(line)
    if match:
      shapes = re.findall(r"(\w+)\[([\d,]*)\]", match[1])
      size = sum(
        _BYTES[dtype] * math.prod(int(n) for n in dims.split(",") if n)
        for dtype, dims in shapes
      )
      found.append((match[2], size))
  return found


def tell(name: str, compiled) -> None:
  memory = compiled.memory_analysis()
  total = (
    memory.argument_size_in_bytes
    + memory.temp_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
  )
  seen = collectives(compiled.as_text())
  print(json.dumps({"name": name, "bytes": total, "collectives": seen}))


def with_shardings(shapes, shardings):
  return jax.tree.map(
    lambda shape, sharding: shape.update(sharding=sharding), shapes, shardings
  )


def lower_update(parallel, state):
  """One policy's update with AdamW of micro-batches of a row a group."""
  rows = (parallel.num_groups, 4, 1)
  shape = jax.ShapeDtypeStruct
  batch = train_state.UpdateBatch(
    tokens=shape((*rows, PROMPT + LENGTH), jnp.int32),
    valid=shape((*rows, PROMPT + LENGTH), bool),
    completion_mask=shape((*rows, LENGTH), jnp.float32),
    advantages=shape(rows, jnp.float32),
    behavior_log_probs=shape((*rows, LENGTH), jnp.float32),
    ref_log_probs=shape((*rows, LENGTH), jnp.float32),
  )
  run = update.make_update(
    losses.grpo_loss(losses.GrpoLossConfig(), CONFIG),
    optimizer.make_optimizer(),
    parallel,
    micro_batch_size=1,
  )
  return run.step.lower(state, batch, None).compile()


def lower_sampling(parallel, params):
  """The sampler's programs, each from what the one before leaves."""
  device = generation._compile(
    CONFIG, 1, LENGTH, drawing.NO_FILTERS, parallel, (0,), 0
  )
  shape, groups = jax.ShapeDtypeStruct, parallel.num_groups
  prepare = device.prepare.lower(params).compile()
  tell("prepare", prepare)
  unstacked = jax.eval_shape(
    lambda params: qwen.unstack(params, CONFIG, by_rows=False), params
  )
  weights = with_shardings(unstacked, prepare.output_shardings)
  tokens = shape((groups, PROMPTS, PROMPT), jnp.int32)
  prefill = device.prefill.lower(weights, tokens, tokens.update(dtype=bool))
  prefill = prefill.compile()
  tell("prefill", prefill)
  flat = shape((groups * PROMPTS, PROMPT), jnp.int32)
  prompts = jax.eval_shape(
    lambda params, tokens: decoding.prefill(params, CONFIG, tokens, tokens > 0),
    unstacked,
    flat,
  )
  prompts = with_shardings(prompts, prefill.output_shardings)
  empty = device.empty.lower(prompts, SLOTS).compile()
  slots = jax.eval_shape(
    lambda: sampling.empty_slots(
      CONFIG, groups * SLOTS, 1, prompt_length=PROMPT, max_new_tokens=LENGTH
    )
  )
  slots = with_shardings(slots, empty.output_shardings)
  numbers = shape((groups,), jnp.int32), shape((groups,), jnp.float32)
  tell("decode", device.advance.lower(weights, slots, *numbers).compile())


def main():
  parallel = devices.make_parallel("mesh", fsdp=16, tensor=4)
  create = functools.partial(
    train_state.create_policy_state, optimizer=optimizer.make_optimizer()
  )
  state = jax.eval_shape(create, convert.param_structs(CONFIG))
  state = with_shardings(state, parallel.shardings(state))
  tell("update", lower_update(parallel, state))
  lower_sampling(parallel, state.params)


if __name__ == "__main__":
  main()
