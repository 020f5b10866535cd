"""Products of activations and weights, summed in float32."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

_ROW_BLOCK = 64


def einsum(spec: str, x: jax.Array, y: jax.Array) -> jax.Array:
  return jnp.einsum(spec, x, y, preferred_element_type=jnp.float32)


@functools.partial(
  jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["shape"]
)
@dataclasses.dataclass(frozen=True)
class OutputRows:
  """A matrix as a decode loop wants it: a row an output, [out, in].

  A step has few tokens, so that reading the weights is most of its work; in
  this order a CPU reads them up to three times as fast.
  """

  rows: jax.Array
  shape: tuple[int, ...]  # of the outputs


def output_rows(name: str, weight: jax.Array) -> OutputRows:
  num_in = 3 if name == "out" else 1
  inputs, outputs = weight.shape[:num_in], weight.shape[num_in:]
  return OutputRows(weight.reshape(math.prod(inputs), -1).T, outputs)


def by_rows(x: jax.Array, rows: jax.Array) -> jax.Array:
  """x [..., in] by a matrix [out, in] -> [..., out], summed in float32.

  The matrix goes first, which is faster for few tokens. XLA would turn that
  around if all that followed were one transpose, hence the blocks.
  """
  out, size = rows.shape
  flat = x.reshape(-1, size)
  blocks = rows.reshape(-1, math.gcd(out, _ROW_BLOCK), size)
  product = einsum("ti,koi->kto", flat, blocks)
  return product.transpose(1, 0, 2).reshape(x.shape[:-1] + (out,))


def matmul(x: jax.Array, weight, num_in: int = 1) -> jax.Array:
  """x [..., in] @ weight [in (num_in axes), ...], summed in float32."""
  if isinstance(weight, OutputRows):
    return by_rows(x, weight.rows).reshape(x.shape[:-1] + weight.shape)
  # The outputs' axes stay: a mesh that cuts the last of them would have to
  # gather a matrix to make them one.
  weight = weight.reshape(x.shape[-1], *weight.shape[num_in:]).astype(x.dtype)
  return jnp.tensordot(x, weight, 1, preferred_element_type=jnp.float32)
