"""Log-probs and entropies in chunks: against the plain ones, and in memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1_jax import grpo, log_probs


def plain(hidden, head, targets, temperature=1.0):
  """By log-softmax of all the logits."""
  logits = jnp.einsum(
    "BTD,VD->BTV", hidden, head, preferred_element_type=jnp.float32
  )
  log_softmax = jax.nn.log_softmax(logits / temperature)
  chosen = jnp.take_along_axis(log_softmax, targets[..., None], -1)[..., 0]
  return chosen, -(jnp.exp(log_softmax) * log_softmax).sum(-1)


def head_inputs(dtype="float32", batch=3, length=7, width=8, vocab=33):
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(batch, length, width))
  head = rng.normal(0, 0.5, size=(vocab, width))
  targets = rng.integers(vocab, size=(batch, length))
  targets[0, :2] = 0, vocab - 1  # the ends of the first and the last chunk
  return jnp.asarray(hidden, dtype), jnp.asarray(head, dtype), targets


def gradients(fn, inputs, **kwargs):
  """Gradients by hidden and head under random cotangents, and the outputs."""

  def weighted(hidden, head):
    outputs = jnp.stack(fn(hidden, head, inputs[2], **kwargs))
    weights = np.random.default_rng(1).normal(size=outputs.shape)
    return (jnp.asarray(weights, jnp.float32) * outputs).sum(), outputs

  grad = jax.jit(jax.grad(weighted, argnums=(0, 1), has_aux=True))
  return jax.tree.leaves(grad(*inputs[:2]))


def test_by_hand():
  # One token with logits (0, log 3): probabilities 1/4 and 3/4.
  hidden, head = jnp.ones((1, 1, 1)), jnp.array([[0.0], [np.log(3.0)]])
  targets = jnp.array([[1]])
  for chunk_size in (None, 1):
    log_p, entropy = grpo.token_log_probs(
      hidden, head, targets, chunk_size=chunk_size
    )
    np.testing.assert_allclose(log_p, [[np.log(0.75)]], rtol=1e-6)
    expected = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    np.testing.assert_allclose(entropy, [[expected]], rtol=1e-6)
    # Temperature 1/2 doubles the logits: 1/10 and 9/10.
    log_p, _ = grpo.token_log_probs(
      hidden, head, targets, chunk_size=chunk_size, temperature=0.5
    )
    np.testing.assert_allclose(log_p, [[np.log(0.9)]], rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk_size", [None, 1, 4, 11, 32, 33])
def test_values_and_gradients_are_the_plain_ones(chunk_size, temperature):
  inputs = head_inputs()
  actual = gradients(
    grpo.token_log_probs,
    inputs,
    chunk_size=chunk_size,
    temperature=temperature,
  )
  expected = gradients(plain, inputs, temperature=temperature)
  for one, other in zip(actual, expected, strict=True):
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("output", [0, 1])
def test_each_output_alone_has_its_gradient(output):
  hidden, head, targets = head_inputs()

  def gradient(fn, **kwargs):
    def total(hidden, head):
      return fn(hidden, head, targets, **kwargs)[output].sum()

    return jax.jit(jax.grad(total, (0, 1)))(hidden, head)

  actual = gradient(grpo.token_log_probs, chunk_size=5)
  for one, other in zip(actual, gradient(plain), strict=True):
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("head_dtype", ["float32", "bfloat16"])
def test_bfloat16_differs_by_its_own_rounding_only(head_dtype):
  """Exact inputs in float32 say what the gradients round to."""
  hidden, head, targets = head_inputs("bfloat16")
  exact = hidden.astype("float32"), head.astype("float32"), targets
  low = hidden, head.astype(head_dtype), targets
  expected = gradients(plain, exact, temperature=0.7)
  actual = gradients(grpo.token_log_probs, low, temperature=0.7, chunk_size=10)
  dtypes = [x.dtype for x in actual]
  assert dtypes == ["bfloat16", head_dtype, "float32"]
  for one, other in zip(actual, expected, strict=True):
    ulp = 2.0**-8 if one.dtype == "bfloat16" else 0.0
    np.testing.assert_allclose(
      one.astype("float32"), other, rtol=ulp, atol=1e-5
    )


def test_extreme_logits_stay_finite():
  """The largest logit comes first, in the middle or last; targets are rare."""
  for place in (0, 16, 32):
    head = jnp.zeros((33, 1)).at[place].set(2000.0)
    inputs = jnp.ones((1, 2, 1)), head, np.array([[0, 32]])
    actual = gradients(grpo.token_log_probs, inputs, chunk_size=8)
    for one, other in zip(actual, gradients(plain, inputs), strict=True):
      assert jnp.isfinite(one).all()
      np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


def test_vmap_scan_and_remat_change_nothing():
  """As an update uses it: micro-batches in a scan, members in a vmap."""
  hidden, head, targets = head_inputs(batch=4)

  def loss(head, hidden, targets, fn=grpo.token_log_probs, **kwargs):
    return sum(x.sum() for x in fn(hidden, head, targets, **kwargs))

  chunked = functools.partial(loss, chunk_size=10)
  expected = jax.jit(jax.grad(functools.partial(loss, fn=plain)))(
    head, hidden, targets
  )
  parts = hidden.reshape(2, 2, *hidden.shape[1:]), targets.reshape(2, 2, -1)
  each = jax.jit(jax.vmap(jax.grad(chunked), (None, 0, 0)))(head, *parts)
  np.testing.assert_allclose(each.sum(0), expected, atol=1e-5)

  def add(total, part):
    return total + jax.grad(jax.checkpoint(chunked))(head, *part), None

  scanned = jax.jit(lambda: jax.lax.scan(add, jnp.zeros_like(head), parts)[0])()
  np.testing.assert_allclose(scanned, expected, atol=1e-5)


def test_a_chunk_of_nothing_is_refused():
  with pytest.raises(ValueError, match="chunk_size 0 is below 1"):
    grpo.token_log_probs(*head_inputs(), chunk_size=0)


def extra_share(dtypes, chunk_size, rows=8, length=1024, vocab=151_936):
  """Memory beside inputs and gradients, as a share of the full logits.

  Nothing runs: the compiler says what it would allocate.
  """

  def loss(hidden, head, targets, weights):
    outputs = grpo.token_log_probs(
      hidden, head, targets, chunk_size=chunk_size, temperature=0.9
    )
    return (weights * jnp.stack(outputs)).sum()

  inputs = [
    jax.ShapeDtypeStruct(shape, dtype)
    for shape, dtype in (
      ((rows, length, 896), dtypes[0]),
      ((vocab, 896), dtypes[1]),
      ((rows, length), "int32"),
      ((2, rows, length), "float32"),
    )
  ]
  step = jax.jit(jax.value_and_grad(loss, (0, 1)))
  memory = step.lower(*inputs).compile().memory_analysis()
  # Not through an output either: those are the value and the gradients.
  assert memory.output_size_in_bytes < 1000 + sum(
    x.size * x.dtype.itemsize for x in inputs[:2]
  )
  return memory.temp_size_in_bytes / (4 * rows * length * vocab)


@pytest.mark.parametrize(
  "dtypes",
  [
    ("float32", "float32"),
    ("bfloat16", "float32"),
    ("bfloat16", "bfloat16"),
  ],
  ids="-".join,
)
def test_extra_memory_is_below_a_tenth_of_the_logits(dtypes):
  assert extra_share(dtypes, log_probs.CHUNK_SIZE) < 0.1


def test_the_plain_pass_holds_all_logits():
  """What the test above measures is there to be seen."""
  assert extra_share(("float32", "float32"), None) > 1
