"""Whatever devices hold parameters and rows, the numbers are those of one."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from codea1_jax import losses, optimizer, packing, sampling, train_state, update
from codea1_jax.devices import make_parallel
from codea1_jax.generation import SamplingConfig, make_generate
from codea1_jax.models import lora, qwen

CONFIG = qwen.QwenConfig(
  vocab_size=64,
  hidden_size=32,
  intermediate_size=48,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  scan_layers=True,  # compiles faster
)
LORA = lora.LoraConfig(rank=4, alpha=8.0)
ROWS, PROMPT, LENGTH = 13, 5, 7
LOSS = losses.grpo_loss(
  losses.GrpoLossConfig(kl_coef=0.1, entropy_coef=0.05, chunk_size=12), CONFIG
)
ONE = {"kind": "pmap", "count": 1}
LAYOUTS = {
  "pmap 8": {"kind": "pmap", "count": 8},
  "fsdp 8": {"kind": "mesh", "fsdp": 8},
  "fsdp 4 x tensor 2": {"kind": "mesh", "fsdp": 4, "tensor": 2},
  "data 2 x fsdp 4": {"kind": "mesh", "data": 2, "fsdp": 4},
}


def layout(kind, count=8, **mesh):
  return make_parallel(kind, jax.devices()[:count], **mesh)


@pytest.fixture(scope="module")
def params():
  params = qwen.init_params(CONFIG, jax.random.key(0))
  return jax.tree.map(np.asarray, params)


@pytest.fixture(scope="module")
def adapters():
  """As they are in the middle of a run: B is not 0."""
  drawn = lora.init_adapters(CONFIG, LORA, jax.random.key(1))
  return jax.tree.map(
    lambda leaf: np.asarray(leaf) + 0.05 * (np.asarray(leaf) == 0), drawn
  )


def ragged_batch():
  """A little off-policy; one row does not train."""
  rng = np.random.default_rng(0)
  prompts = rng.integers(1, PROMPT + 1, ROWS)[:, None]
  lengths = rng.integers(1, LENGTH + 1, ROWS)[:, None]
  right = np.arange(LENGTH)[None] < lengths
  left = np.arange(PROMPT)[None] >= PROMPT - prompts
  mask = right.astype(np.float32)
  mask[3] = 0
  log_probs = rng.normal(-4.2, 0.3, (2, ROWS, LENGTH)).astype(np.float32)
  return train_state.UpdateBatch(
    tokens=rng.integers(1, 64, (ROWS, PROMPT + LENGTH)).astype(np.int32),
    valid=np.concatenate([left, right], 1),
    completion_mask=mask,
    advantages=rng.normal(size=ROWS).astype(np.float32),
    behavior_log_probs=log_probs[0],
    ref_log_probs=log_probs[1],
  )


def keeping_gradients():
  """AdamW whose state tells the gradients too. Keys' biases have none but
  rounding, which a small eps would make steps of."""
  adam = optimizer.make_optimizer(
    learning_rate=1e-3, warmup_steps=0, schedule="constant", eps=1e-4
  )

  def init(params):
    return adam.init(params), jax.tree.map(jnp.zeros_like, params)

  def step(grads, state, params):
    updates, inner = adam.update(grads, state[0], params)
    return updates, (inner, grads)

  return optax.GradientTransformation(init, step)


def one_update(where, params, adapters, batch, micro_batch_size=1):
  """(metrics, gradients, parameters after) on some devices, on the host."""
  parallel = layout(**where)
  trained, frozen, bind = params, None, None
  if adapters is not None:
    trained, frozen = adapters, parallel.place(params)
    bind = functools.partial(lora.attach, lora=LORA)
  chain = keeping_gradients()
  run = update.make_update(
    LOSS, chain, parallel, micro_batch_size=micro_batch_size, bind=bind
  )
  state = parallel.place(train_state.create_policy_state(trained, chain))
  placed = jax.tree.leaves(state.params)
  shardings = [leaf.sharding for leaf in placed]
  state, metrics = run(state, batch, frozen)
  # Nothing has moved, or the next update would be compiled anew.
  for old, new in zip(shardings, jax.tree.leaves(state.params), strict=True):
    assert new.sharding.is_equivalent_to(old, new.ndim)
  after = parallel.fetch(state)
  grads = jax.tree.map(np.asarray, after.opt_state[1])
  return metrics, grads, jax.tree.map(np.asarray, after.params)


def assert_same(got, want):
  """Metrics, and both trees by their norms, within 1e-5."""
  for name, value in want[0].items():
    np.testing.assert_allclose(got[0][name], value, 1e-5, 1e-6, err_msg=name)
  for tree, expected in zip(got[1:], want[1:], strict=True):
    for (path, x), y in zip(
      jax.tree_util.tree_leaves_with_path(tree),
      jax.tree.leaves(expected),
      strict=True,
    ):
      gap, scale = np.linalg.norm(x - y), np.linalg.norm(y)
      assert gap <= 1e-5 * scale + 1e-9, jax.tree_util.keystr(path)


@pytest.fixture(scope="module")
def alone(params, adapters):
  """One device: all rows at once, of full parameters and of adapters."""
  batch = ragged_batch()
  full = one_update(ONE, params, None, batch, None)
  return {"full": full, "lora": one_update(ONE, params, adapters, batch, None)}


# Every layout and both ways of training; the rest of the pairs is slow.
QUICK = {
  ("pmap 8", "lora"),
  ("fsdp 8", "full"),
  ("fsdp 4 x tensor 2", "full"),
  ("data 2 x fsdp 4", "lora"),
}
PAIRS = [
  pytest.param(name, trained, marks=[] if quick else [pytest.mark.slow])
  for name in LAYOUTS
  for trained in ("full", "lora")
  for quick in [(name, trained) in QUICK]
]


@pytest.mark.parametrize("name, trained", PAIRS)
def test_update(params, adapters, alone, name, trained):
  adapters = adapters if trained == "lora" else None
  got = one_update(LAYOUTS[name], params, adapters, ragged_batch())
  assert_same(got, alone[trained])
  assert got[0]["grad_norm"] > 0.1


@pytest.mark.parametrize(
  "name",
  [pytest.param("pmap 8", marks=pytest.mark.slow), "fsdp 4 x tensor 2"],
)
def test_packed_update(params, alone, name):
  packed = packing.pack_sequences(
    ragged_batch(), length=24, rows_multiple=8, bucket=4, pad_id=0
  )
  assert packed.max_segments > 1
  got = one_update(LAYOUTS[name], params, None, packed)
  assert_same(got, alone["full"])


@pytest.mark.parametrize(
  "name",
  [pytest.param("pmap 8", marks=pytest.mark.slow), "fsdp 4 x tensor 2"],
)
def test_update_of_shared_prompts(params, name):
  batch = ragged_batch()
  prompts = batch.tokens.shape[1] - LENGTH
  for array in (batch.tokens, batch.valid):
    array[:, :prompts] = array[np.arange(len(array)) // 3 * 3, :prompts]
  shared, _ = packing.share_prompts(
    batch, max_slots=2, rows_multiple=8, bucket=4, pad_id=0
  )
  assert shared.completion_mask.shape[1] == 2 * shared.slots[1]
  got = one_update(LAYOUTS[name], params, None, shared)
  assert_same(got, one_update(ONE, params, None, batch, None))


@pytest.mark.parametrize("name", ["fsdp 4 x tensor 2", "data 2 x fsdp 4"])
def test_score(params, name):
  batch = ragged_batch()

  def score(where):
    parallel = layout(**where)
    run = update.make_score(CONFIG, parallel, micro_batch_size=1, chunk_size=12)
    return run(parallel.place(params), batch)

  for got, want in zip(score(LAYOUTS[name]), score(ONE), strict=True):
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def draw(where, params, **settings):
  """Samples of ragged prompts with an end token, in a small decode batch."""
  rng = np.random.default_rng(1)
  prompts, samples, steps = 21, 2, 12
  valid = np.arange(6)[None] >= 6 - rng.integers(1, 7, prompts)[:, None]
  tokens = rng.integers(1, 64, (prompts, 6)).astype(np.int32)
  keys = sampling.row_keys(jax.random.key(5), np.arange(prompts * samples))
  keys = np.asarray(jax.random.key_data(keys)).reshape(prompts, samples, -1)
  parallel = layout(**where)
  settings = SamplingConfig(
    **{"num_samples": samples, "max_new_tokens": steps, **settings}
  )
  generate = make_generate(
    CONFIG, settings, parallel, eos_ids=tuple(range(8)), pad_id=0
  )
  limit = np.full((prompts, samples), steps)
  return generate(parallel.place(params), tokens, valid, keys, limit)


@pytest.mark.parametrize(
  "name",
  [
    "pmap 8",
    "fsdp 4 x tensor 2",
    pytest.param("fsdp 8", marks=pytest.mark.slow),
    pytest.param("data 2 x fsdp 4", marks=pytest.mark.slow),
  ],
)
def test_samples(params, name):
  """Tokens are the same; slots are refilled, and the batch shrinks."""
  want = draw(ONE, params, max_rows=64)
  got = draw(LAYOUTS[name], params, max_rows=2, slot_samples=2)
  np.testing.assert_array_equal(got.tokens, want.tokens)
  np.testing.assert_array_equal(got.mask, want.mask)
  np.testing.assert_allclose(got.log_probs, want.log_probs, atol=1e-5)
  assert len(set(want.mask.sum(-1).ravel())) > 4


def test_a_mesh_holds_a_part(params):
  """Of every matrix a device has 1 / 8, of moments too; norms are whole."""
  parallel = layout(**LAYOUTS["fsdp 4 x tensor 2"])
  chain = optimizer.make_optimizer()
  state = parallel.place(train_state.create_policy_state(params, chain))
  for path, leaf in jax.tree_util.tree_leaves_with_path(state):
    name = jax.tree_util.keystr(path)
    whole = leaf.ndim < 2 or "norm" in name or "bias" in name
    share = leaf.addressable_shards[0].data.size / leaf.size
    if "qkv_bias" in name:
      assert share == 1 / 2, name  # cut by heads
    else:
      assert share == (1 if whole else 1 / 8), name


@pytest.mark.parametrize(
  "mesh, message",
  [
    ({"fsdp": 3}, "fsdp 3, tensor 1 does not fit 8 devices"),
    ({"data": -1}, "does not fit"),  # fsdp is -1 too
    ({"fsdp": 2}, "data 1, fsdp 2, tensor 1 does not fit 8"),
    ({"tensor": 0}, "tensor 0 does not fit"),
  ],
)
def test_a_mesh_that_does_not_fit(mesh, message):
  with pytest.raises(ValueError, match=message):
    layout("mesh", **mesh)


def test_a_shape_that_the_mesh_does_not_divide(params):
  parallel = layout("mesh", fsdp=2, tensor=4)
  with pytest.raises(ValueError, match=r"mesh.tensor is 4, .* kv_heads = 2 of"):
    parallel.place(params)
  config = dataclasses.replace(CONFIG, hidden_size=36)
  shapes = jax.eval_shape(lambda: qwen.init_params(config, jax.random.key(0)))
  with pytest.raises(ValueError, match=r"mesh.fsdp is 8, .* embed = 36 of"):
    layout("mesh").shardings(shapes)
