"""Loading and saving of big models: memory, shards, devices, donation."""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codea1_jax.models import convert, files, layout, qwen

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = qwen.QwenConfig(
  vocab_size=56,
  hidden_size=32,
  intermediate_size=48,
  num_layers=2,
  num_heads=16,
  num_kv_heads=8,
  head_dim=4,
  tie_word_embeddings=False,
)


def random_params(config):
  rng = np.random.default_rng(1)
  return jax.tree.map(
    lambda shape: jnp.asarray(rng.normal(0, 0.3, shape), config.param_dtype),
    qwen.param_shapes(config),
    is_leaf=lambda node: isinstance(node, tuple),
  )


@pytest.fixture(scope="module")
def params():
  return random_params(CONFIG)


def weights_in(directory):
  return sorted(p.name for p in directory.glob("*.safetensors*"))


def assert_equal(left, right):
  jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_shards_hold_what_one_file_does(tmp_path, params, dtype):
  one, many = tmp_path / "one", tmp_path / "many"
  convert.save_pretrained(one, CONFIG, params, dtype=dtype)
  limit = 9000
  convert.save_pretrained(
    many, CONFIG, params, dtype=dtype, max_shard_bytes=limit
  )
  index = json.loads((many / "model.safetensors.index.json").read_text())
  names = weights_in(many)[:-1]
  count = len(names)
  assert count > 2 and names[0] == f"model-00001-of-{count:05d}.safetensors"
  whole = safetensors.numpy.load_file(one / "model.safetensors")
  found = {}
  for name in names:
    with safetensors.safe_open(many / name, "numpy") as handle:
      assert handle.metadata() == {"format": "pt"}  # older loaders want it
    shard = safetensors.numpy.load_file(many / name)
    assert sum(value.nbytes for value in shard.values()) <= limit
    assert all(index["weight_map"][tensor] == name for tensor in shard)
    found |= shard
  assert found.keys() == whole.keys() == index["weight_map"].keys()
  assert all(value.dtype == dtype for value in whole.values())
  assert_equal(found, whole)
  total = sum(value.nbytes for value in whole.values())
  assert index["metadata"]["total_size"] == total
  loaded = convert.load_pretrained(many)[1]
  assert_equal(loaded, convert.load_pretrained(one)[1])
  want = jax.tree.map(lambda leaf: leaf.astype(dtype).astype("f"), params)
  assert_equal(loaded, want)


def test_weights_of_an_earlier_save_are_removed(tmp_path, params):
  (tmp_path / "adapter_model.safetensors").write_bytes(b"mine")
  small = {"max_shard_bytes": 20000}
  convert.save_pretrained(tmp_path, CONFIG, params, dtype="float32", **small)
  before = weights_in(tmp_path)
  convert.save_pretrained(tmp_path, CONFIG, params, **small)
  after = weights_in(tmp_path)
  assert len(after) < len(before) and len(after) > 4
  convert.save_pretrained(tmp_path, CONFIG, params)
  single = ["adapter_model.safetensors", "model.safetensors"]
  assert weights_in(tmp_path) == single
  convert.save_pretrained(tmp_path, CONFIG, params, **small)
  assert weights_in(tmp_path) == after


def test_a_save_stopped_while_renaming_loses_no_weights(
  tmp_path, params, monkeypatch
):
  convert.save_pretrained(tmp_path, CONFIG, params, dtype="float32")

  def fail(*_):
    raise OSError("stopped")

  monkeypatch.setattr(files.os, "replace", fail)
  with pytest.raises(OSError, match="stopped"):
    convert.save_pretrained(tmp_path, CONFIG, params, max_shard_bytes=20_000)
  monkeypatch.undo()
  assert_equal(convert.load_pretrained(tmp_path)[1], params)


def test_a_save_that_fails_leaves_the_earlier_one(tmp_path, params):
  convert.save_pretrained(tmp_path, CONFIG, params, dtype="float32")
  huge = params | {"final_norm": params["final_norm"] + 1e5}
  with pytest.raises(ValueError, match=r"model\.norm\.weight .* float16"):
    convert.save_pretrained(tmp_path, CONFIG, huge, dtype="float16")
  assert weights_in(tmp_path) == ["model.safetensors"]
  assert_equal(convert.load_pretrained(tmp_path)[1], params)


@pytest.mark.parametrize(
  "wrong", [{"dtype": "int8"}, {"max_shard_bytes": 0}], ids=str
)
def test_saving_in_an_impossible_way_is_an_error(tmp_path, params, wrong):
  with pytest.raises(ValueError, match=f"{next(iter(wrong))}.*expected"):
    convert.save_pretrained(tmp_path, CONFIG, params, **wrong)


def test_transformers_loads_shards(tmp_path, params):
  torch = pytest.importorskip("torch", reason="parity needs torch")
  import transformers

  convert.save_pretrained(
    tmp_path, CONFIG, params, dtype="float32", max_shard_bytes=20000
  )
  model, report = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path, output_loading_info=True
  )
  assert not report["missing_keys"] and not report["unexpected_keys"]
  tokens = np.arange(7)[None]
  with torch.no_grad():
    want = model(torch.tensor(tokens)).logits.numpy()
  config, loaded = convert.load_pretrained(tmp_path)
  valid = jnp.ones(tokens.shape, bool)
  forward = jax.jit(qwen.hidden_states, static_argnums=1)
  hidden = forward(loaded, config, jnp.asarray(tokens), valid)
  got = qwen.logits(loaded, config, hidden)
  np.testing.assert_allclose(got, want, atol=1e-4)


def test_host_arrays_are_saved_as_device_arrays_are(tmp_path, params):
  host = jax.tree.map(np.asarray, params)
  convert.save_pretrained(tmp_path / "device", CONFIG, params)
  convert.save_pretrained(tmp_path / "host", CONFIG, host)
  left, right = (
    (tmp_path / name / "model.safetensors").read_bytes()
    for name in ("device", "host")
  )
  assert left == right


def test_tables_pass_in_pieces(tmp_path, params, monkeypatch):
  monkeypatch.setattr(convert, "_PIECE_VALUES", 320)  # 10 rows of 56
  slot = layout.slots(CONFIG)["lm_head.weight"]
  rows = [(row, p.shape[0]) for row, p in layout.pieces(slot, 320)]
  assert rows == [(0, 10), (10, 10), (20, 10), (30, 10), (40, 10), (50, 6)]
  convert.save_pretrained(tmp_path, CONFIG, params, dtype="float32")
  monkeypatch.undo()
  assert_equal(convert.load_pretrained(tmp_path)[1], params)
  monkeypatch.setattr(convert, "_PIECE_VALUES", 320)
  assert_equal(convert.load_pretrained(tmp_path)[1], params)


def test_nothing_is_read_before_all_is_checked(tmp_path, params, monkeypatch):
  convert.save_pretrained(tmp_path, CONFIG, params)
  config = json.loads((tmp_path / "config.json").read_text())
  config["num_hidden_layers"] = 3
  (tmp_path / "config.json").write_text(json.dumps(config))
  monkeypatch.setattr(files, "read_rows", lambda *_: pytest.fail("read"))
  with pytest.raises(ValueError, match=r"missing model\.layers\.2"):
    convert.load_pretrained(tmp_path)


def file_hash(directory):
  data = (directory / "model.safetensors").read_bytes()
  return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
def test_loaded_parameters_may_be_donated(tmp_path, params, param_dtype):
  convert.save_pretrained(tmp_path, CONFIG, params, dtype="float32")
  before = file_hash(tmp_path)
  _, loaded = convert.load_pretrained(tmp_path, param_dtype=param_dtype)
  want = jax.tree.map(lambda leaf: np.array(leaf) * 4, loaded)

  def double(tree):
    return jax.tree.map(lambda leaf: leaf * 2, tree)

  update = jax.jit(double, donate_argnums=0)
  updated = update(update(loaded))
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(loaded))
  assert_equal(updated, want)
  assert file_hash(tmp_path) == before


def spec_tree(mesh):
  """K, F and V cut over the devices, as a mesh of tensor parallelism does."""
  cut = {
    "embedding": PartitionSpec("x"),
    "head": PartitionSpec("x"),
    "qkv": PartitionSpec(None, None, "x"),
    "qkv_bias": PartitionSpec(None, "x"),
    "out": PartitionSpec(None, "x"),
    "gate_up": PartitionSpec(None, None, None, "x"),
    "down": PartitionSpec(None, "x"),
  }

  def sharding(path, _):
    return NamedSharding(mesh, cut.get(path[-1].key, PartitionSpec()))

  return jax.tree_util.tree_map_with_path(
    sharding,
    qwen.param_shapes(CONFIG),
    is_leaf=lambda node: isinstance(node, tuple),
  )


@pytest.fixture(scope="module")
def mesh():
  if len(jax.devices()) < 8:
    pytest.skip("needs 8 devices")
  return Mesh(np.array(jax.devices()[:8]), ("x",))


def test_leaves_are_loaded_into_their_shardings(tmp_path, params, mesh):
  convert.save_pretrained(tmp_path, CONFIG, params, dtype="float32")
  shardings = spec_tree(mesh)
  _, loaded = convert.load_pretrained(tmp_path, shardings=shardings)
  assert_equal(loaded, params)
  for leaf, sharding in zip(*map(jax.tree.leaves, (loaded, shardings))):
    assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
  assert loaded["layers"]["down"].addressable_shards[3].data.shape == (2, 6, 32)
  convert.save_pretrained(tmp_path / "again", CONFIG, loaded, dtype="float32")
  assert file_hash(tmp_path / "again") == file_hash(tmp_path)


def test_one_sharding_serves_all_leaves(tmp_path, params, mesh):
  convert.save_pretrained(tmp_path, CONFIG, params, dtype="float32")
  everywhere = NamedSharding(mesh, PartitionSpec())
  _, loaded = convert.load_pretrained(tmp_path, shardings=everywhere)
  assert all(leaf.sharding == everywhere for leaf in jax.tree.leaves(loaded))
  last = jax.sharding.SingleDeviceSharding(jax.devices()[-1])
  _, loaded = convert.load_pretrained(tmp_path, shardings=last)
  assert all(leaf.sharding == last for leaf in jax.tree.leaves(loaded))
  assert_equal(loaded, params)


def test_shardings_of_another_tree_are_named(tmp_path, params, mesh):
  convert.save_pretrained(tmp_path, CONFIG, params)
  shardings = spec_tree(mesh)
  del shardings["layers"]["qkv"]
  with pytest.raises(ValueError, match="layers/qkv is in one of them only"):
    convert.load_pretrained(tmp_path, shardings=shardings)


PEAK = """
import sys
import jax
import jax.numpy as jnp
from codea1_jax.models import convert

def peak():
  lines = open("/proc/self/status").read().splitlines()
  return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024

jnp.zeros(3).block_until_ready()
before = peak()
_, params = convert.load_pretrained(sys.argv[1], param_dtype=sys.argv[2])
size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
print((peak() - before) / size, size)
"""


@pytest.fixture(scope="module")
def big_model(tmp_path_factory):
  """103M parameters, 206 MB in bfloat16; embedding and mlp a third each."""
  directory = tmp_path_factory.mktemp("big")
  config = dataclasses.replace(
    CONFIG,
    vocab_size=70000,
    hidden_size=512,
    intermediate_size=2048,
    num_layers=20,
    tie_word_embeddings=True,
    param_dtype="bfloat16",
  )
  zeros = jax.tree.map(
    lambda shape: np.zeros(shape, "bfloat16"),
    qwen.param_shapes(config),
    is_leaf=lambda node: isinstance(node, tuple),
  )
  convert.save_pretrained(directory, config, zeros)
  return directory


@pytest.mark.skipif(
  not os.path.exists("/proc/self/status"), reason="peak memory is from /proc"
)
@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
def test_loading_peaks_below_1_3_times_the_parameters(big_model, param_dtype):
  done = subprocess.run(
    [sys.executable, "-c", PEAK, str(big_model), param_dtype],
    cwd=ROOT,
    env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  ratio, size = map(float, done.stdout.split())
  assert size > 2e8
  assert 0.9 < ratio < 1.3, ratio
