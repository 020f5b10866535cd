"""Packing and sampling on the shipped policy."""

import dataclasses

import jax
import numpy as np
import pytest

from codea1_jax import rollout
from codea1_jax.devices import make_parallel
from codea1_jax.tiny import DATA


@pytest.fixture(scope="module")
def loaded():
  return rollout.load_policy(DATA / "code_llm")


CHATS = [
  [{"role": "user", "content": "Return n as a binary string.\ndef solve(n):"}],
  [{"role": "user", "content": "Return whether n is prime.\ndef solve(n):"}],
  [{"role": "user", "content": "Return the factorial of n.\ndef solve(n):"}],
]


def test_pack_pads_prompts_left_and_completions_right():
  batch = rollout.pack([[1, 2], [3]], [[4], [5, 6, 7]], pad_id=0, bucket=4)
  np.testing.assert_array_equal(
    batch.tokens, [[0, 0, 1, 2, 4, 0, 0, 0], [0, 0, 0, 3, 5, 6, 7, 0]]
  )
  np.testing.assert_array_equal(batch.valid, batch.tokens > 0)
  np.testing.assert_array_equal(
    batch.completion_mask, [[1, 0, 0, 0], [1, 1, 1, 0]]
  )


@pytest.mark.parametrize("longest, length", [(1, 32), (32, 32), (33, 64)])
def test_bucket_length(longest, length):
  assert rollout.bucket_length(longest, 32) == length


@pytest.mark.slow  # a smaller model shows the same in generation_test.py
def test_samples_do_not_depend_on_chunks_or_devices(loaded):
  policy, params = loaded
  prompts = rollout.encode_prompts(policy, CHATS)
  results = []
  for devices, max_rows in ((1, 512), (1, 4), (2, 512)):
    parallel = make_parallel("pmap", jax.local_devices()[:devices])
    config = rollout.SamplingConfig(
      num_samples=2, max_new_tokens=48, max_rows=max_rows
    )
    sample = rollout.make_sampler(policy, config, parallel)
    results.append(sample(parallel.place(params), prompts, (0, 7)))
  texts = [[[c.text for c in row] for row in rows] for rows in results]
  assert texts[0] == texts[1] == texts[2]
  assert len({t for row in texts[0] for t in row}) > 3  # they do differ


def test_text_is_without_the_end_token_and_seeds_matter(loaded):
  policy, params = loaded
  parallel = make_parallel("pmap", jax.local_devices()[:1])
  config = rollout.SamplingConfig(num_samples=2, max_new_tokens=96)
  sample = rollout.make_sampler(policy, config, parallel)
  prompts = rollout.encode_prompts(policy, CHATS)
  params = parallel.place(params)
  rows = sample(params, prompts, (0, 1))
  other = sample(params, prompts, (0, 2))
  finished = [c for row in rows for c in row if c.finished]
  assert finished
  for completion in finished:
    assert completion.tokens[-1] in policy.eos_ids
    assert "<|im_end|>" not in completion.text
    assert len(completion.log_probs) == len(completion.tokens)
  assert [c.tokens for r in rows for c in r] != [
    c.tokens for r in other for c in r
  ]


def test_lengths_are_few_and_little_padded():
  lengths = {n: rollout.bucket_length(n, 32) for n in range(1, 4097)}
  assert len(set(lengths.values())) == 24  # four a doubling
  assert all(
    n <= padded < max(n + 32, 1.25 * n) for n, padded in lengths.items()
  )


def test_completions_end_where_the_model_has_no_more_positions(loaded):
  policy, params = loaded
  prompts = rollout.encode_prompts(policy, CHATS)
  positions = max(map(len, prompts)) + 9
  config = dataclasses.replace(
    policy.model_config, max_position_embeddings=positions
  )
  policy = dataclasses.replace(policy, model_config=config)
  parallel = make_parallel("pmap", jax.local_devices()[:1])
  settings = rollout.SamplingConfig(num_samples=2, max_new_tokens=48)
  sample = rollout.make_sampler(policy, settings, parallel)
  params = parallel.place(params)
  limits = [48, 5, 48]
  for prompt, row, limit in zip(
    prompts, sample(params, prompts, (0, 1), limits), limits, strict=True
  ):
    for completion in row:
      most = min(limit, positions - len(prompt))
      assert completion.finished or len(completion.tokens) == most
  with pytest.raises(ValueError, match="leaves no room"):
    sample(params, [*prompts, [1] * positions], (0, 1))
