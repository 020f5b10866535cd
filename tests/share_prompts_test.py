"""Rows that share a prompt: whole completions, the numbers of padded rows."""

import dataclasses
import functools

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st
from loss_variants import VARIANTS
from packed_rows import (
  CONFIG,
  LENGTH,
  LOSS,
  ONE_LAYER,
  PROMPT,
  assert_close,
  gradient,
  of_variant,
  ragged_batch,
)

from codea1_jax import losses, packing, train_state, update
from codea1_jax.devices import make_parallel
from codea1_jax.models import attention, qwen

GROUP = 5  # completions of a prompt
share = functools.partial(
  packing.share_prompts, max_slots=4, rows_multiple=1, bucket=2, pad_id=0
)


@pytest.fixture(scope="module")
def params():
  return jax.tree.map(np.asarray, qwen.init_params(CONFIG, jax.random.key(0)))


@pytest.fixture(scope="module")
def one_layer(params):
  layers = {name: leaf[:1] for name, leaf in params["layers"].items()}
  return params | {"layers": layers}


def grouped_batch(seed=0, rows=40):
  """Ragged rows, GROUP of which begin with the same prompt, in no order."""
  batch = ragged_batch(seed, rows)
  rng = np.random.default_rng(seed)
  owner = rng.permutation(rows) // GROUP * GROUP
  for array in (batch.tokens, batch.valid):
    array[:, :PROMPT] = array[owner, :PROMPT]
  return batch


def test_by_hand():
  nan = np.nan
  batch = train_state.UpdateBatch(
    tokens=np.array(
      [
        [0, 7, 11, 12],
        [5, 6, 21, 0],
        [0, 7, 31, 0],
        [0, 7, 41, 0],
        [0, 7, 9, 0],
      ]
    ),
    valid=np.array(
      [[0, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0]],
      bool,
    ),
    completion_mask=np.array([[1, 1], [1, 0], [1, 0], [1, 0], [0, 0.0]]),
    advantages=np.array([1, 2, 3, 4, 5], np.float32),
    behavior_log_probs=np.array(
      [[-1, -2], [-3, nan], [-4, nan], [-5, nan]] + [[-6, nan]]
    ),
  )
  shared, went = share(batch)
  assert shared.slots == (2, 2) and shared.max_segments >= 3
  # A slot for 11, 12, and one for 31 and 41; the last row does not train.
  np.testing.assert_array_equal(
    shared.tokens, [[0, 7, 11, 12, 31, 41], [5, 6, 21, 0, 0, 0]]
  )
  np.testing.assert_array_equal(
    shared.valid, [[0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
  )
  np.testing.assert_array_equal(
    shared.segments, [[0, 0, 1, 1, 2, 3], [0, 0, 1, 0, 0, 0]]
  )
  np.testing.assert_array_equal(shared.advantages, [[1, 1, 3, 4], [2, 0, 0, 0]])
  np.testing.assert_array_equal(
    shared.behavior_log_probs, [[-1, -2, -4, -5], [-3, 0, 0, 0]]
  )
  np.testing.assert_array_equal(went, [[0, 1], [4, 0], [2, 0], [3, 0], [0, 0]])
  sequences = losses.completion_sequences(shared)
  np.testing.assert_array_equal(
    sequences[0, :3], [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
  )


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(
  seed=st.integers(0, 2**32 - 1),
  rows=st.integers(4, 40),
  most=st.integers(1, 9),
  multiple=st.integers(1, 5),
)
def test_every_completion_is_whole_and_there_once(seed, rows, most, multiple):
  batch = grouped_batch(seed, rows)
  shared, went = share(batch, max_slots=most, rows_multiple=multiple)
  prefix, slot = shared.slots
  count, width = shared.completion_mask.shape
  assert count % multiple == 0 and width % slot == 0 and width // slot <= most
  assert shared.tokens.shape == (count, prefix + width)
  assert shared.segments.max() <= shared.max_segments
  right = batch.valid[:, PROMPT:] & batch.completion_mask.any(1, keepdims=True)
  assert len(set(went[right])) == right.sum()
  assert shared.valid[:, prefix:].sum() == right.sum()
  for name in ("completion_mask", "behavior_log_probs", "importance_weights"):
    moved = getattr(shared, name).reshape(-1)[went]
    np.testing.assert_array_equal(moved[right], getattr(batch, name)[right])
  for i in np.flatnonzero(right.any(1)):
    row, column = divmod(went[i, right[i]], width)
    place = prefix + column
    assert len(set(row)) == 1 and len(set(column // slot)) == 1
    row = row[0]
    before = np.concatenate(
      [
        shared.tokens[row, :prefix][shared.valid[row, :prefix]],
        shared.tokens[row, place],
      ]
    )
    assert before.tolist() == batch.tokens[i, batch.valid[i]].tolist()
    number = set(shared.segments[row, place])
    assert len(number) == 1 and 0 not in number
    assert (shared.segments[row] == number.pop()).sum() == len(place)
    assert (shared.advantages[row, column] == batch.advantages[i]).all()


def test_as_many_slots_as_cost_least():
  """10 tokens of a prompt, completions of 4: 4 slots but for small groups."""

  def batch(groups):
    rows = sum(groups)
    owner = np.repeat(np.arange(len(groups)), groups)[:, None]
    tokens = np.concatenate(
      [np.broadcast_to(owner + 1, (rows, 10)), np.ones((rows, 4), int)], 1
    )
    mask = np.ones((rows, 4), np.float32)
    return train_state.UpdateBatch(tokens, tokens > 0, mask)

  for groups, rows, slots in (
    ([4, 4], 2, 4),  # 52 tokens; 8 slots make 84, 2 slots 72
    ([8], 1, 8),  # 42
    ([8, 8, 1, 1, 1, 1], 8, 4),  # 208; with 8 slots 252, 2 slots 216
    ([1, 1, 1], 3, 1),
  ):
    shared, _ = share(batch(groups), max_slots=9)
    prefix, slot = shared.slots
    found = len(shared.tokens), shared.completion_mask.shape[1] // slot
    assert (prefix, slot, found) == (10, 4, (rows, slots))


def test_nothing_to_train_on_is_a_row_of_padding():
  batch = grouped_batch()
  batch = batch.replace(completion_mask=np.zeros_like(batch.completion_mask))
  shared, _ = share(batch, rows_multiple=2)
  assert len(shared.tokens) == 2 and not shared.valid.any()
  assert not shared.completion_mask.any()


def test_a_sequence_without_prompt_is_refused():
  batch = grouped_batch()
  batch.valid[5, :PROMPT] = False
  with pytest.raises(ValueError, match="sequence 5 of the batch has no prompt"):
    share(batch)


@pytest.mark.parametrize(
  "scan, remat, block", [(True, "none", 256), (False, "full", 4)]
)
def test_log_probs_are_those_of_each_row_alone(
  params, scan, remat, block, monkeypatch
):
  """Attention in blocks of 4 queries, which also forget their weights."""
  monkeypatch.setattr(attention, "_QUERY_BLOCK", block)
  if block == 4:
    monkeypatch.setattr(attention, "_KEPT_LENGTH", 1)
  config = dataclasses.replace(CONFIG, scan_layers=scan, remat=remat)
  batch = grouped_batch()
  shared, went = share(batch, rows_multiple=4)
  assert shared.segments.max() > 2  # several in some slot

  def log_probs(rows, places=None):
    parallel = make_parallel("pmap", jax.devices()[:2])
    score = update.make_score(config, parallel, micro_batch_size=2)
    found = score(parallel.place(params), rows)
    assert np.isfinite(found[0]).all()  # of empty rows and slots too
    return found[0] if places is None else found[0].reshape(-1)[places]

  kept = batch.completion_mask.any(1)
  mask = (batch.completion_mask > 0)[kept]
  np.testing.assert_allclose(
    log_probs(shared, went)[kept][mask],
    log_probs(batch)[kept][mask],
    rtol=1e-5,
    atol=3e-6,
  )


def test_positions_go_on_after_the_prompt():
  """Rotary attention sees differences only: states would not tell."""
  segments = np.array([[0, 0, 0, 1, 1, 2, 3, 3, 0]])
  valid = np.array([[0, 1, 1, 1, 1, 1, 1, 1, 0]], bool)
  positions = qwen._positions(valid, segments, (3, 3))
  np.testing.assert_array_equal(positions[0, 1:8], [0, 1, 2, 3, 2, 2, 3])


def test_loss_gradients_and_metrics_are_those_of_padded_rows(one_layer):
  """Of every variant, on eight devices with three micro-batches each."""
  batch = grouped_batch()
  shared, _ = share(batch, max_slots=2)
  count, width = shared.completion_mask.shape
  assert 16 < count <= 24 and width == 2 * LENGTH
  norms = set()
  for variant in VARIANTS:
    padded = of_variant(one_layer, batch, variant, 1, 8)
    assert_close(of_variant(one_layer, shared, variant, 8, 1), padded)
    norms.add(round(padded[1]["grad_norm"], 4))
  assert len(norms) == len(VARIANTS)  # or one loss was compared with itself


def test_the_models_own_losses_take_them(one_layer):
  batch = grouped_batch()
  config = dataclasses.replace(ONE_LAYER, scan_layers=True, remat="full")
  for loss_fn in (
    losses.grpo_loss(LOSS, config),
    losses.sft_loss(config, chunk_size=16),
  ):
    expected = gradient(one_layer, batch, loss_fn, 1, 8)
    assert_close(gradient(one_layer, share(batch)[0], loss_fn, 1, 2), expected)
