"""The decoder: hand-computed pieces, and identities of the whole."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1_jax.models import attention, qwen

CONFIG = qwen.QwenConfig(
  vocab_size=61,
  hidden_size=24,
  intermediate_size=40,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  rope_theta=100.0,
)


def random_params(config):
  """Random in every leaf: biases and norms away from their neutral start."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda shape: jnp.asarray(rng.normal(0, 0.3, shape), "float32"),
    qwen.param_shapes(config),
    is_leaf=lambda node: isinstance(node, tuple),
  )


@pytest.fixture(scope="module")
def params():
  return random_params(CONFIG)


def tokens_of(shape, seed=0):
  return jnp.asarray(
    np.random.default_rng(seed).integers(0, 61, shape), jnp.int32
  )


hidden_states = jax.jit(qwen.hidden_states, static_argnums=1)


def forward(params, config, tokens, valid=None):
  valid = jnp.ones(tokens.shape, bool) if valid is None else valid
  return hidden_states(params, config, tokens, jnp.asarray(valid))


def test_norm_by_hand():
  got = qwen.norm(jnp.array([[3.0, 4.0]]), jnp.array([1.0, 2.0]), 0.0)
  np.testing.assert_allclose(got[0], [3 / 12.5**0.5, 8 / 12.5**0.5], rtol=1e-6)


def test_rope_by_hand():
  """Pair (0, 2) turns by the position, pair (1, 3) by position / 10."""
  config = dataclasses.replace(CONFIG, head_dim=4)
  cos, sin = qwen.rope_tables(config, jnp.array([[2]]))
  np.testing.assert_allclose(cos[0, 0], np.cos([2.0, 0.2]), rtol=1e-6)
  x = jnp.array([1.0, 0.0, 0.0, 5.0]).reshape(1, 1, 1, 1, 4)
  want = [np.cos(2.0), -5 * np.sin(0.2), np.sin(2.0), 5 * np.cos(0.2)]
  got = qwen.rotate(x, cos, sin)[0, 0, 0, 0]
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_attention_by_hand():
  """Zero queries average the visible values; both heads of a group alike."""
  q = jnp.zeros((1, 2, 1, 2, 2))
  k = jnp.ones((1, 2, 1, 2))
  v = jnp.array([[[[2.0, 0.0]], [[4.0, 6.0]]]])
  got = attention.attend(q, k, v, jnp.ones((1, 2), bool))[0, :, 0]
  np.testing.assert_allclose(got[0], [[2, 0], [2, 0]])
  np.testing.assert_allclose(got[1], [[3, 3], [3, 3]])


@pytest.mark.parametrize("kept_length", [2048, 1])
def test_attention_in_blocks_is_attention(monkeypatch, kept_length):
  """Values and gradients of 11 queries in blocks of 4."""
  rng = np.random.default_rng(0)
  q, k, v, weight = (
    jnp.asarray(rng.normal(0, 1, shape), "float32")
    for shape in ((2, 11, 2, 3, 4), (2, 11, 2, 4), (2, 11, 2, 4), (2, 11, 24))
  )
  valid = jnp.arange(11)[None] >= jnp.array([[0], [5]])

  def loss(args):
    mixed = attention.attend(*args, valid).reshape(2, 11, -1)
    return jnp.where(valid[..., None], mixed * weight, 0.0).sum()

  want = jax.jit(jax.value_and_grad(loss))((q, k, v))
  monkeypatch.setattr(attention, "_QUERY_BLOCK", 4)
  monkeypatch.setattr(attention, "_KEPT_LENGTH", kept_length)
  got = jax.jit(jax.value_and_grad(lambda args: loss(args)))((q, k, v))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want
  )


def test_future_tokens_do_not_matter(params):
  tokens = tokens_of((1, 7))
  changed = tokens.at[0, 4].set((tokens[0, 4] + 1) % 61)
  before, after = (
    forward(params, CONFIG, tokens),
    forward(params, CONFIG, changed),
  )
  np.testing.assert_allclose(before[0, :4], after[0, :4], atol=1e-5)
  assert jnp.abs(before[0, 4:] - after[0, 4:]).max(-1).min() > 1e-3


@pytest.mark.parametrize(
  "valid",
  [[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0, 1]],
  ids=["left", "right", "between"],
)
def test_a_padded_row_equals_the_row_alone(params, valid):
  valid = np.array([valid, [1] * 7], bool)
  tokens = tokens_of((2, 7))
  padded = forward(params, CONFIG, tokens, valid)
  alone = forward(params, CONFIG, tokens[:1, valid[0]])
  np.testing.assert_allclose(padded[0, valid[0]], alone[0], atol=1e-5)
  assert jnp.isfinite(padded).all()


def test_a_row_without_valid_tokens_is_finite(params):
  hidden = forward(params, CONFIG, tokens_of((1, 4)), np.zeros((1, 4), bool))
  assert jnp.isfinite(hidden).all()


@pytest.mark.parametrize(
  ("qk_norm", "remat"),
  [(False, "full"), (True, "dots"), (True, "dots_no_batch")],
)
def test_scanned_and_rematerialized_layers_equal_unrolled_ones(qk_norm, remat):
  plain = dataclasses.replace(CONFIG, qk_norm=qk_norm, qkv_bias=not qk_norm)
  other = dataclasses.replace(plain, scan_layers=True, remat=remat)
  params = random_params(plain)
  tokens = tokens_of((2, 6))

  def value_and_grad(config):
    def loss(params):
      hidden = forward(params, config, tokens)
      return (qwen.logits(params, config, hidden) ** 2).mean()

    return jax.jit(jax.value_and_grad(loss))(params)

  (value, grad), (value2, grad2) = map(value_and_grad, (plain, other))
  np.testing.assert_allclose(value, value2, rtol=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
    grad,
    grad2,
  )
  assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grad))


@pytest.mark.parametrize("scan_layers", [False, True])
def test_remat_orders_what_a_backward_pass_keeps(params, scan_layers):
  """Bytes of residuals, as the pullback holds them; nothing is computed."""

  def residuals(remat):
    config = dataclasses.replace(CONFIG, remat=remat, scan_layers=scan_layers)

    def pullback(params):
      valid = jnp.ones((2, 6), bool)
      tokens = tokens_of((2, 6))
      return jax.vjp(
        lambda p: qwen.hidden_states(p, config, tokens, valid), params
      )[1]

    leaves = jax.tree.leaves(jax.eval_shape(pullback, params))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

  sizes = list(map(residuals, ("none", "dots", "dots_no_batch", "full")))
  assert sizes == sorted(sizes, reverse=True)
  assert len(set(sizes)) == 4


def test_unstacked_parameters_compute_the_same(params):
  tokens = tokens_of((2, 5))
  split = qwen.unstack(params, CONFIG)
  assert len(split["layers"]) == 2
  np.testing.assert_allclose(
    forward(split, CONFIG, tokens), forward(params, CONFIG, tokens), atol=1e-5
  )


def test_unstack_converts_matrices_but_not_norms(params):
  config = dataclasses.replace(CONFIG, dtype="bfloat16")
  split = qwen.unstack(params, config)
  assert split["embedding"].dtype == jnp.bfloat16
  assert split["layers"][0]["qkv"].rows.dtype == jnp.bfloat16
  assert split["layers"][0]["mlp_norm"].dtype == jnp.float32
  assert split["final_norm"].dtype == jnp.float32


def test_bfloat16_stays_close_and_logits_are_float32(params):
  config = dataclasses.replace(CONFIG, dtype="bfloat16")
  tokens = tokens_of((2, 9))
  hidden = forward(params, config, tokens)
  assert hidden.dtype == jnp.bfloat16
  low = qwen.logits(params, config, hidden)
  full = qwen.logits(params, CONFIG, forward(params, CONFIG, tokens))
  assert low.dtype == jnp.float32
  correlation = np.corrcoef(np.ravel(low), np.ravel(full))[0, 1]
  assert 0.99 < correlation < 1.0 - 1e-9


def test_module_and_functions_share_their_parameters():
  untied = dataclasses.replace(CONFIG, tie_word_embeddings=False)
  params = random_params(untied)
  tokens, valid = tokens_of((2, 4)), jnp.ones((2, 4), bool)
  got = jax.jit(qwen.Qwen(untied).apply)({"params": params}, tokens, valid)
  hidden = forward(params, untied, tokens)
  want = np.einsum("btd,vd->btv", hidden, params["head"])
  np.testing.assert_allclose(got, want, atol=1e-5)
  assert qwen.head_matrix(params, untied) is params["head"]


def test_random_start_depends_on_the_key_and_is_nearly_uniform():
  params = qwen.init_params(CONFIG, jax.random.key(0))
  assert jax.tree.map(jnp.shape, params) == qwen.param_shapes(CONFIG)
  other = qwen.init_params(CONFIG, jax.random.key(1))
  assert jnp.abs(params["layers"]["qkv"] - other["layers"]["qkv"]).max() > 0.1
  hidden = forward(params, CONFIG, tokens_of((2, 6)))
  log_probs = jax.nn.log_softmax(qwen.logits(params, CONFIG, hidden))
  np.testing.assert_allclose(log_probs, -np.log(61), atol=0.6)
