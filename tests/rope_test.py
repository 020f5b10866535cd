"""Rope scaling: by hand, as transformers has it, in the cached decode."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging

from codea1_jax.models import convert, decoding, qwen, rope

LLAMA3 = {
  "rope_type": "llama3",
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 16,
}
YARN = {
  "rope_type": "yarn",
  "factor": 4.0,
  "original_max_position_embeddings": 16,
}
SCALINGS = {
  "linear": {"rope_type": "linear", "factor": 2.5},
  "llama3": LLAMA3,
  "yarn": YARN,
  "yarn with mscale": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
  "yarn with factors": YARN
  | {
    "attention_factor": 1.3,
    "beta_fast": 8,
    "beta_slow": 0.5,
    "truncate": False,
  },
}
CONFIG = qwen.QwenConfig(
  vocab_size=53,
  hidden_size=32,
  intermediate_size=40,
  num_layers=1,
  num_heads=2,
  num_kv_heads=1,
  head_dim=16,
  rope_theta=1e4,
)


def read(scaling, field="rope_scaling", **top):
  raw = {"rope_theta": 1e4, field: scaling} | top
  return rope.rope_from_hf(raw, 64)


def test_linear_by_hand():
  _, scaling = read({"type": "linear", "factor": 4})
  got = rope.frequencies(4, 100.0, scaling)
  np.testing.assert_allclose(got, [1 / 4, 0.1 / 4], rtol=1e-6)
  assert rope.attention_scale(scaling) == 1.0


def test_llama3_by_hand():
  """Turns in 16 positions: above 4 kept, below 1 divided, between mixed."""
  _, scaling = read(LLAMA3)
  plain = rope.frequencies(8, 100.0, None)
  turns = 16 * 100.0 ** -np.array([0, 0.25, 0.5, 0.75]) / (2 * np.pi)
  np.testing.assert_allclose(turns, [2.546, 0.805, 0.255, 0.0805], atol=1e-3)
  kept = (turns[0] - 1) / 3
  want = plain * [kept + (1 - kept) / 8, 1 / 8, 1 / 8, 1 / 8]
  np.testing.assert_allclose(
    rope.frequencies(8, 100.0, scaling), want, rtol=1e-5
  )


def test_yarn_by_hand():
  _, scaling = read(YARN)
  assert rope.attention_scale(scaling) == 0.1 * np.log(4) + 1
  _, scaling = read(YARN | {"mscale": 2.0, "mscale_all_dim": 1.0})
  want = (0.2 * np.log(4) + 1) / (0.1 * np.log(4) + 1)
  assert rope.attention_scale(scaling) == pytest.approx(want)
  got = rope.frequencies(16, 1e4, scaling)
  plain = rope.frequencies(16, 1e4, None)
  # One turn in 16 positions is pair 0.81: pairs 0 and from 1 on.
  np.testing.assert_allclose(got / plain, [1] + [0.25] * 7, rtol=1e-6)


@pytest.mark.parametrize("raw", SCALINGS.values(), ids=SCALINGS.keys())
def test_both_spellings_are_one_and_round_trip(raw):
  older = {"type" if k == "rope_type" else k: v for k, v in raw.items()}
  theta, scaling = read(older)
  newer = {"rope_parameters": raw | {"rope_theta": 1e4}}
  assert rope.rope_from_hf(newer, 64) == (theta, scaling) == (1e4, scaling)
  written = rope.rope_scaling_to_hf(scaling)
  assert read(written) == (theta, scaling)
  both = {"rope_scaling": written, **newer, "rope_theta": 1e4}
  assert rope.rope_from_hf(both, 64) == (theta, scaling)


def test_lengths_that_files_leave_out():
  yarn = {"rope_type": "yarn", "factor": None}
  _, scaling = read(yarn | {"original_max_position_embeddings": 16})
  assert scaling.factor == 4.0
  _, scaling = read({"rope_type": "yarn", "factor": 2.0})
  assert scaling.original_max_position_embeddings == 64
  _, scaling = read(YARN, original_max_position_embeddings=32)
  assert scaling.original_max_position_embeddings == 32


@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
  ("raw", "words"),
  [
    ({"type": "dynamic", "factor": 2.0}, "'dynamic'"),
    ({"rope_type": "longrope", "factor": 2.0}, "'longrope'"),
    ({"rope_type": "mrope"}, "'mrope'"),
    ({"rope_type": "linear"}, "lacks factor"),
    ({"rope_type": "linear", "factor": None}, "lacks factor"),
    ({"rope_type": "linear", "factor": "4"}, "factor = '4'"),
    ({"rope_type": "linear", "factor": 0}, "factor = 0"),
    ({"rope_type": "llama3", "factor": 8.0}, "low_freq_factor, high"),
    (LLAMA3 | {"low_freq_factor": 4.0}, "4.0 is not below"),
    (YARN | {"attention_factor": -1.0}, "attention_factor = -1.0"),
    (YARN | {"truncate": 3}, "truncate = 3"),
    ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial.* 0.5"),
    ({"full_attention": {"rope_theta": 1e4}}, "full_attention"),
  ],
)
def test_what_is_unsupported_is_named(field, raw, words):
  with pytest.raises(ValueError, match=f"rope.*{words}"):
    read(raw, field)


def test_fields_that_disagree_are_an_error():
  newer = {"rope_type": "default", "rope_theta": 1e6}
  with pytest.raises(ValueError, match=r"rope_scaling .* rope_parameters"):
    read(YARN, rope_parameters=newer)


def test_unknown_fields_are_ignored_aloud(monkeypatch):
  found = []
  monkeypatch.setattr(logging, "warning", lambda *a: found.append(a[0] % a[1:]))
  assert read(YARN | {"attn_factor": 2.0, "finetuned": True}) == read(YARN)
  assert len(found) == 1 and "{'attn_factor': 2.0}" in found[0]
  assert "finetuned" not in found[0]


@pytest.mark.parametrize(
  ("family", "head_dim", "scaling"),
  [("Qwen2", 16, name) for name in SCALINGS]
  + [("Qwen3", 32, "yarn"), ("Llama", 8, "llama3")],
)
def test_parity_with_transformers_beyond_the_original_context(
  tmp_path, family, head_dim, scaling
):
  torch = pytest.importorskip("torch", reason="parity needs torch")
  import transformers

  torch.manual_seed(0)
  tokens = np.random.default_rng(0).integers(0, 53, (1, 150))
  parameters = SCALINGS[scaling] | {"rope_theta": 1e4}
  model_class = getattr(transformers, f"{family}ForCausalLM")
  theirs = model_class(
    getattr(transformers, f"{family}Config")(
      vocab_size=53,
      hidden_size=32,
      intermediate_size=40,
      num_hidden_layers=1,
      num_attention_heads=4,
      num_key_value_heads=2,
      head_dim=head_dim,
      max_position_embeddings=64,
      rope_parameters=dict(parameters),
      initializer_range=0.3,
    )
  ).eval()

  def theirs_of(model):
    with torch.no_grad():
      return model(torch.tensor(tokens)).logits.numpy()

  want = theirs_of(theirs)
  theirs.save_pretrained(tmp_path / "theirs")
  config, params = convert.load_pretrained(tmp_path / "theirs")
  assert config.rope_scaling.kind == parameters["rope_type"]
  got = jax.jit(logits_of, static_argnums=1)(params, config, tokens)
  np.testing.assert_allclose(got, want, atol=1e-4)
  convert.save_pretrained(tmp_path / "ours", config, params, dtype="float32")
  back = model_class.from_pretrained(tmp_path / "ours")
  np.testing.assert_allclose(theirs_of(back), want, atol=1e-5)


def logits_of(params, config, tokens):
  tokens = jnp.asarray(tokens)
  valid = jnp.ones(tokens.shape, bool)
  hidden = qwen.hidden_states(params, config, tokens, valid)
  return qwen.logits(params, config, hidden)


@pytest.mark.parametrize(
  ("scaling", "theta", "length"),
  [
    (LLAMA3 | {"original_max_position_embeddings": 8192}, 5e5, 131072),
    (YARN | {"original_max_position_embeddings": 32768}, 1e6, 131072),
    ({"rope_type": "linear", "factor": 4.0}, 1e4, 8192),
  ],
  ids=["llama3", "yarn", "linear"],
)
def test_frequencies_of_real_sizes_equal_transformers(scaling, theta, length):
  pytest.importorskip("torch", reason="parity needs torch")
  import transformers
  from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

  config = transformers.Qwen3Config(
    head_dim=128,
    max_position_embeddings=length,
    rope_parameters=scaling | {"rope_theta": theta},
  )
  want, scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config)
  raw = {"rope_parameters": scaling | {"rope_theta": theta}}
  read_theta, ours = rope.rope_from_hf(raw, length)
  got = rope.frequencies(128, read_theta, ours)
  np.testing.assert_allclose(got, want.numpy(), rtol=5e-7)
  assert rope.attention_scale(ours) == pytest.approx(scale)


def test_cached_decode_equals_full_forward_under_yarn():
  config = dataclasses.replace(CONFIG, rope_scaling=read(YARN)[1])
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda shape: jnp.asarray(rng.normal(0, 0.3, shape), "float32"),
    qwen.param_shapes(config),
    is_leaf=lambda node: isinstance(node, tuple),
  )
  tokens = jnp.asarray(rng.integers(0, 53, (2, 24)), jnp.int32)
  valid = jnp.arange(24)[None] >= jnp.array([0, 5])[:, None]

  prefill, step_fn = (
    jax.jit(fn, static_argnums=1)
    for fn in (decoding.prefill, decoding.decode_step)
  )
  cache = decoding.empty_cache(config, 2, 1, prompt_length=20, ring=4)
  cache = cache.replace(
    prompts=prefill(params, config, tokens[:, :20], valid[:, :20])
  )
  start = jnp.zeros(2, jnp.int32)
  got = []
  for step in range(4):
    token = tokens[:, 20 + step]
    last, cache = step_fn(params, config, token, jnp.int32(step), start, cache)
    got.append(last)
  forward = jax.jit(qwen.hidden_states, static_argnums=1)
  want = forward(params, config, tokens, valid)[:, 20:]
  np.testing.assert_allclose(jnp.stack(got, 1), want, atol=1e-4)
  plain = dataclasses.replace(config, rope_scaling=None)
  assert (
    jnp.abs(forward(params, plain, tokens, valid)[:, 20:] - want).max() > 0.1
  )
