"""Several whole sequences in a row: an update that computes no padding.

Loss and gradients are those of the padded rows: no token attends out of its
sequence, positions begin anew, and averages are those of sequences, not rows.

Letters: B sequences, P prompt tokens, T completion tokens, R packed rows.
"""

from collections.abc import Sequence

import numpy as np

from codea1_jax.rollout import bucket_length
from codea1_jax.train_state import UpdateBatch

_SEGMENTS = 8  # the most that a row may hold is a multiple of it


def first_fit_decreasing(lengths: Sequence[int], room: int) -> list[list[int]]:
  """Longest first, each into the first row that has room for it.

  At most 11/9 of the fewest rows possible, plus 6/9 (Dosa, The Tight Bound of
  First Fit Decreasing Bin-Packing Algorithm, 2007).

  Args:
    lengths: [B] tokens of each sequence; equals keep their order.
    room: tokens of a row.

  Returns:
    Indices into lengths, a list for each row.

  Raises:
    ValueError: a sequence is longer than a row.
  """
  if len(lengths) and max(lengths) > room:
    raise ValueError(
      f"a sequence of {max(lengths)} tokens in rows of {room} tokens"
    )
  rows, left = [], []
  for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
    row = next((r for r, n in enumerate(left) if n >= lengths[index]), None)
    if row is None:
      row = len(rows)
      rows.append([])
      left.append(room)
    rows[row].append(index)
    left[row] -= lengths[index]
  return rows


def pack_sequences(
  batch: UpdateBatch,
  *,
  length: int,
  rows_multiple: int,
  bucket: int,
  pad_id: int,
) -> UpdateBatch:
  """Padded rows -> packed rows with the same loss and gradients.

  Sequences without a token that is trained on are left out. Shapes are
  bucketed, so that a run compiles a few of them only; rows may be empty.

  Args:
    batch: padded, on the host.
    length: tokens of a row; longer where the longest sequence is.
    rows_multiple: the number of rows is one of its multiples.
    bucket: what longer rows, and the number of completion tokens of a row, are
      multiples of.
    pad_id: the token at padding.

  Raises:
    ValueError: a sequence without a prompt: no state predicts its first token.
  """
  kept = np.flatnonzero((np.asarray(batch.completion_mask) > 0).any(1))
  tokens = batch.valid[kept].sum(1).tolist()
  longest = max(tokens, default=0)
  if longest > length:
    length = bucket_length(longest, bucket)
  rows = [
    [int(kept[i]) for i in row] for row in first_fit_decreasing(tokens, length)
  ]
  trained = (batch.completion_mask > 0).sum(1)
  most = max((int(trained[row].sum()) for row in rows), default=1)
  width = min(bucket_length(most, bucket), length - 1)
  count = bucket_length(max(len(rows), 1), rows_multiple)
  packed = _empty(batch, count, length, width, pad_id)
  for r, row in enumerate(rows):
    _fill(packed, batch, r, row)
  segments = max(map(len, rows), default=1)
  return packed.replace(max_segments=-(-segments // _SEGMENTS) * _SEGMENTS)


_TOKEN_FIELDS = (
  "completion_mask",
  "behavior_log_probs",
  "ref_log_probs",
  "importance_weights",
)


def _empty(batch, rows, length, width, pad_id) -> UpdateBatch:
  """Rows that hold nothing, with the fields that `batch` has."""
  fields = {
    name: np.zeros((rows, width), np.float32)
    for name in (*_TOKEN_FIELDS, "advantages")
    if getattr(batch, name) is not None
  }
  return UpdateBatch(
    tokens=np.full((rows, length), pad_id, np.int32),
    valid=np.zeros((rows, length), bool),
    segments=np.zeros((rows, length), np.int32),
    places=np.zeros((rows, width), np.int32),
    **fields,
  )


def _fill(packed, batch, row, sequences) -> None:
  """Writes sequences of `batch` one after the other into a row of `packed`."""
  prompt_length = batch.tokens.shape[1] - batch.completion_mask.shape[1]
  token, column = 0, 0
  for number, i in enumerate(sequences, start=1):
    valid = batch.valid[i]
    if not valid[:prompt_length].any():
      raise ValueError(f"sequence {i} of the batch has no prompt")
    end = token + int(valid.sum())
    packed.tokens[row, token:end] = batch.tokens[i, valid]
    packed.valid[row, token:end] = True
    packed.segments[row, token:end] = number
    chosen = np.flatnonzero(batch.completion_mask[i] > 0)
    place = token + np.cumsum(valid)[prompt_length + chosen] - 2
    columns = slice(column, column + len(chosen))
    packed.places[row, columns] = place
    for name in _TOKEN_FIELDS:
      if getattr(batch, name) is not None:
        getattr(packed, name)[row, columns] = getattr(batch, name)[i, chosen]
    if batch.advantages is not None:
      packed.advantages[row, columns] = batch.advantages[i]
    token, column = end, columns.stop
