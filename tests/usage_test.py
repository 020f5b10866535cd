"""What a step costs, against sums by hand."""

import dataclasses
import os
import time
import types

import jax
import numpy as np
import pytest

from codea1_jax import catalog, flops, player, usage
from codea1_jax.models.config import QwenConfig
from codea1_jax.types import Completion

MODEL = QwenConfig(
  vocab_size=64,
  hidden_size=32,
  intermediate_size=48,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
)
NUMBERS = {
  "code/tokens/sampled": 300,
  "test/tokens/sampled": 700,
  "code/tokens/trained": 300.0,
  "test/tokens/trained": 100.0,
  "code/flops/rollout": 1e9,
  "test/flops/rollout": 3e9,
  "test/flops/score": 1e9,
  "code/flops/update": 6e9,
  "time/rollout_s": 2.0,
  "time/sandbox_s": 4.0,
  "time/score_s": 0.5,
  "time/update_s": 1.5,
}


def needed(context, predicts):
  """One token's pass, product by product, with all it attends to."""
  D, F, H = 32, 48, 8
  weights = [(D, 4 * H), (D, 2 * H), (D, 2 * H), (4 * H, D), *[(D, F)] * 3]
  layer = sum(2 * a * b for a, b in weights) + 2 * 4 * H * 2 * context
  return 2 * layer + 2 * D * 64 * predicts


def test_rows_take_what_their_tokens_take():
  lengths, predicted = np.array([5, 1, 9], np.int32), 7
  passes = sum(needed(k + 1, 0) for n in lengths for k in range(n))
  expected = passes + predicted * 2 * 32 * 64
  assert flops.sequences(MODEL, lengths, predicted) == expected


def test_samples_of_a_prompt_share_its_pass():
  samples = player.Samples(
    [[1] * 3, [1] * 5],
    [
      [Completion("", (1,) * n, (0.0,) * n, True) for n in row]
      for row in ((2, 4), (1, 6))
    ],
    0.5,
  )
  policy = types.SimpleNamespace(model_config=MODEL)
  drawn = player.Player.drawn(types.SimpleNamespace(policy=policy), samples)
  expected = 0
  for prompt, row in ((3, (2, 4)), (5, (1, 6))):
    expected += sum(needed(k + 1, 0) for k in range(prompt))
    for n in row:
      expected += sum(needed(prompt + k + 1, 1) for k in range(n))
  assert drawn == {
    "prompt_cut_share": 0.5,
    "tokens/sampled": 13,
    "flops/rollout": expected,
  }


def test_rates_by_hand():
  assert usage.token_rates(NUMBERS) == {
    "rollout/tokens_per_s": 500.0,
    "update/tokens_per_s": 1600 / 6,
  }
  supervised = {"test/tokens/trained": 30, "time/update_s": 3.0}
  assert usage.token_rates(supervised) == {"update/tokens_per_s": 10.0}


def test_idle_shares_by_hand():
  assert usage.idle_shares(NUMBERS, 10.0) == {
    "idle/device": pytest.approx(0.6),
    "idle/sandbox": pytest.approx(0.6),
  }
  supervised = {"time/update_s": 1.0, "time/sandbox_s": 0.5}
  assert usage.idle_shares(supervised, 2.0) == {
    "idle/device": 0.5,
    "idle/sandbox": 0.75,
  }


def test_mfu_by_hand():
  assert usage.utilization(NUMBERS, 10.0, 8e9) == {
    "mfu/rollout": 0.25,
    "mfu/score": 0.25,
    "mfu/update": 0.5,
    "mfu/step": 11e9 / 8e10,
  }
  assert usage.utilization(NUMBERS, 10.0, 0.0) == {}


def device(kind="cpu", host=0, stats=None):
  return types.SimpleNamespace(
    device_kind=kind, process_index=host, memory_stats=lambda: stats
  )


def test_peaks_are_those_of_the_config_or_of_known_devices():
  two = [device("TPU v5 lite"), device("TPU v5 lite")]
  assert usage._peak_flops(two, 0.0) == 2 * 197e12
  assert usage._peak_flops(two, 100.0) == 2 * 100e12
  assert usage._peak_flops(jax.devices(), 0.0) == 0.0  # "cpu"
  assert usage._peak_flops(jax.devices()[:2], 0.5) == 1e12
  assert usage._peak_flops([device("TPU v4"), device("TPU v5")], 0.0) == 0.0
  known = {name: catalog.peak_flops(name) for name in catalog._KINDS}
  assert known["NVIDIA H100 80GB HBM3"] == catalog.device("h100").flops
  assert set(known.values()) == {275e12, 197e12, 459e12, 918e12, 312e12, 989e12}


def test_memory_is_that_of_the_fullest_device_here():
  gib = 2**30
  found = usage._memory(
    [
      device(stats={"bytes_in_use": gib, "peak_bytes_in_use": 3 * gib}),
      device(stats={"bytes_in_use": 2 * gib, "peak_bytes_in_use": 2 * gib}),
      device(host=1, stats={"bytes_in_use": 9 * gib}),
    ]
  )
  host = found.pop("memory/host_gib")
  assert found == {"memory/device_gib": 2.0, "memory/device_peak_gib": 3.0}
  assert list(usage._memory([device()])) == ["memory/host_gib"]
  # Of this process, in use now: more than jax alone, less than the machine.
  total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / gib
  assert 0.1 < host < total
  held = np.ones(2**27, np.uint8)
  assert usage._memory([])["memory/host_gib"] > host + 0.1
  assert held.all()


def test_parts_of_a_stage_add_up():
  clock = usage.Clock()
  for _ in range(2):
    with clock.stage("sandbox"):
      time.sleep(0.02)
  time.sleep(0.03)
  with clock.stage("update"):
    pass
  assert clock.metrics.keys() == {"time/sandbox_s", "time/update_s"}
  assert 0.04 <= clock.metrics["time/sandbox_s"] < 0.2
  assert clock.metrics["time/update_s"] < 0.02


@dataclasses.dataclass
class FakePool:
  usage: tuple[int, float] = (5, 1.0)


def test_a_step_is_measured_from_its_begin_to_its_end():
  pool = FakePool()
  run = types.SimpleNamespace(
    pool=pool,
    parallel={"code": types.SimpleNamespace(devices=jax.devices()[:1])},
    config=types.SimpleNamespace(
      logging=types.SimpleNamespace(peak_tflops=1e-3)
    ),
  )
  compilations = types.SimpleNamespace(metrics={"compile/programs": 3})
  measured = usage.Usage(run, compilations)
  with measured.step():
    pool.usage = (25, 5.0)
    time.sleep(0.02)
  found = measured.metrics(NUMBERS)
  assert found["sandbox/exec_per_s"] == 5.0
  assert 0.02 <= found["time/step_s"] < 0.2
  assert found["mfu/update"] == 4.0  # of a device of 1 GFLOP/s
  assert found["compile/programs"] == 3
  with measured.step():
    pass
  assert "sandbox/exec_per_s" not in measured.metrics(NUMBERS)
