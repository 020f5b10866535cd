"""The cached decode loop computes what the full forward pass computes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from qwen_test import CONFIG, forward, params, tokens_of  # noqa: F401 - a fixture

from codea1_jax.models import decoding

LENGTH, SLOTS, WIDTH, RING = 6, 3, 2, 7

prefill = jax.jit(
  decoding.prefill, static_argnums=1, static_argnames="micro_batch"
)
decode_step = jax.jit(decoding.decode_step, static_argnums=1)


def prompts_of(count, seed=0):
  """Left-padded prompts of 6, 2 and 5 tokens, and so on."""
  starts = jnp.array([0, 4, 1, 2])[:count]
  valid = jnp.arange(LENGTH)[None] >= starts[:, None]
  return tokens_of((count, LENGTH), seed), valid


def begin(params, config, count=SLOTS):  # noqa: F811
  tokens, valid = prompts_of(count)
  prompts = prefill(params, config, tokens, valid)
  cache = decoding.empty_cache(
    config, count, WIDTH, prompt_length=LENGTH, ring=RING
  )
  return tokens, valid, cache.replace(prompts=prompts)


def full(params, config, tokens, valid, new):  # noqa: F811
  """Hidden states that predict each new token and one more, uncached."""
  repeat = functools.partial(jnp.repeat, repeats=WIDTH, axis=0)
  whole = jnp.concatenate([repeat(tokens), new], axis=1)
  seen = jnp.concatenate([repeat(valid), jnp.ones(new.shape, bool)], axis=1)
  return forward(params, config, whole, seen)[:, LENGTH - 1 :]


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("clock", [0, 5], ids=["start", "wraps around"])
def test_cached_decode_equals_full_forward(params, scan_layers, clock):  # noqa: F811
  config = dataclasses.replace(CONFIG, scan_layers=scan_layers)
  tokens, valid, cache = begin(params, config)
  new = tokens_of((SLOTS * WIDTH, RING), seed=1)
  start = jnp.full(SLOTS, clock)
  got = [jnp.repeat(cache.prompts.hidden, WIDTH, axis=0)]
  for step in range(RING):
    now = jnp.int32(clock + step)
    last, cache = decode_step(params, config, new[:, step], now, start, cache)
    got.append(last)
  want = full(params, config, tokens, valid, new)
  np.testing.assert_allclose(jnp.stack(got, 1), want, atol=2e-5)


def test_a_slot_that_begins_later_sees_nothing_of_what_was_there(params):  # noqa: F811
  """The second slot runs 4 steps, then begins anew beside the first one."""
  tokens, valid, cache = begin(params, CONFIG, 2)
  old, new = (tokens_of((2 * WIDTH, RING), seed) for seed in (1, 2))
  stream = old.at[WIDTH:, 4:].set(new[WIDTH:, : RING - 4])
  got = []
  for step in range(RING):
    start = jnp.array([0, 0 if step < 4 else 4])
    hidden, cache = decode_step(
      params, CONFIG, stream[:, step], jnp.int32(step), start, cache
    )
    got.append(hidden)
  got = jnp.stack(got, 1)
  first = full(params, CONFIG, tokens, valid, old)[:WIDTH, 1:]
  np.testing.assert_allclose(got[:WIDTH], first, atol=2e-5)
  again = full(params, CONFIG, tokens, valid, new)[WIDTH:, 1 : RING - 3]
  np.testing.assert_allclose(got[WIDTH:, 4:], again, atol=2e-5)


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_prefill_in_parts_is_prefill(params, micro_batch):  # noqa: F811
  tokens, valid = prompts_of(4)
  whole = prefill(params, CONFIG, tokens, valid)
  parts = prefill(params, CONFIG, tokens, valid, micro_batch=micro_batch)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), parts, whole
  )
  at_end = forward(params, CONFIG, tokens, valid)[:, -1]
  np.testing.assert_allclose(whole.hidden, at_end, atol=1e-5)


def test_selected_slots_go_on_as_before(params):  # noqa: F811
  _, _, cache = begin(params, CONFIG)
  token, start = tokens_of((SLOTS * WIDTH, 2)), jnp.zeros(SLOTS, jnp.int32)
  _, cache = decode_step(
    params, CONFIG, token[:, 0], jnp.int32(0), start, cache
  )
  want, _ = decode_step(params, CONFIG, token[:, 1], jnp.int32(1), start, cache)
  slots, rows = jnp.array([2, 0]), jnp.array([4, 5, 0, 1])
  got, _ = decode_step(
    params,
    CONFIG,
    token[rows, 1],
    jnp.int32(1),
    start[slots],
    decoding.select(cache, slots, rows),
  )
  np.testing.assert_allclose(got, want[rows], atol=1e-5)


def test_a_prompt_is_stored_once_for_all_its_samples():
  cache = jax.eval_shape(
    lambda: decoding.empty_cache(CONFIG, 2, 7, prompt_length=5, ring=4)
  )
  assert cache.prompts.keys[0].shape == (2, 2, 8, 5)
  assert cache.keys[0].shape == (14, 2, 8, 4)
  assert len(cache.keys) == 2
