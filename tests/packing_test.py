"""Packed rows: whole sequences, and the numbers of the padded rows."""

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
  ROWS,
  assert_close,
  gradient,
  of_variant,
  ragged_batch,
)

from codea1_jax import grpo, losses, packing, train_state
from codea1_jax.models import attention, qwen

ROOM = 24  # tokens of a packed row
pack = functools.partial(
  packing.pack_sequences, length=ROOM, rows_multiple=1, bucket=4, pad_id=0
)


@pytest.fixture(scope="module")
def params():
  return jax.tree.map(np.asarray, qwen.init_params(CONFIG, jax.random.key(0)))


@pytest.fixture(scope="module")
def one_layer(params):
  layers = {name: leaf[:1] for name, leaf in params["layers"].items()}
  return params | {"layers": layers}


def test_first_fit_decreasing_by_hand():
  # 6 | 5 | 5 and of the rest: 4 beside 6, 3 and 2 beside the first 5.
  lengths = [3, 5, 4, 6, 5, 2]
  assert packing.first_fit_decreasing(lengths, 10) == [[3, 2], [1, 4], [0, 5]]
  assert packing.first_fit_decreasing([], 10) == []
  with pytest.raises(ValueError, match="of 11 tokens in rows of 10"):
    packing.first_fit_decreasing([3, 11], 10)


def _fewest_rows(lengths, room):
  """By trying everything."""

  def search(left, rest):
    if not rest:
      return len(left)
    options = [
      search((*left[:r], n - rest[0], *left[r + 1 :]), rest[1:])
      for r, n in enumerate(left)
      if n >= rest[0]
    ]
    return min([*options, search((*left, room - rest[0]), rest[1:])])

  return search((), tuple(lengths))


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(st.lists(st.integers(1, 20), max_size=7))
def test_first_fit_decreasing_keeps_its_bound(lengths):
  rows = packing.first_fit_decreasing(lengths, 20)
  assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
  sums = [sum(lengths[i] for i in row) for row in rows]
  assert all(n <= 20 for n in sums)
  assert 9 * len(rows) <= 11 * _fewest_rows(lengths, 20) + 6


def test_pack_by_hand():
  batch = train_state.UpdateBatch(
    tokens=np.array(
      [[0, 11, 12, 0], [21, 22, 23, 24], [0, 31, 32, 33], [0, 41, 42, 43]]
    ),
    valid=np.array([[0, 1, 1, 0], [1] * 4, [0, 1, 1, 1], [0, 1, 1, 1]], bool),
    completion_mask=np.array([[1, 0], [1, 1], [0, 0], [0, 1.0]], np.float32),
    advantages=np.array([1, 2, 3, 4], np.float32),
    behavior_log_probs=np.array([[-1, np.nan], [-2, -3], [0, 0], [-4, -5]]),
  )
  packed = pack(batch, length=6, rows_multiple=3, bucket=2)
  # 4 tokens and 2, then 3; the third sequence does not train.
  np.testing.assert_array_equal(
    packed.tokens, [[21, 22, 23, 24, 11, 12], [41, 42, 43, 0, 0, 0], [0] * 6]
  )
  np.testing.assert_array_equal(
    packed.segments, [[1] * 4 + [2] * 2, [1] * 3 + [0] * 3, [0] * 6]
  )
  np.testing.assert_array_equal(packed.valid, packed.segments > 0)
  np.testing.assert_array_equal(
    packed.places, [[1, 2, 4, 0], [1, 0, 0, 0], [0] * 4]
  )
  np.testing.assert_array_equal(
    packed.completion_mask, [[1, 1, 1, 0], [1, 0, 0, 0], [0] * 4]
  )
  np.testing.assert_array_equal(
    packed.advantages, [[2, 2, 1, 0], [4, 0, 0, 0], [0] * 4]
  )
  np.testing.assert_array_equal(
    packed.behavior_log_probs, [[-2, -3, -1, 0], [-5, 0, 0, 0], [0] * 4]
  )
  assert packed.ref_log_probs is None and packed.importance_weights is None
  sequences = losses.completion_sequences(packed)
  assert sequences.shape == (3, packed.max_segments, 4)
  np.testing.assert_array_equal(
    sequences[0, :3, :3], [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
  )


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(
  seed=st.integers(0, 2**32 - 1),
  rows=st.integers(4, 40),
  length=st.integers(2, 40),
  multiple=st.integers(1, 5),
)
def test_every_sequence_is_whole_and_there_once(seed, rows, length, multiple):
  batch = ragged_batch(seed, rows)
  packed = pack(batch, length=length, rows_multiple=multiple)
  count, width = packed.tokens.shape
  kept = np.flatnonzero(batch.completion_mask.any(1))
  longest = batch.valid[kept].sum(1).max()
  assert count % multiple == 0
  most = 1.25 * longest + 4  # bucket_length's promise
  assert width == length or length < longest <= width < most
  assert packed.segments.max() <= packed.max_segments
  found = []
  for r in range(count):
    for number in range(1, packed.segments[r].max() + 1):
      places = np.flatnonzero(packed.segments[r] == number)
      assert (np.diff(places) == 1).all()
      mine = (packed.segments[r, packed.places[r]] == number) & (
        packed.completion_mask[r] > 0
      )
      found.append(
        (
          packed.tokens[r, places].tolist(),
          packed.tokens[r, packed.places[r, mine] + 1].tolist(),
          packed.behavior_log_probs[r, mine].tolist(),
          packed.advantages[r, mine].tolist(),
        )
      )
  expected = []
  for i in kept:
    trained = batch.completion_mask[i] > 0
    expected.append(
      (
        batch.tokens[i, batch.valid[i]].tolist(),
        batch.tokens[i, PROMPT:][trained].tolist(),
        batch.behavior_log_probs[i, trained].tolist(),
        batch.advantages[i].repeat(trained.sum()).tolist(),
      )
    )
  assert sorted(found) == sorted(expected)
  again = pack(batch, length=length, rows_multiple=multiple)
  jax.tree.map(np.testing.assert_array_equal, packed, again)


def test_nothing_to_train_on_is_a_row_of_padding():
  batch = ragged_batch()
  batch = batch.replace(completion_mask=np.zeros_like(batch.completion_mask))
  packed = pack(batch, rows_multiple=2)
  assert packed.tokens.shape == (2, ROOM) and not packed.valid.any()
  assert not packed.completion_mask.any()


def test_a_sequence_without_prompt_is_refused():
  batch = ragged_batch()
  batch.valid[5, :PROMPT] = False
  with pytest.raises(ValueError, match="sequence 5 of the batch has no prompt"):
    pack(batch)


@pytest.mark.parametrize(
  "scan, remat", [(True, "none"), (False, "none"), (True, "full")]
)
@pytest.mark.parametrize("block", [256, 7])
def test_states_are_those_of_each_sequence_alone(
  params, scan, remat, block, monkeypatch
):
  monkeypatch.setattr(attention, "_QUERY_BLOCK", block)
  config = dataclasses.replace(CONFIG, scan_layers=scan, remat=remat)
  batch = ragged_batch()
  packed = pack(batch, rows_multiple=4)

  @jax.jit  # a function of its own: it must be traced again
  def forward(params):
    return qwen.hidden_states(
      params, config, packed.tokens, packed.valid, packed.segments
    )

  hidden = forward(params)
  assert np.isfinite(hidden).all()  # of the empty rows too
  sequences = 0
  for r, s in zip(*np.nonzero(np.diff(packed.segments, prepend=0, axis=1))):
    number = packed.segments[r, s]
    if number:
      mine = packed.segments[r] == number
      alone = _alone(params, packed.tokens[r, mine])
      np.testing.assert_allclose(hidden[r, mine], alone, rtol=1e-5, atol=3e-6)
      sequences += 1
  assert sequences == ROWS - 2


def test_positions_begin_anew_in_each_segment():
  """Rotary attention sees differences only: states would not tell."""
  segments = np.array([[1, 1, 1, 2, 2, 0, 0], [1, 2, 2, 2, 2, 2, 3]])
  positions = qwen._positions(segments > 0, segments)
  np.testing.assert_array_equal(positions[0, :5], [0, 1, 2, 0, 1])
  np.testing.assert_array_equal(positions[1], [0, 0, 1, 2, 3, 4, 0])


@functools.cache
def _forward():
  return jax.jit(qwen.hidden_states, static_argnums=1)


def _alone(params, tokens):
  """States of one sequence; padded on the right to compile once."""
  row = np.zeros((1, PROMPT + LENGTH), np.int32)
  row[0, : len(tokens)] = tokens
  valid = np.arange(row.size)[None] < len(tokens)
  return _forward()(params, CONFIG, row, valid)[0, : len(tokens)]


def test_loss_gradients_and_metrics_are_those_of_padded_rows(one_layer):
  """Of every variant, on eight devices with two micro-batches each."""
  batch = ragged_batch(rows=40)
  packed = pack(batch, rows_multiple=3)
  assert packed.segments.max() > 2
  assert 8 < len(packed.tokens) <= 16
  norms = set()
  for variant in VARIANTS:
    padded = of_variant(one_layer, batch, variant, 1, 8)
    assert_close(of_variant(one_layer, packed, variant, 8, 1), padded)
    norms.add(round(padded[1]["grad_norm"], 4))
  assert len(norms) == len(VARIANTS)  # or one loss was compared with itself


def test_the_models_own_loss_takes_packed_rows(one_layer):
  batch = ragged_batch(rows=40)
  config = dataclasses.replace(ONE_LAYER, scan_layers=True, remat="full")
  loss_fn = losses.grpo_loss(LOSS, config)
  expected = of_variant(one_layer, batch, VARIANTS[0], 1, 8)
  assert_close(gradient(one_layer, pack(batch), loss_fn, 1, 2), expected)


def test_cross_entropy_takes_packed_rows(params):
  batch = train_state.UpdateBatch(
    *(
      getattr(ragged_batch(), n) for n in ("tokens", "valid", "completion_mask")
    )
  )
  loss_fn = jax.jit(losses.sft_loss(CONFIG, chunk_size=None))
  denominators = grpo.Denominators(batch.completion_mask.sum(), ROWS - 2)
  loss, _ = loss_fn(params, pack(batch), denominators)
  expected, _ = loss_fn(params, batch, denominators)
  np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_packed_rows_need_a_horizon():
  mask = np.ones((1, 2), np.float32)
  with pytest.raises(ValueError, match="packed rows needs a horizon"):
    grpo.aggregate(
      mask,
      mask,
      grpo.Denominators(2, 1),
      aggregation="seq_mean_token_sum_norm",
      sequences=mask[:, None] > 0,
    )
