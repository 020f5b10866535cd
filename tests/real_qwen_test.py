"""Parity with transformers on real Qwen2.5-Coder-0.5B-Instruct weights.

Needs the weights (real_qwen.weights says where they are looked for) and torch
where a test uses `theirs`; skips with the reason.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import real_qwen
import safetensors

from codea1_jax import losses, rollout
from codea1_jax.models import convert, qwen

NEW_TOKENS = 128


@pytest.fixture(scope="module")
def loaded():
  """The policy in float32 and its parameters."""
  return rollout.load_policy(real_qwen.weights())


@pytest.fixture(scope="module")
def policy(loaded):
  return loaded[0]


@pytest.fixture(scope="module")
def replicated(loaded):
  return real_qwen.one_device().place(loaded[1])


@pytest.fixture(scope="module")
def prompts(policy):
  return real_qwen.prompts(policy)


@pytest.fixture(scope="module")
def theirs():
  return real_qwen.load_theirs(real_qwen.weights())


@pytest.fixture(scope="module")
def greedy(policy, replicated, prompts):
  """Our greedy continuations of all the prompts, in one batch."""
  return real_qwen.greedy(policy, replicated, prompts, NEW_TOKENS)


@functools.partial(jax.jit, static_argnums=1)
def _logits(params, config, tokens, valid):
  hidden = qwen.hidden_states(params, config, tokens, valid)
  return qwen.logits(params, config, hidden)


def our_logits(loaded, rows, length):
  """A list of float32 logits [T, V], a batch padded left to `length`."""
  policy, params = loaded
  tokens, valid = rollout.pad_rows(rows, length, policy.pad_id, left=True)
  logits = _logits(params, policy.model_config, tokens, valid)
  return [
    np.asarray(row[mask]) for row, mask in zip(logits, valid, strict=True)
  ]


def test_prompts_differ_in_length(prompts):
  lengths = list(map(len, prompts))
  assert len(set(lengths)) == 8 and lengths[0] < 25 and lengths[-1] > 280


def test_logits_are_those_of_transformers(loaded, theirs, prompts):
  rows = [prompts[0], prompts[3], prompts[-1]]
  length = len(prompts[-1]) + 3  # so that even the longest row is padded
  batched = our_logits(loaded, rows, length)
  for row, together in zip(rows, batched, strict=True):
    want = real_qwen.their_logits(theirs, row)
    assert np.abs(want).max() > 10
    np.testing.assert_allclose(together, want, atol=2e-3, rtol=0)
    print(f"logits differ by {np.abs(together - want).max():.1e} at most")
  for row, together in ((rows[0], batched[0]), (rows[-1], batched[-1])):
    alone = our_logits(loaded, [row], len(row))[0]
    np.testing.assert_allclose(alone, together, atol=1e-3, rtol=0)


def test_greedy_tokens_are_the_argmax_of_transformers(theirs, prompts, greedy):
  """So its own greedy continuation is the same, by induction over tokens: given
  equal tokens so far, the next is equal. One forward pass instead of 128."""
  for prompt, completion in zip(prompts, greedy, strict=True):
    tokens = np.array(completion.tokens)
    assert len(tokens) == NEW_TOKENS or completion.finished
    logits = real_qwen.their_logits(theirs, [*prompt, *completion.tokens])
    best = logits[len(prompt) - 1 : -1].argmax(-1)
    np.testing.assert_array_equal(tokens, best)


def test_greedy_tokens_do_not_depend_on_the_batch(
  policy, replicated, prompts, greedy
):
  """The shortest prompt, padded by far the most in its batch, alone."""
  alone = real_qwen.greedy(policy, replicated, prompts[:1], NEW_TOKENS)[0]
  assert alone.tokens == greedy[0].tokens
  assert alone.text == greedy[0].text


@pytest.mark.slow
def test_every_greedy_continuation_alone_and_generated(
  policy, replicated, theirs, prompts, greedy
):
  bucket = max(map(len, prompts))  # one shape to compile for all of them
  for prompt, batched in zip(prompts, greedy, strict=True):
    (alone,) = real_qwen.greedy(
      policy, replicated, [prompt], NEW_TOKENS, bucket=bucket
    )
    assert alone.tokens == batched.tokens
    (generated,) = real_qwen.their_greedy(theirs, policy, [prompt], NEW_TOKENS)
    assert tuple(generated) == batched.tokens


def test_transformers_loads_what_we_save(loaded, theirs, prompts, tmp_path):
  """The weights are bfloat16 from the start, so saving them so is exact."""
  policy, params = loaded
  convert.save_pretrained(
    tmp_path, policy.model_config, params, tokenizer_from=policy.directory
  )
  again = real_qwen.load_theirs(tmp_path)
  want = real_qwen.their_logits(theirs, prompts[1])
  got = real_qwen.their_logits(again, prompts[1])
  np.testing.assert_array_equal(got, want)
  theirs_by_name = theirs.state_dict()
  for name, value in again.state_dict().items():
    assert value.equal(theirs_by_name[name]), name
  with safetensors.safe_open(tmp_path / "model.safetensors", "numpy") as file:
    assert file.get_slice("model.norm.weight").get_dtype() == "BF16"
  (tmp_path / "model.safetensors").unlink()  # 1 GB that pytest would keep


def test_bfloat16_costs_no_more_than_in_transformers(loaded, theirs, prompts):
  """Root mean square of what bfloat16 changes in the logits, ours and theirs.

  Roundings differ in place (transformers rounds queries, products and logits
  where we keep float32), so the two distances differ, but a wrong cast costs
  several times as much.
  """
  directory = real_qwen.weights()
  low = rollout.load_policy(directory, dtype="bfloat16", param_dtype="bfloat16")
  their_low = real_qwen.load_theirs(directory, "bfloat16")
  prompt = prompts[-1]
  ours = np.subtract(
    *(our_logits(policy, [prompt], len(prompt))[0] for policy in (low, loaded))
  )
  other = np.subtract(
    *(real_qwen.their_logits(model, prompt) for model in (their_low, theirs))
  )
  ours, other = (np.sqrt((x**2).mean()) for x in (ours, other))
  print(f"bfloat16: ours {ours:.3f}, transformers {other:.3f}")
  assert 0.01 < ours < 1.25 * other


@pytest.mark.slow  # a small model shows the same in sampling_test.py
def test_cached_decode_equals_the_full_forward(policy, replicated, loaded):
  """The sampler's log-probs are the trainer's, in float32 at temperature 1."""
  config = rollout.SamplingConfig(num_samples=2, max_new_tokens=48)
  sample = rollout.make_sampler(policy, config, real_qwen.one_device())
  prompts = real_qwen.prompts(policy)
  prompts = [prompts[0], prompts[4]]
  groups = sample(replicated, prompts, (0,))
  flat = [completion for group in groups for completion in group]
  batch = rollout.pack(
    [prompt for prompt in prompts for _ in range(2)],
    [completion.tokens for completion in flat],
    pad_id=policy.pad_id,
    bucket=16,
  )
  score = jax.jit(
    functools.partial(
      losses.completion_log_probs,
      model_config=policy.model_config,
      completion_length=batch.completion_mask.shape[1],
      chunk_size=losses.CHUNK_SIZE,
    )
  )
  log_probs, entropy = score(
    loaded[1], tokens=jnp.asarray(batch.tokens), valid=jnp.asarray(batch.valid)
  )
  assert (np.asarray(entropy) >= 0).all()
  for row, completion in zip(np.asarray(log_probs), flat, strict=True):
    sampled = np.array(completion.log_probs)
    assert len(sampled) > 1 and sampled.min() < -0.1
    np.testing.assert_allclose(sampled, row[: len(sampled)], atol=1e-4)
