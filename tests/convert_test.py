"""Model directories: parity with transformers both ways, and every error."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from codea1_jax.models import convert, qwen

CONFIG = qwen.QwenConfig(
  vocab_size=53,
  hidden_size=24,
  intermediate_size=40,
  num_layers=2,
  num_heads=6,
  num_kv_heads=2,
  head_dim=8,
  rope_theta=1e4,
)
TOKENS = np.random.default_rng(0).integers(0, 53, (2, 9))


def random_params(config):
  rng = np.random.default_rng(1)
  return jax.tree.map(
    lambda shape: jnp.asarray(rng.normal(0, 0.3, shape), config.param_dtype),
    qwen.param_shapes(config),
    is_leaf=lambda node: isinstance(node, tuple),
  )


def logits_of(config, params):
  @jax.jit
  def run(params):
    valid = jnp.ones(TOKENS.shape, bool)
    hidden = qwen.hidden_states(params, config, jnp.asarray(TOKENS), valid)
    return qwen.logits(params, config, hidden)

  return np.asarray(run(params))


@pytest.fixture
def model_dir(tmp_path):
  convert.save_pretrained(
    tmp_path, CONFIG, random_params(CONFIG), dtype="float32"
  )
  return tmp_path


def rewrite(path, change):
  """Loads the file's tensors, lets `change` edit them, writes them back."""
  tensors = safetensors.numpy.load_file(path)
  change(tensors)
  safetensors.numpy.save_file(tensors, path)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("family", ["Qwen2", "Qwen3", "Llama"])
def test_parity_with_transformers_both_ways(tmp_path, family, tied):
  torch = pytest.importorskip("torch", reason="parity needs torch")
  import transformers

  torch.manual_seed(0)
  model_class = getattr(transformers, f"{family}ForCausalLM")
  theirs = model_class(
    getattr(transformers, f"{family}Config")(
      vocab_size=53,
      hidden_size=24,
      intermediate_size=40,
      num_hidden_layers=2,
      num_attention_heads=6,
      num_key_value_heads=2,
      head_dim=8,
      tie_word_embeddings=tied,
      initializer_range=0.2,
    )
  ).eval()
  for name, value in theirs.named_parameters():
    if "norm" in name or "bias" in name:  # away from their neutral start
      torch.nn.init.normal_(value, 1.0, 0.3)
  theirs.save_pretrained(tmp_path / "theirs")
  with torch.no_grad():
    want = theirs(torch.tensor(TOKENS)).logits.numpy()
  config, params = convert.load_pretrained(tmp_path / "theirs")
  np.testing.assert_allclose(logits_of(config, params), want, atol=1e-4)
  assert np.abs(want).max() > 1

  ours = tmp_path / "ours"
  convert.save_pretrained(ours, config, params, dtype="float32")
  back, report = model_class.from_pretrained(ours, output_loading_info=True)
  assert not report["missing_keys"] and not report["unexpected_keys"]
  with torch.no_grad():
    again = back(torch.tensor(TOKENS)).logits.numpy()
  np.testing.assert_allclose(again, want, atol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_saving_and_loading_is_exact(tmp_path, tied):
  config = dataclasses.replace(CONFIG, tie_word_embeddings=tied)
  params = random_params(config)
  convert.save_pretrained(tmp_path, config, params, dtype="float32")
  loaded_config, loaded = convert.load_pretrained(tmp_path)
  assert loaded_config == config
  jax.tree.map(np.testing.assert_array_equal, loaded, params)
  names = safetensors.numpy.load_file(tmp_path / "model.safetensors")
  assert ("lm_head.weight" in names) is not tied


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_any_float_file_loads_into_any_dtype(tmp_path, dtype):
  params = random_params(CONFIG)
  convert.save_pretrained(tmp_path, CONFIG, params, dtype=dtype)
  config, loaded = convert.load_pretrained(
    tmp_path, dtype="bfloat16", param_dtype="bfloat16"
  )
  assert (config.dtype, config.param_dtype) == ("bfloat16", "bfloat16")
  want = params["layers"]["down"].astype(dtype).astype("bfloat16")
  np.testing.assert_array_equal(loaded["layers"]["down"], want)
  assert loaded["layers"]["down"].dtype == jnp.bfloat16


def test_the_same_parameters_give_the_same_bytes(tmp_path):
  params = random_params(CONFIG)
  for name in "ab":
    convert.save_pretrained(tmp_path / name, CONFIG, params)
  for file in ("model.safetensors", "config.json", "generation_config.json"):
    left, right = ((tmp_path / name / file).read_bytes() for name in "ab")
    assert left == right
  raw = json.loads((tmp_path / "a" / "config.json").read_text())
  assert raw["torch_dtype"] == "bfloat16"


def split_into_shards(directory):
  """Moves the weights into two files and writes their index."""
  tensors = safetensors.numpy.load_file(directory / "model.safetensors")
  (directory / "model.safetensors").unlink()
  shards = {"one.safetensors": {}, "two.safetensors": {}}
  for index, (name, value) in enumerate(sorted(tensors.items())):
    shards[sorted(shards)[index % 2]][name] = value
  weight_map = {}
  for file, content in shards.items():
    safetensors.numpy.save_file(content, directory / file)
    weight_map |= dict.fromkeys(content, file)
  (directory / "model.safetensors.index.json").write_text(
    json.dumps({"weight_map": weight_map})
  )


def test_shards_load_as_one_file_does(model_dir):
  _, want = convert.load_pretrained(model_dir)
  split_into_shards(model_dir)
  _, loaded = convert.load_pretrained(model_dir)
  jax.tree.map(np.testing.assert_array_equal, loaded, want)


def test_a_lost_shard_is_named(model_dir):
  split_into_shards(model_dir)
  (model_dir / "two.safetensors").unlink()
  with pytest.raises(FileNotFoundError, match=r"two\.safetensors"):
    convert.load_pretrained(model_dir)


def test_a_missing_directory_config_and_weights_are_named(model_dir):
  with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
    convert.load_pretrained(model_dir / "nowhere")
  (model_dir / "model.safetensors").unlink()
  with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors"):
    convert.load_pretrained(model_dir)
  (model_dir / "config.json").unlink()
  with pytest.raises(FileNotFoundError, match=r"config\.json does not exist"):
    convert.load_pretrained(model_dir)


def test_a_broken_or_unsupported_config_is_named(model_dir):
  path = model_dir / "config.json"
  raw = json.loads(path.read_text())
  path.write_text(json.dumps(raw | {"hidden_act": "gelu"}))
  with pytest.raises(ValueError, match=r"config\.json.*hidden_act = 'gelu'"):
    convert.load_pretrained(model_dir)
  path.write_text("{")
  with pytest.raises(ValueError, match=r"config\.json is not valid JSON"):
    convert.load_pretrained(model_dir)
  path.write_text("[]")
  with pytest.raises(ValueError, match="holds list, expected an object"):
    convert.load_pretrained(model_dir)


def test_missing_extra_and_misshapen_tensors_are_one_report(model_dir):
  def change(tensors):
    del tensors["model.norm.weight"]
    del tensors["model.layers.1.self_attn.q_proj.bias"]
    tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((1,), "f")
    tensors["model.embed_tokens.weight"] = np.zeros((53, 25), "f")
    tensors["model.layers.0.input_layernorm.weight"] = np.zeros((24,), "i4")

  rewrite(model_dir / "model.safetensors", change)
  with pytest.raises(ValueError) as caught:
    convert.load_pretrained(model_dir)
  message = str(caught.value)
  assert "\n" not in message
  for part in (
    "missing model.layers.1.self_attn.q_proj.bias, model.norm.weight;",
    "unexpected model.layers.2.mlp.up_proj.weight;",
    "model.embed_tokens.weight has shape (53, 25), expected (53, 24);",
    "model.layers.0.input_layernorm.weight is I32, expected one of",
  ):
    assert part in message


def test_a_tied_models_copy_of_the_head_is_harmless(model_dir):
  _, want = convert.load_pretrained(model_dir)

  def change(tensors):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]

  rewrite(model_dir / "model.safetensors", change)
  _, loaded = convert.load_pretrained(model_dir)
  assert jax.tree.structure(loaded) == jax.tree.structure(want)


@pytest.mark.parametrize("keep", [0.0, 0.05, 0.9])
def test_a_truncated_file_is_named(model_dir, keep):
  path = model_dir / "model.safetensors"
  content = path.read_bytes()
  path.write_bytes(content[: int(len(content) * keep)])
  with pytest.raises(ValueError, match=r"cannot read .*model\.safetensors"):
    convert.load_pretrained(model_dir)


def test_parameters_of_another_shape_are_not_saved(tmp_path):
  params = random_params(CONFIG)
  params["final_norm"] = params["final_norm"][1:]
  with pytest.raises(ValueError, match=r"final_norm.* \(23,\), .* \(24,\)"):
    convert.save_pretrained(tmp_path, CONFIG, params)
