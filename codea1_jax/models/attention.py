"""Causal attention of whole rows, in blocks of queries.

Letters as in qwen.py.
"""

import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models.products import einsum

_QUERY_BLOCK = 256  # queries whose weights over all keys exist at a time
_MOST_BLOCKS = 16  # each is compiled by itself
_KEPT_LENGTH = 2048  # rows up to it keep them for the backward pass
MASKED = -1e30  # finite: a row without any valid key stays free of NaN


def _attend_block(q_BTKGH, k_BSKH, v_BSKH, valid_BS, segments_BS):
  """Attention of the last T of S places.

  Folding G into T gives plain batched matmuls, adding the mask instead of
  selecting by it and dividing last fuse well on a CPU.
  """
  B, T, K, G, H = q_BTKGH.shape
  S = k_BSKH.shape[1]
  causal_TS = jnp.tril(jnp.ones((T, S), bool), S - T)
  seen_BTS = causal_TS[None] & valid_BS[:, None, :]
  if segments_BS is not None:
    seen_BTS &= segments_BS[:, S - T :, None] == segments_BS[:, None, :]
  bias_BTS = jnp.where(seen_BTS, 0.0, MASKED)
  q_BKMH = q_BTKGH.transpose(0, 2, 3, 1, 4).reshape(B, K, G * T, H)
  k_BKHS, v_BKSH = k_BSKH.transpose(0, 2, 3, 1), v_BSKH.transpose(0, 2, 1, 3)
  scores = einsum("BKMH,BKHS->BKMS", q_BKMH, k_BKHS).reshape(B, K, G, T, -1)
  scores += bias_BTS[:, None, None]
  top = lax.stop_gradient(scores.max(-1, keepdims=True))
  weights = jnp.exp(scores - top)
  total = weights.sum(-1).reshape(B, K, G * T, 1)
  weights = weights.reshape(B, K, G * T, -1).astype(v_BKSH.dtype)
  mixed = einsum("BKMS,BKSH->BKMH", weights, v_BKSH) / total
  return mixed.reshape(B, K, G, T, H).transpose(0, 3, 1, 2, 4)


def attend(q_BTKGH, k_BTKH, v_BTKH, valid_BT, segments_BT=None):
  """Causal softmax attention; a group of queries shares its key and value.

  In blocks of queries, each of which meets only the keys up to its end: about
  half the work of a long row, and no [T, T] array. Long rows compute a block's
  weights again in the backward pass instead of keeping them.
  """
  length = q_BTKGH.shape[1]
  block = _attend_block
  if length > _KEPT_LENGTH:
    block = jax.checkpoint(block)
  mixed = []
  size = max(_QUERY_BLOCK, -(-length // _MOST_BLOCKS))
  for start in range(0, length, size):
    stop = min(start + size, length)
    seen = (
      x if x is None else x[:, :stop]
      for x in (k_BTKH, v_BTKH, valid_BT, segments_BT)
    )
    mixed.append(block(q_BTKGH[:, start:stop], *seen))
  return jnp.concatenate(mixed, axis=1)
