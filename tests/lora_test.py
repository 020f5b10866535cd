"""LoRA: beside the base as merged into it, and PEFT's files both ways."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from codea1_jax.models import convert, lora, peft, qwen
from codea1_jax.models.config import QwenConfig

CONFIG = QwenConfig(
  vocab_size=50,
  hidden_size=24,
  intermediate_size=40,
  num_layers=3,
  num_heads=6,
  num_kv_heads=2,
  head_dim=8,
  tie_word_embeddings=False,
)
SETTINGS = lora.LoraConfig(rank=4, alpha=8.0)


@pytest.fixture(scope="module")
def params():
  return qwen.init_params(CONFIG, jax.random.key(0))


def random_adapters(settings, seed=1):
  """Both matrices random: a new adapter's B is zero and adds nothing."""
  shapes = lora.adapter_shapes(CONFIG, settings)
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda shape: jnp.asarray(rng.normal(0, 0.2, shape), jnp.float32),
    shapes,
    is_leaf=lambda node: isinstance(node, tuple),
  )


def logits(params, config=CONFIG):
  tokens = jnp.arange(14).reshape(2, 7) * 3 % CONFIG.vocab_size
  valid = jnp.ones((2, 7), bool).at[0, :2].set(False)
  hidden = qwen.hidden_states(params, config, tokens, valid)
  return qwen.logits(params, config, hidden)[:, 2:]


@pytest.mark.parametrize(
  "targets",
  [lora.TARGETS, ("q_proj", "v_proj"), ("k_proj", "up_proj"), ("o_proj",),
   ("gate_proj", "down_proj")],
  ids="+".join,
)  # fmt: skip
def test_beside_the_base_as_merged_into_it(params, targets):
  settings = dataclasses.replace(SETTINGS, targets=targets)
  adapters = random_adapters(settings)
  merged = logits(lora.merge(params, CONFIG, adapters, settings))
  beside = logits(lora.attach(params, adapters, settings))
  assert abs(merged - logits(params)).max() > 0.05
  np.testing.assert_allclose(beside, merged, atol=2e-5)


def test_scanned_rematerialized_and_unstacked_layers_have_them_too(params):
  attached = lora.attach(params, random_adapters(SETTINGS), SETTINGS)
  expected = logits(attached)
  scanned = dataclasses.replace(CONFIG, scan_layers=True, remat="full")
  np.testing.assert_allclose(logits(attached, scanned), expected, atol=1e-5)
  unstacked = qwen.unstack(attached, CONFIG)
  np.testing.assert_allclose(logits(unstacked), expected, atol=1e-5)


def test_a_new_adapter_changes_nothing_and_learns_by_b(params):
  adapters = lora.init_adapters(CONFIG, SETTINGS, jax.random.key(3))
  attached = lora.attach(params, adapters, SETTINGS)
  assert (logits(attached) == logits(params)).all()
  bound = CONFIG.intermediate_size**-0.5
  down = np.abs(adapters["down_proj"]["a"])
  assert 0.9 * bound < down.max() <= bound

  def loss(adapters):
    return jnp.square(logits(lora.attach(params, adapters, SETTINGS))).sum()

  grads = jax.grad(loss)(adapters)
  for name in lora.TARGETS:
    assert not grads[name]["a"].any(), name
    assert np.abs(grads[name]["b"]).max() > 0, name


def test_gradients_are_those_of_the_merged_weights(params):
  adapters = random_adapters(SETTINGS)

  def loss(params):
    return jnp.square(logits(params)).sum()

  grads = jax.grad(lambda a: loss(lora.attach(params, a, SETTINGS)))(adapters)
  merged = lora.merge(params, CONFIG, adapters, SETTINGS)
  by_weight = jax.grad(loss)(merged)["layers"]["down"]  # [L, F, D]
  a, b = adapters["down_proj"]["a"], adapters["down_proj"]["b"]
  for name, expected in (
    ("a", SETTINGS.scale * jnp.einsum("lio,lro->lir", by_weight, b)),
    ("b", SETTINGS.scale * jnp.einsum("lir,lio->lro", a, by_weight)),
  ):
    got = grads["down_proj"][name]
    error = jnp.abs(got - expected).max() / jnp.abs(expected).max()
    assert error < 1e-4, name


def test_scale_is_alpha_over_rank(params):
  adapters = random_adapters(SETTINGS)
  doubled = dataclasses.replace(SETTINGS, alpha=2 * SETTINGS.alpha)
  twice = {k: v | {"b": 2 * v["b"]} for k, v in adapters.items()}
  np.testing.assert_allclose(
    logits(lora.attach(params, adapters, doubled)),
    logits(lora.attach(params, twice, SETTINGS)),
    atol=1e-6,
  )


def test_a_merge_into_bfloat16_weights_keeps_small_changes(params):
  half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
  adapters = random_adapters(SETTINGS)
  small = {k: v | {"b": 1e-3 * v["b"]} for k, v in adapters.items()}
  merged = lora.merge(half, CONFIG, small, SETTINGS)
  got = merged["layers"]["down"] - half["layers"]["down"].astype(jnp.float32)
  a, b = small["down_proj"]["a"], small["down_proj"]["b"]
  expected = SETTINGS.scale * jnp.einsum("lir,lro->lio", a, b)
  np.testing.assert_allclose(got, expected, atol=1e-6)
  assert merged["layers"]["attention_norm"].dtype == jnp.bfloat16


def test_bad_settings_are_named():
  with pytest.raises(ValueError, match="rank is 0"):
    lora.LoraConfig(0, 1.0)
  with pytest.raises(ValueError, match="c_attn: choose of q_proj"):
    lora.LoraConfig(2, 1.0, ("c_attn",))
  with pytest.raises(ValueError, match=r"q_proj, q_proj: .* each once"):
    lora.LoraConfig(2, 1.0, ("q_proj", "q_proj"))


def test_files_both_ways(tmp_path):
  adapters = random_adapters(SETTINGS)
  peft.save_adapters(tmp_path, CONFIG, SETTINGS, adapters, base_model="base")
  settings, loaded = peft.load_adapters(tmp_path, CONFIG)
  assert settings.rank == 4 and settings.scale == SETTINGS.scale
  assert set(settings.targets) == set(lora.TARGETS)
  jax.tree.map(np.testing.assert_array_equal, loaded, adapters)
  _, half = peft.load_adapters(tmp_path, CONFIG, "bfloat16")
  assert half["q_proj"]["a"].dtype == jnp.bfloat16


@pytest.mark.parametrize(
  "field, value",
  [
    ("use_dora", True),
    ("use_rslora", True),
    ("bias", "all"),
    ("modules_to_save", ["lm_head"]),
    ("rank_pattern", {"q_proj": 8}),
    ("target_modules", ["c_attn"]),
    ("r", 0),
    ("lora_alpha", "much"),
    ("peft_type", "IA3"),
    ("init_lora_weights", "pissa"),
    ("alora_invocation_tokens", [1, 2]),
    ("use_qalora", True),
  ],
)
def test_settings_that_we_do_not_compute_are_named(tmp_path, field, value):
  adapters = random_adapters(SETTINGS)
  peft.save_adapters(tmp_path, CONFIG, SETTINGS, adapters, base_model="base")
  path = tmp_path / "adapter_config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
  shown = "c_attn" if field == "target_modules" else field
  shown = {"r": "rank", "lora_alpha": "much"}.get(field, shown)
  with pytest.raises(ValueError, match=f"adapter_config.json.*{shown}"):
    peft.load_adapters(tmp_path, CONFIG)


def test_tensors_that_do_not_fit_are_reported_together(tmp_path):
  adapters = random_adapters(SETTINGS)
  peft.save_adapters(tmp_path, CONFIG, SETTINGS, adapters, base_model="base")
  path = tmp_path / "adapter_model.safetensors"
  tensors = safetensors.numpy.load_file(path)
  stem = "base_model.model.model.layers.1.self_attn."
  del tensors[stem + "q_proj.lora_A.weight"]
  tensors[stem + "k_proj.lora_B.weight"] = np.zeros((3, 4), np.float32)
  tensors["lm_head.lora_A.weight"] = np.zeros((4, 4), np.float32)
  safetensors.numpy.save_file(tensors, path)
  with pytest.raises(ValueError) as error:
    peft.load_adapters(tmp_path, CONFIG)
  for words in ("q_proj.lora_A", "unexpected lm_head", "(3, 4), expected"):
    assert words in str(error.value)
  path.unlink()
  with pytest.raises(FileNotFoundError, match="adapter_model"):
    peft.load_adapters(tmp_path, CONFIG)


def test_parity_with_the_peft_library(tmp_path):
  torch = pytest.importorskip("torch", reason="needs the extra `parity`")
  library = pytest.importorskip("peft", reason="needs the extra `parity`")
  import transformers

  base, theirs, ours = (tmp_path / n for n in ("base", "theirs", "ours"))
  convert.save_pretrained(
    base, CONFIG, qwen.init_params(CONFIG, jax.random.key(0)), dtype="float32"
  )
  model = transformers.AutoModelForCausalLM.from_pretrained(
    base, dtype=torch.float32
  )
  settings = library.LoraConfig(
    r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj", "o_proj"],
    init_lora_weights=False,
  )  # fmt: skip
  adapted = library.get_peft_model(model, settings).eval()
  adapted.save_pretrained(theirs)
  tokens = np.arange(14).reshape(2, 7) * 3 % CONFIG.vocab_size
  with torch.no_grad():
    expected = adapted(torch.tensor(tokens)).logits.numpy()

  config, params = convert.load_pretrained(base)
  found, adapters = peft.load_adapters(theirs, config)
  valid = jnp.ones((2, 7), bool)
  attached = lora.attach(params, adapters, found)
  hidden = qwen.hidden_states(attached, config, jnp.asarray(tokens), valid)
  got = qwen.logits(attached, config, hidden)
  np.testing.assert_allclose(got, expected, atol=1e-4)

  peft.save_adapters(ours, config, found, adapters, base_model=str(base))
  fresh = transformers.AutoModelForCausalLM.from_pretrained(
    base, dtype=torch.float32
  )
  again = library.PeftModel.from_pretrained(fresh, ours).eval()
  with torch.no_grad():
    back = again(torch.tensor(tokens)).logits.numpy()
  np.testing.assert_allclose(back, expected, atol=1e-5)
