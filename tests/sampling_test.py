"""Draws have the right distribution; rows depend on key and prompt only."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from qwen_test import CONFIG as TWO_LAYERS
from qwen_test import forward, random_params

from codea1_jax import drawing, sampling
from codea1_jax.drawing import Filters
from codea1_jax.models import qwen

CONFIG = dataclasses.replace(TWO_LAYERS, num_layers=1)
DRAWS = 20_000
PAD = 60
LENGTH, STEPS = 6, 8


@pytest.fixture(scope="module")
def params():
  return random_params(CONFIG)


def prompts_of(count):
  """Left-padded prompts of 3 to 6 tokens."""
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, 60, (count, LENGTH)).astype("i4")
  starts = np.arange(count) % 4
  return tokens, np.arange(LENGTH)[None] >= starts[:, None]


def run(params, tokens, valid, ids, num_samples, config=CONFIG, **changed):
  settings = {
    "num_samples": num_samples,
    "max_new_tokens": STEPS,
    "temperature": 1.0,
    "eos_ids": (7, 9, 11, 13),
    "pad_id": PAD,
  } | changed
  keys = sampling.row_keys(jax.random.key(5), jnp.asarray(ids))
  output = sampling.sample(
    params, config, jnp.asarray(tokens), jnp.asarray(valid), keys, **settings
  )
  return jax.tree.map(np.asarray, output)


@pytest.fixture(scope="module")
def sampled(params):
  """4 prompts, 6 samples each."""
  tokens, valid = prompts_of(4)
  return tokens, valid, run(params, tokens, valid, range(24), 6)


def whole_rows(tokens, valid, output, num_samples):
  """Prompt and completion in one array, for the full forward pass."""
  repeat = lambda x: np.repeat(x, num_samples, axis=0)  # noqa: E731
  return (
    jnp.asarray(np.concatenate([repeat(tokens), output.tokens], 1)),
    jnp.asarray(np.concatenate([repeat(valid), output.mask], 1)),
  )


def full_logits(params, tokens, valid, output, num_samples):
  """Logits [B, T, V] that predict the sampled tokens, without any cache."""
  rows = whole_rows(tokens, valid, output, num_samples)
  hidden = forward(params, CONFIG, *rows)[:, LENGTH - 1 : -1]
  return np.asarray(qwen.logits(params, CONFIG, hidden))


def assert_distribution(tokens, probs):
  """Pearson's chi-square of the counts, cells with few expected merged."""
  counts = np.bincount(tokens, minlength=len(probs))
  assert counts[probs == 0].sum() == 0
  expected = probs * len(tokens)
  big = expected >= 5
  observed = np.append(counts[big], counts[~big].sum())
  expected = np.append(expected[big], expected[~big].sum())
  keep = expected > 0
  assert scipy.stats.chisquare(observed[keep], expected[keep]).pvalue > 1e-3


def softmax(x):
  e = np.exp(x.astype("f8") - x.max())
  return e / e.sum()


def logits_and_uniforms(size):
  logits = np.random.default_rng(2).normal(0, 2, size).astype("f")
  keys = sampling.row_keys(jax.random.key(0), jnp.arange(DRAWS))
  return logits, jax.vmap(jax.random.uniform)(keys)


def next_tokens(logits, uniforms, temperature, **truncation):
  rows = jnp.broadcast_to(jnp.asarray(logits), (len(uniforms), len(logits)))
  return map(
    np.asarray,
    drawing.next_token(
      rows, uniforms, jnp.float32(temperature), Filters(**truncation)
    ),
  )


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("size", [37, 300])
def test_draws_follow_the_policy(size, temperature):
  logits, uniforms = logits_and_uniforms(size)
  tokens, log_probs = next_tokens(logits, uniforms, temperature)
  assert_distribution(tokens, softmax(logits / temperature))
  want = np.log(softmax(logits))[tokens]
  np.testing.assert_allclose(log_probs, want, atol=1e-5)


def nucleus(probs, top_p):
  """The smallest set of most likely tokens that reaches top_p, slowly."""
  kept, mass = np.zeros_like(probs), 0.0
  for token in np.argsort(-probs):
    if mass >= top_p:
      break
    kept[token] = probs[token]
    mass += probs[token]
  return kept / kept.sum()


def test_draws_of_a_nucleus():
  logits, uniforms = logits_and_uniforms(150)
  tokens, log_probs = next_tokens(logits, uniforms, 0.8, top_p=0.9)
  want = nucleus(softmax(logits / 0.8), 0.9)
  assert 3 < (want > 0).sum() < 100
  assert_distribution(tokens, want)
  # The policy's own probability, not the truncated one.
  np.testing.assert_allclose(
    log_probs, np.log(softmax(logits))[tokens], atol=1e-5
  )


def test_draws_of_the_top_k_and_of_both():
  logits, uniforms = logits_and_uniforms(150)
  probs = softmax(logits)
  probs[np.argsort(-probs)[12:]] = 0
  probs /= probs.sum()
  tokens, _ = next_tokens(logits, uniforms, 1.0, top_k=12)
  assert_distribution(tokens, probs)
  tokens, _ = next_tokens(logits, uniforms, 1.0, top_k=12, top_p=0.7)
  assert_distribution(tokens, nucleus(probs, 0.7))


def test_draws_of_what_is_likely_enough():
  logits, uniforms = logits_and_uniforms(150)
  probs = softmax(logits / 0.8)
  probs[probs < 0.1 * probs.max()] = 0
  probs /= probs.sum()
  assert 3 < (probs > 0).sum() < 100
  tokens, _ = next_tokens(logits, uniforms, 0.8, min_p=0.1)
  assert_distribution(tokens, probs)


def test_draws_of_all_filters_together():
  """top_k first, then the nucleus of what is left, then min_p."""
  logits, uniforms = logits_and_uniforms(150)
  probs = softmax(logits)
  probs[np.argsort(-probs)[20:]] = 0
  probs = nucleus(probs / probs.sum(), 0.9)
  before = (probs > 0).sum()
  probs[probs < 0.15 * probs.max()] = 0
  probs /= probs.sum()
  assert (probs > 0).sum() < before < 20
  filters = {"top_k": 20, "top_p": 0.9, "min_p": 0.15}
  tokens, _ = next_tokens(logits, uniforms, 1.0, **filters)
  assert_distribution(tokens, probs)


@pytest.mark.parametrize("scale", [3.0, 0.1], ids=["within", "beyond"])
def test_a_nucleus_of_a_large_vocabulary(scale):
  """Looked for among the likeliest first; a flat policy needs the whole."""
  logits = np.random.default_rng(3).normal(0, scale, 1200).astype("f")
  keys = sampling.row_keys(jax.random.key(0), jnp.arange(8000))
  uniforms = jax.vmap(jax.random.uniform)(keys)
  tokens, _ = next_tokens(logits, uniforms, 1.0, top_p=0.9)
  want = nucleus(softmax(logits), 0.9)
  assert ((want > 0).sum() > drawing._HEAD) == (scale < 1)
  assert_distribution(tokens, want)


@pytest.mark.parametrize(
  ("filters", "message"),
  [
    ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
    ({"top_k": -1}, "top_k at least 0, got 1.0, -1"),
    ({"min_p": 1.5}, r"min_p must be in \[0, 1\], got 1.5"),
  ],
)
def test_filters_out_of_range_are_named(filters, message):
  with pytest.raises(ValueError, match=message):
    Filters(**filters)


def test_a_tiny_nucleus_is_the_most_likely_token():
  logits, uniforms = logits_and_uniforms(20)
  tokens, _ = next_tokens(logits, uniforms, 1.0, top_p=1e-9)
  assert (tokens == logits.argmax()).all()


def test_draw_by_hand():
  """cdf .1 .1 .4 1: zero weight is never drawn, edges go up."""
  weights = jnp.array([1.0, 0.0, 3.0, 6.0])
  uniform = jnp.array([0.0, 0.099, 0.1001, 0.399, 0.401, 0.9999999])
  rows = jnp.broadcast_to(weights, (6, 4))
  assert drawing.draw(rows, uniform).tolist() == [0, 0, 2, 2, 3, 3]


def test_draw_across_blocks_by_hand():
  """One unit of weight in each of three far places."""
  weights = np.zeros(1000, "f")
  weights[[5, 131, 998]] = 1.0
  uniform = jnp.array([0.0, 0.33, 0.34, 0.66, 0.67, 1 - 2.0**-24])
  rows = jnp.broadcast_to(jnp.asarray(weights), (6, 1000))
  got = drawing.draw(rows, uniform).tolist()
  assert got == [5, 5, 131, 131, 998, 998]


def test_sampler_log_probs_equal_those_of_the_full_forward(params, sampled):
  tokens, valid, output = sampled
  logits = full_logits(params, tokens, valid, output, 6)
  log_probs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits)))
  want = np.take_along_axis(log_probs, output.tokens[..., None], 2)[..., 0]
  np.testing.assert_allclose(
    output.log_probs, np.where(output.mask, want, 0), atol=1e-4
  )


def test_rows_end_with_their_end_token_and_are_padded_after_it(sampled):
  output = sampled[2]
  lengths = output.mask.sum(1)
  assert lengths.min() < STEPS  # some row ended early, else nothing is tested
  for row, length in enumerate(lengths):
    assert output.mask[row, :length].all()
    ends = np.isin(output.tokens[row, :length], (7, 9, 11, 13))
    assert not ends[:-1].any()
    assert ends[-1] or length == STEPS
    assert (output.tokens[row, length:] == PAD).all()
    assert (output.log_probs[row, length:] == 0).all()


def test_samples_of_one_prompt_differ(sampled):
  rows = sampled[2].tokens.reshape(4, 6, STEPS)
  assert all(len(np.unique(group, axis=0)) > 1 for group in rows)


def test_a_row_does_not_depend_on_its_batch(params, sampled):
  """Prompt 2 alone, with two of its keys, padded more and on both sides."""
  tokens, valid, output = sampled
  ids = np.array([15, 12])  # 2 * 6 + 3, 2 * 6 + 0
  pad = lambda x: np.pad(x[2:3], ((0, 0), (3, 2)))  # noqa: E731
  alone = run(params, pad(tokens), pad(valid), ids, 2)
  np.testing.assert_array_equal(alone.tokens, output.tokens[ids])
  np.testing.assert_array_equal(alone.mask, output.mask[ids])
  np.testing.assert_allclose(alone.log_probs, output.log_probs[ids], atol=1e-5)


def test_a_longer_limit_continues_the_same_row(params, sampled):
  tokens, valid, output = sampled
  longer = run(params, tokens, valid, range(24), 6, max_new_tokens=STEPS + 3)
  np.testing.assert_array_equal(longer.tokens[:, :STEPS], output.tokens)
  assert longer.mask[:, STEPS:].any()


def test_every_row_has_a_limit_of_its_own(params, sampled):
  tokens, valid, output = sampled
  limit = np.arange(24) % (STEPS + 2)  # 0 and beyond the loop's included
  short = run(params, tokens, valid, range(24), 6, limit=limit)
  lengths = np.minimum(output.mask.sum(1), limit)
  np.testing.assert_array_equal(short.mask.sum(1), lengths)
  steps = np.arange(STEPS)[None] < lengths[:, None]
  want = np.where(steps, output.tokens, PAD)
  np.testing.assert_array_equal(short.tokens, want)


def test_greedy_is_the_argmax_of_the_full_forward(params):
  tokens, valid = prompts_of(4)
  output = run(params, tokens, valid, range(24), 6, temperature=0.0)
  best = full_logits(params, tokens, valid, output, 6).argmax(-1)
  np.testing.assert_array_equal(output.tokens[output.mask], best[output.mask])
  np.testing.assert_array_equal(output.tokens[::6], output.tokens[5::6])


def test_scanned_layers_sample_the_same(params, sampled):
  tokens, valid, output = sampled
  config = dataclasses.replace(CONFIG, scan_layers=True)
  scanned = run(params, tokens, valid, range(24), 6, config=config)
  np.testing.assert_array_equal(scanned.tokens, output.tokens)


def test_a_filler_prompt_has_no_completion(params, sampled):
  tokens, valid, output = sampled
  valid = valid.copy()
  valid[1] = False
  filled = run(params, tokens, valid, range(24), 6)
  assert not filled.mask[6:12].any()
  assert (filled.tokens[6:12] == PAD).all()
  np.testing.assert_array_equal(filled.tokens[12:], output.tokens[12:])


def test_pmap_samples_the_same(params, sampled):
  tokens, valid, output = sampled
  if jax.device_count() < 2:
    pytest.skip("needs two devices")
  keys = sampling.row_keys(jax.random.key(5), jnp.arange(24))
  split = lambda x: jnp.asarray(x).reshape((2, -1) + x.shape[1:])  # noqa: E731

  def shard(tokens, valid, keys):
    return sampling.sample(
      params,
      CONFIG,
      tokens,
      valid,
      keys,
      num_samples=6,
      max_new_tokens=STEPS,
      temperature=1.0,
      eos_ids=(7, 9, 11, 13),
      pad_id=PAD,
    )

  got = jax.pmap(shard, devices=jax.devices()[:2])(
    split(tokens), split(valid), split(keys)
  )
  got = np.asarray(got.tokens).reshape(24, STEPS)
  np.testing.assert_array_equal(got, output.tokens)


def test_what_does_not_fit_is_named(params):
  tokens, valid = prompts_of(2)
  with pytest.raises(ValueError, match="5 row_keys for 2 prompts x 3"):
    run(params, tokens, valid, range(5), 3)
  with pytest.raises(ValueError, match=r"\(2, 6\), prompt_valid \(1, 6\)"):
    run(params, tokens, valid[:1], range(6), 3)
