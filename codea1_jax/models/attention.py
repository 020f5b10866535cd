"""Causal attention of whole rows, in blocks of queries.

Letters as in qwen.py; and R rows of P shared tokens, N slots behind them.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from codea1_jax.models.products import einsum

_QUERY_BLOCK = 256  # queries whose weights over all keys exist at a time
_MOST_BLOCKS = 16  # each is compiled by itself
_KEPT_LENGTH = 2048  # rows up to it keep them for the backward pass
MASKED = -1e30  # finite: a row without any valid key stays free of NaN


def _attend_block(q_BTKGH, k_BSKH, v_BSKH, valid_BS, segments_BS, shared=None):
  """Attention of the last T of S places, and to shared keys if there are any.

  Folding G into T gives plain batched matmuls, adding the mask instead of
  selecting by it and dividing last fuse well on a CPU. The N slots of a row
  stand behind the heads, so that shared keys meet all of them in one product.
  """
  B, T, K, G, H = q_BTKGH.shape
  S = k_BSKH.shape[1]
  R = B if shared is None else shared[0].shape[0]
  N, M = B // R, G * T
  causal_TS = jnp.tril(jnp.ones((T, S), bool), S - T)
  seen_BTS = causal_TS[None] & valid_BS[:, None, :]
  if segments_BS is not None:
    seen_BTS &= segments_BS[:, S - T :, None] == segments_BS[:, None, :]
  bias = jnp.where(seen_BTS, 0.0, MASKED).reshape(R, 1, N, 1, T, S)
  q_RNTKGH = q_BTKGH.reshape(R, N, T, K, G, H)
  q = q_RNTKGH.transpose(0, 3, 1, 4, 2, 5).reshape(R, K * N, M, H)
  k, v = (x.reshape(R, N, S, K, H) for x in (k_BSKH, v_BSKH))
  k = k.transpose(0, 3, 1, 4, 2).reshape(R, K * N, H, S)
  v = v.transpose(0, 3, 1, 2, 4).reshape(R, K * N, S, H)
  scores = einsum("RXMH,RXHS->RXMS", q, k).reshape(R, K, N, G, T, S)
  scores = (scores + bias).reshape(R, K * N, M, S)
  top = scores.max(-1, keepdims=True)
  if shared is not None:
    k_RPKH, v_RPKH, valid_RP = shared
    more = einsum("RKMH,RPKH->RKMP", q.reshape(R, K, N * M, H), k_RPKH)
    more += jnp.where(valid_RP, 0.0, MASKED)[:, None, None]
    top = jnp.maximum(top, more.max(-1, keepdims=True).reshape(top.shape))
  top = lax.stop_gradient(top)
  weights = jnp.exp(scores - top)
  total = weights.sum(-1, keepdims=True)
  mixed = einsum("RXMS,RXSH->RXMH", weights.astype(v.dtype), v)
  if shared is not None:
    # Never reshaped: a scan would keep each shape for the backward pass.
    weights = jnp.exp(more - top.reshape(R, K, N * M, 1))
    total += weights.sum(-1, keepdims=True).reshape(total.shape)
    weights = weights.astype(v.dtype)
    mixed += einsum("RKMP,RPKH->RKMH", weights, v_RPKH).reshape(mixed.shape)
  mixed = (mixed / total).reshape(R, K, N, G, T, H)
  return mixed.transpose(0, 2, 4, 1, 3, 5).reshape(B, T, K, G, H)


def attend(q_BTKGH, k_BTKH, v_BTKH, valid_BT, segments_BT=None, shared=None):
  """Causal softmax attention; a group of queries shares its key and value.

  In blocks of queries, each of which meets only the keys up to its end: about
  half the work of a long row, and no [T, T] array. Long rows compute a block's
  weights again in the backward pass instead of keeping them.

  Args:
    shared: keys, values and validity of [R, P] places that every query of a
      row of B / R rows sees too; or None.
  """
  length = q_BTKGH.shape[1]
  block = functools.partial(_attend_block, shared=shared)
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


def attend_slots(q, k, v, valid, segments, prefix: int, slot: int):
  """Of rows of `prefix` tokens and slots of `slot` tokens behind them.

  Tokens of a slot see the prefix, and what stands before them in their segment
  of the slot, so that a row costs what its slots would cost alone.
  """
  first = [x[:, :prefix] for x in (q, k, v, valid)]
  slots = [
    x[:, prefix:].reshape(-1, slot, *x.shape[2:])
    for x in (q, k, v, valid, segments)
  ]
  mixed = attend(*slots, shared=first[1:])
  mixed = mixed.reshape(q.shape[0], -1, *mixed.shape[2:])
  return jnp.concatenate([attend(*first), mixed], axis=1)
