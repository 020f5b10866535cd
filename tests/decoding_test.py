"""The cached decode loop computes what the full forward pass computes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from qwen_test import CONFIG, forward, params, tokens_of  # noqa: F401 - a fixture

from codea1_jax.models import decoding


@pytest.mark.parametrize("scan_layers", [False, True])
def test_cached_decode_equals_full_forward(params, scan_layers):  # noqa: F811
  config = dataclasses.replace(CONFIG, scan_layers=scan_layers)
  prompts, samples, length, steps = 3, 2, 6, 5
  tokens = tokens_of((prompts, length))
  valid = jnp.arange(length)[None] >= jnp.array([0, 4, 1])[:, None]
  new = tokens_of((prompts * samples, steps), seed=1)
  prefill = jax.jit(
    decoding.prefill,
    static_argnums=1,
    static_argnames=("num_samples", "cache_length"),
  )
  hidden, cache = prefill(
    params, config, tokens, valid, num_samples=samples, cache_length=steps + 2
  )
  step_fn = jax.jit(
    lambda token, step, cache: decoding.decode_step(
      params, config, token, step, cache
    )
  )
  got = [jnp.repeat(hidden[:, -1], samples, axis=0)]
  for step in range(steps):
    last, cache = step_fn(new[:, step], jnp.int32(step), cache)
    got.append(last)
  whole = jnp.concatenate([jnp.repeat(tokens, samples, axis=0), new], axis=1)
  all_valid = jnp.concatenate(
    [jnp.repeat(valid, samples, axis=0), jnp.ones(new.shape, bool)], axis=1
  )
  want = forward(params, config, whole, all_valid)[:, length - 1 :]
  np.testing.assert_allclose(jnp.stack(got, 1), want, atol=2e-5)


def test_a_prompt_is_stored_once_for_all_its_samples(params):  # noqa: F811
  def prefill(params):
    valid = jnp.ones((2, 5), bool)
    return decoding.prefill(
      params,
      CONFIG,
      tokens_of((2, 5)),
      valid,
      num_samples=7,
      cache_length=4,
    )

  _, cache = jax.eval_shape(prefill, params)
  assert cache.prompt_keys[0].shape == (2, 2, 8, 5)
  assert cache.keys[0].shape == (2, 2, 7, 8, 4)
  assert len(cache.keys) == 2
