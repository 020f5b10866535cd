"""Bytes and FLOPs by hand, and beside what XLA says of compiled programs."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest
from compiled_memory import ALL, compiled
from small_runs import make_config

from codea1_jax import adapters, catalog, flops, memory, planner, programs
from codea1_jax.memory import Cut
from configs import qwen2_5_coder

ROOT = pathlib.Path(__file__).parents[1]
GIB = 2**30
ONE = Cut(1)
BOTH = {"code.model": "shipped:both_llm", "test.model": "shipped:both_llm"}


def coder(arg, **changes):
  config = qwen2_5_coder.get_config(arg)
  config.update_from_flattened_dict(changes)
  return config


def plan(config, device="h200"):
  found = planner.model_shapes(config)
  return planner.make_plan(config, catalog.device(device), found)


@pytest.mark.parametrize(
  "size, count",
  [
    ("0.5b", 494_032_768),
    ("1.5b", 1_543_714_304),
    ("3b", 3_085_938_688),
    ("7b", 7_615_616_512),
  ],
)
def test_parameters_are_those_published(size, count):
  model = planner.model_shapes(coder(size))["code"]
  assert sum(memory.parameters(model, ONE).values()) == count


def test_a_mesh_cuts_what_it_is_to_cut():
  model = planner.model_shapes(make_config())["code"]
  whole, cut = (memory.parameters(model, c) for c in (ONE, Cut(4, 4, 2)))
  divided = {name: whole[name] / cut[name] for name in whole}
  layers = {k.removeprefix("layers/"): v for k, v in divided.items()}
  assert layers == {
    **{"embedding": 8, "final_norm": 1, "attention_norm": 1, "mlp_norm": 1},
    **{"qkv": 8, "qkv_bias": 2, "out": 8, "gate_up": 8, "down": 8},
  }
  with pytest.raises(ValueError, match="kv_heads in 4 does not divide 2 of"):
    memory.parameters(model, Cut(1, 1, 4))


def test_what_is_held_by_hand():
  config = make_config()
  models = planner.model_shapes(config)
  size = 4 * sum(memory.parameters(models["code"], ONE).values())
  found = plan(config)
  assert found.held_beside(found.worst) == sum(found.held.values())
  assert found.held == {
    "code params": size,
    "code optimizer": 2 * size,
    "test params": size,
    "test optimizer": 2 * size,
    "code reference": size,
    "code as read, first device": size,
    "test reference": size,
    "test as read, first device": size,
  }
  less = plan(
    make_config(
      **{
        "code.optimizer.moment_dtype": "bfloat16",
        "reference.dtype": "bfloat16",
        "grpo.kl_coef": 0.0,
      }
    )
  ).held
  assert less["code optimizer"] == size
  assert "code reference" not in less
  host = make_config(**{"reference.placement": "host"})
  assert "code reference" not in plan(host).held
  scoring, *_ = (p for p in plan(host).programs if p.name == "code scoring")
  assert scoring.beside == size


def test_adapters_share_one_base():
  config = make_config(**BOTH, **{"lora.rank": 4})
  model = planner.model_shapes(config)["code"]
  size = 4 * sum(memory.parameters(model, ONE).values())
  held = plan(config).held
  small = 4 * memory.adapters(model, adapters.settings(config), ONE)
  assert held == {
    "code params": small,
    "code optimizer": 2 * small,
    "test params": small,
    "test optimizer": 2 * small,
    "code base": size,
    "code as read, first device": size,
  }
  # Of D = 128, 4 heads and 2 kv heads of 32, F = 352, on both sides of rank 4.
  ends = (128 + 128) + 2 * (128 + 64) + (128 + 128) + 3 * (128 + 352)
  assert small == 4 * 4 * model.num_layers * ends


def test_a_mesh_holds_its_share_and_what_was_read_is_the_reference():
  config = make_config(parallel="mesh")
  whole, cut = plan(make_config()), plan(config, "h200-8")
  assert not any("as read" in name for name in cut.held)
  norms = 4 * 9 * 128  # whole on every device
  size = (whole.held["code params"] - norms) // 8 + norms
  bias = planner.model_shapes(config)["code"].num_layers * 4 * 2 * 4 * 32
  assert abs(cut.held["code params"] - size) <= bias
  assert cut.held["code reference"] == cut.held["code params"]


def test_what_a_mesh_gathers_by_hand():
  model = planner.model_shapes(make_config())["code"]
  assert (
    memory.gathered(model, ONE) == memory.gathered(model, Cut(2, 1, 2)) == 0
  )
  table, matrices = 1024 * 128, flops.matrix_size(model)
  small = 2 * 128 + 4 * 2 * 32 + 128 // 4  # norms and biases, the last's share
  expected = 4 * (table + matrices + small)
  assert memory.gathered(model, Cut(8, 8)) == expected


def test_split_halves_the_devices_and_holds_one_role():
  config = make_config(placement="split", parallel="mesh")
  half = plan(config, "h200-8")
  quarter = plan(make_config(parallel="mesh"), "h200-4")
  update = next(p for p in half.programs if p.name == "test update")
  held = sum(s for n, s in quarter.held.items() if n.startswith("test"))
  assert half.held_beside(update) == held
  with pytest.raises(ValueError, match="3 devices are no two halves"):
    plan(config, "h200-3")
  with pytest.raises(ValueError, match="fsdp 3, tensor 1 does not fit 8"):
    plan(make_config(**{"parallel": "mesh", "mesh.fsdp": 3}), "h200-8")


def test_the_decode_batch_by_hand():
  config = make_config()
  role = programs.Role(
    config, "test", planner.model_shapes(config)["test"], ONE
  )
  prefill, admit, decode = programs.sampling(role)
  # 256 rows are 64 slots of 4: 64 prompts of 768 tokens, 4 x 128 of samples.
  token = 2 * 4 * 2 * 32 * 4  # keys and values, layers, heads, width, bytes
  assert prefill.results == 64 * 768 * token
  cache = 64 * 768 * token + 256 * 128 * (token + 8)
  assert admit.arguments == prefill.results + cache
  assert decode.beside == prefill.results
  # One after the other: 72 prompts wait, 64 fit.
  assert prefill.beside == prefill.results + cache


def test_flops_by_hand():
  model = dataclasses.replace(
    planner.model_shapes(make_config())["code"], remat="none"
  )
  D, F, Q, KV, L, V = 128, 352, 4 * 32, 2 * 32, 4, 1024
  matrices = D * (Q + 2 * KV) + Q * D + 3 * D * F
  assert flops.matrix_size(model) == matrices
  work = flops.Work(model, 3, 2, 5, prompt_length=256, length=64)
  # 320 tokens in two blocks of queries: 256 meet 256 keys, 64 meet 320.
  row = 2 * 320 * L * matrices + 4 * L * Q * (256 * 256 + 64 * 320)
  head = 2 * D * V
  assert flops.scoring(work) == 5 * (row + 64 * head)
  assert flops.update(work) == 5 * (3 * row + 4 * 64 * head)
  full = dataclasses.replace(
    work, model=dataclasses.replace(model, remat="full")
  )
  assert flops.update(full) - flops.update(work) == 5 * row
  prompt = 2 * 256 * L * matrices + 4 * L * Q * 256 * 256
  token = 2 * L * matrices + head + 4 * L * Q * 320
  assert flops.rollout(work) == 3 * (prompt + 2 * 64 * token)


def test_six_flops_a_parameter_and_token():
  model = planner.model_shapes(coder("7b"))["code"]
  model = dataclasses.replace(model, remat="none")
  work = flops.Work(model, 1, 1, 1, prompt_length=256, length=256)
  count = 7_615_616_512 - model.vocab_size * model.hidden_size  # no table
  assert flops.update(work) == pytest.approx(6 * count * 512, rel=0.05)


@pytest.mark.parametrize(
  "method, silent", [("golden_tests", "test"), ("sft", "code")]
)
def test_who_does_not_play_computes_nothing(method, silent):
  both = plan(make_config()).flops
  one = plan(make_config(method=method)).flops
  assert 0 < one["update"] < both["update"]
  assert one["rollout"] < both["rollout"]
  assert (one["rollout"] == 0) == (silent == "code")


def test_devices():
  assert catalog.device("v5e-16") == catalog.Device("v5e", 16, 16 * GIB, 197e12)
  assert catalog.device("h200").count == 1
  cpu, four = catalog.device("cpu"), catalog.device("cpu-4")
  assert cpu.memory // 4 == four.memory > 0
  for wrong in ("v5e-0", "v5e-", "v5e-x"):
    with pytest.raises(ValueError, match="expected NAME or NAME-NUMBER"):
      catalog.device(wrong)
  with pytest.raises(
    ValueError, match=r"'tpu-8' is not one of v4, v5e, .* cpu"
  ):
    catalog.device("tpu-8")


def test_unknown_models_are_named(tmp_path):
  with pytest.raises(ValueError, match="hub:A/B is not known here"):
    catalog.model_shape("hub:A/B", tmp_path)
  with pytest.raises(FileNotFoundError, match=r"config\.json does not exist"):
    catalog.model_shape("some/where", tmp_path)


def advise(config, device):
  models = planner.model_shapes(config)
  return planner.advise(config, catalog.device(device), models)


def test_what_fits_is_left_alone():
  changes, better = advise(make_config(), "a100")
  assert changes == {} and better.fits
  assert planner.verdict(better, changes, better).startswith("fits: ")


def test_a_tenth_is_left_free():
  found = plan(make_config())
  for share, fits in ((0.89, True), (0.91, False)):
    device = dataclasses.replace(
      found.device, memory=int(found.highest / share)
    )
    assert dataclasses.replace(found, device=device).fits == fits


@pytest.mark.parametrize("arg, device", [("7b", "v5e-16"), ("0.5b", "v5e")])
def test_no_change_can_be_left_out(arg, device):
  config = coder(arg)
  assert not plan(config, device).fits
  changes, better = advise(config, device)
  assert better.fits and changes
  for field in changes:
    less = {k: v for k, v in changes.items() if k != field}
    assert not plan(coder(arg, **less), device).fits, field
  assert plan(coder(arg, **changes), device).highest == better.highest
  said = planner.verdict(plan(config, device), changes, better)
  assert said.startswith("DOES NOT FIT") and "it does with" in said


def test_nothing_helps_where_nothing_can():
  changes, better = advise(coder("7b,lora"), "v5e")
  assert not better.fits
  assert "nor does it with" in planner.verdict(better, changes, better)


def close(config, role, wanted, devices=1):
  """Every program within 15 % of what XLA counts, arguments and all."""
  models = planner.model_shapes(config)
  device = catalog.device(f"cpu-{devices}")
  planned = planner.make_plan(config, device, models)
  measured = compiled(config, role, models[role], wanted, devices)
  ours = {p.name: p.compiled for p in planned.programs}
  ratios = {n: ours[f"{role} {n}"] / size for n, size in measured.items()}
  assert set(wanted) <= set(ratios)
  assert all(0.85 < r < 1.15 for r in ratios.values()), ratios


def test_the_default_compiled():
  close(make_config(), "code", ("prefill", "admit", "decode"))


@pytest.mark.slow
@pytest.mark.parametrize("role", ["code", "test"])
def test_all_of_the_default_compiled(role):
  close(make_config(), role, ALL)


@pytest.mark.slow
@pytest.mark.parametrize(
  "changes",
  [
    {**BOTH, "lora.rank": 8},
    {"compute.dtype": "bfloat16", "code.optimizer.moment_dtype": "bfloat16"},
    {"compute.scan_layers": True},
    {"grpo.share_prompts": 4},
    {"grpo.share_prompts": 4, "compute.scan_layers": True},
    {"compute.scan_layers": True, "compute.remat": "full"},
  ],
  ids=[
    "lora",
    "bfloat16",
    "scanned",
    "shared",
    "shared scanned",
    "rematerialized",
  ],
)
def test_variants_compiled(changes):
  close(make_config(**changes), "code", ("update", "scoring"))


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{}, {"mesh.fsdp": 4, "mesh.tensor": 2}])
def test_meshes_compiled(mesh):
  close(make_config(parallel="mesh", **mesh), "code", ("update",), 8)


@pytest.mark.slow
@pytest.mark.parametrize("arg", ["0.5b", "0.5b,lora"])
def test_half_a_billion_compiled(arg):
  close(coder(arg), "code", ALL)


def run(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "experiments.plan", *arguments],
    cwd=ROOT,
    env=os.environ | {"XLA_FLAGS": ""},
    capture_output=True,
    text=True,
    timeout=120,
  )


def test_the_command():
  config = "--config=configs/qwen2_5_coder.py:7b"
  done = run(config, "--device=v5e-16")
  assert done.returncode == 0, done.stderr
  for words in ("code optimizer", "test update", "rollout", "DOES NOT FIT"):
    assert words in done.stdout
  done = run(config, "--device=tpu-8")
  assert done.returncode == 2 and len(done.stderr.strip().split("\n")) == 1
  assert "'tpu-8' is not one of v4" in done.stderr
