"""Several whole sequences in a row: an update that computes less.

`pack_sequences` leaves out the padding, `share_prompts` computes a prompt once
for its completions. Loss and gradients are those of the padded rows: no token
attends out of its sequence, positions are those within it, and averages are
those of sequences, not rows.

Letters: B sequences, P prompt tokens, T completion tokens, R packed rows, N
slots of U tokens behind a shared prompt.
"""

import collections
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
  prompt_length = _prompt_width(batch)
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


def share_prompts(
  batch: UpdateBatch,
  *,
  max_slots: int,
  rows_multiple: int,
  bucket: int,
  pad_id: int,
) -> tuple[UpdateBatch, np.ndarray]:
  """Padded rows -> a prompt and slots of its completions a row.

  A slot has room for the longest completion, or for several shorter ones. As
  many slots a row as compute the fewest tokens, of the powers of two: each
  number is compiled by itself. Sequences without a token that is trained on
  are left out.

  Args:
    batch: padded, on the host.
    max_slots: the most of a row.
    rows_multiple: the number of rows is one of its multiples; the last ones may
      be empty.
    bucket: what the lengths of prompts and slots are multiples of.
    pad_id: the token at padding.

  Returns:
    The rows, and [B, T] where among their [R * N * U] completion tokens each
    one of `batch` went; 0 where it went nowhere.

  Raises:
    ValueError: a sequence without a prompt: no state predicts its first token.
  """
  groups = _by_prompt(batch)
  lengths = batch.valid[:, _prompt_width(batch) :].sum(1)
  prefix = bucket_length(max(map(len, groups), default=1), bucket)
  longest = max((lengths[i].max() for i in groups.values()), default=1)
  slot = bucket_length(int(longest), bucket)
  filled = {}  # prompt -> slots, each of some sequences
  for prompt, indices in groups.items():
    parts = first_fit_decreasing(lengths[indices].tolist(), slot)
    filled[prompt] = [[indices[i] for i in part] for part in parts]
  count, rows = _fewest_tokens(
    list(map(len, filled.values())), prefix, slot, max_slots, rows_multiple
  )
  shared = _empty(batch, rows, prefix + count * slot, count * slot, pad_id)
  shared = shared.replace(places=None, slots=(prefix, slot))
  went = np.zeros(batch.completion_mask.shape, np.int32)
  contents = [
    (prompt, parts[first : first + count])
    for prompt, parts in filled.items()
    for first in range(0, len(parts), count)
  ]
  for row, (prompt, parts) in enumerate(contents):
    shared.tokens[row, prefix - len(prompt) : prefix] = prompt
    shared.valid[row, prefix - len(prompt) : prefix] = True
    _fill_slots(shared, batch, row, parts, went)
  most = max((sum(map(len, parts)) for _, parts in contents), default=1)
  segments = -(-most // _SEGMENTS) * _SEGMENTS
  return shared.replace(max_segments=segments), went


def _prompt_width(batch: UpdateBatch) -> int:
  """P of padded rows."""
  return batch.tokens.shape[1] - batch.completion_mask.shape[1]


def _by_prompt(batch: UpdateBatch) -> dict[tuple[int, ...], list[int]]:
  """Sequences that train, by the prompt that they answer."""
  width, groups = _prompt_width(batch), collections.defaultdict(list)
  for i in np.flatnonzero((np.asarray(batch.completion_mask) > 0).any(1)):
    prompt = batch.tokens[i, :width][batch.valid[i, :width]]
    if not prompt.size:
      raise ValueError(f"sequence {i} of the batch has no prompt")
    groups[tuple(prompt.tolist())].append(int(i))
  return groups


def _fewest_tokens(filled, prefix, slot, max_slots, rows_multiple):
  """(slots a row, rows): the cheapest, and of equals the one of most slots."""

  def rows(count):
    needed = sum(-(-slots // count) for slots in filled)
    return bucket_length(max(needed, 1), rows_multiple)

  choices = [2**i for i in range(max_slots.bit_length())]
  count = min(choices, key=lambda n: (rows(n) * (prefix + n * slot), -n))
  return count, rows(count)


def _fill_slots(shared, batch, row, parts, went) -> None:
  """Writes completions of `batch` into the slots of a row, and where to."""
  prefix, slot = shared.slots
  width, number = _prompt_width(batch), 0
  for place, sequences in enumerate(parts):
    column = place * slot
    for i in sequences:
      number += 1
      written = np.flatnonzero(batch.valid[i, width:])
      columns = slice(column, column + len(written))
      tokens = slice(prefix + columns.start, prefix + columns.stop)
      shared.tokens[row, tokens] = batch.tokens[i, width + written]
      shared.valid[row, tokens] = True
      shared.segments[row, tokens] = number
      for name in _TOKEN_FIELDS:
        if getattr(batch, name) is not None:
          getattr(shared, name)[row, columns] = getattr(batch, name)[i, written]
      if batch.advantages is not None:
        shared.advantages[row, columns] = batch.advantages[i]
      went[i, written] = row * shared.completion_mask.shape[1] + np.arange(
        columns.start, columns.stop
      )
      column = columns.stop
