"""The real driver with real workers, on a tiny model; no test of any time."""

import importlib.util
import math

import pytest

from experiments import (
  benchmark_ceilings,
  benchmark_jobs,
  benchmark_rounds,
  benchmark_update,
  benchmark_update_jobs,
)

needs_torch = pytest.mark.skipif(
  not importlib.util.find_spec("torch"), reason="PyTorch is not installed"
)
CONFIG = benchmark_jobs.SIZES["tiny"].config
SETTING = benchmark_update_jobs.Setting(2, 3, 5, 9, shortest=3)
CONTENDERS = [
  "ours:float32:micro_batch_size=4:chunk_size=50",
  "ours:float32:micro_batch_size=1:share_prompts=2",
  "torch:float32:micro_batch_size=4",
  "trl:float32",
]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
  directory = str(tmp_path_factory.mktemp("tiny"))
  return benchmark_update_jobs.random_job(directory, CONFIG, SETTING)


def _run(job, contenders):
  said = []
  pythons = {"trl": None, "tunix": None}
  measured = benchmark_update.run(
    job, contenders, 1, pythons=pythons, say=said.append
  )
  return measured["turns"], said


@needs_torch
def test_contenders_agree_update_after_update(job):
  turns, said = _run(job, CONTENDERS)
  assert list(turns) == CONTENDERS[:-1]
  assert said[0] == "trl:float32 skipped: no --trl_python"
  ours, sharing, theirs = turns.values()
  for index in (0, 1):  # updates after the second and the third
    expected = theirs[index]["result"]
    for found in (ours[index]["result"], sharing[index]["result"]):
      assert found["loss"] == pytest.approx(expected["loss"], abs=2e-6)
      norm = pytest.approx(expected["grad_norm"], rel=2e-6)
      assert found["grad_norm"] == norm
  # The update is seen: without it all rounds would agree as well.
  assert ours[0]["result"]["loss"] - ours[1]["result"]["loss"] > 1e-4


class _Canned:
  """In a worker's place: an answer by dtype, and whether it was closed."""

  closed = 0

  def __init__(self, kind, python=None):
    self.cpu_total_s, self._dtype = 0.0, ""

  def ask(self, request):
    self._dtype = request.get("job", {}).get("dtype", self._dtype)
    loss = 0.1 if self._dtype == "float32" else 0.13
    cost = dict.fromkeys(("wall_s", "cpu_s", "cpu_total_s"), 1.0)
    return {"result": {"loss": loss, "grad_norm": 1.0}} | cost

  def close(self):
    _Canned.closed += 1


def test_a_run_whose_contenders_differ_ends(job, monkeypatch):
  monkeypatch.setattr(benchmark_rounds, "Worker", _Canned)
  with pytest.raises(
    ValueError, match=r"of ours:bfloat16 is 0\.13, of torch:fl"
  ):
    _run(job, ["ours:bfloat16", "torch:float32"])
  assert _Canned.closed == 3  # the one that measures the machine too


@pytest.mark.parametrize(
  "other, agrees",
  [
    ({"loss": 0.10009, "grad_norm": 20.0019}, True),
    ({"loss": 0.10011, "grad_norm": 20.0}, False),
    ({"loss": 0.1, "grad_norm": 20.0021}, False),
    ({"loss": math.nan, "grad_norm": 20.0}, False),
  ],
)
def test_differences_above_a_ten_thousandth_are_refused(other, agrees):
  results = {
    "ours:bfloat16": {"loss": 0.11, "grad_norm": 20.3},
    "ours:float32": {"loss": 0.1, "grad_norm": 20.0},
    "torch:float32": other,
  }
  if agrees:
    return benchmark_update_jobs.check_agreement(results)
  with pytest.raises(ValueError, match="of torch:float32 is"):
    benchmark_update_jobs.check_agreement(results)


def test_completions_are_ragged(job):
  assert job.lengths == [3, 4, 5, 6, 7, 9]
  assert job.prompt_tokens == 5


def test_update_operations_by_hand():
  """2 rows of 3 + 1 and 3 + 2 tokens."""
  layer = 2048 + 1024 + 6144  # qkv, out, mlp: see benchmark_rollout_test
  forward = 2 * layer * 9 + 2 * 4096 * 3 + 4 * 32 * (10 + 15)
  found = benchmark_ceilings.update_operations(CONFIG, 3, [1, 2])
  assert found == 3 * forward


def _turn(wall_s, cpu_s, gib=1):
  return {"wall_s": wall_s, "cpu_s": cpu_s, "peak_bytes": gib * 2**30}


def test_ratios_are_medians_within_rounds(job):
  """Round 2 is twice as slow for all, round 3 for torch alone."""
  rate = {"wall": job.operations(), "cpu": job.operations() / 2}
  measured = {
    "turns": {
      "ours:float32": [_turn(9, 9), _turn(2, 4), _turn(4, 8), _turn(2, 4)],
      "torch:float32": [
        *(_turn(9, 9), _turn(3, 4), _turn(6, 8)),
        _turn(6, 8, gib=4),
      ],
      "tunix:float32": [_turn(9, 9), _turn(2, 6), _turn(4, 12), _turn(2, 6)],
    },
    "ceilings": [{"matmul_float32": rate}] * 3,
  }
  lines = benchmark_update.summarize(job, measured)
  ours, torch = lines["ours:float32"], lines["torch:float32"]
  assert (ours["wall_s"], ours["cpu_s"], torch["wall_s"]) == (2, 4, 6)
  # Ratios of rounds: 1.5, 1.5, 3; of the medians it would be 3.
  assert ours["ratio_wall"] == 1.5
  assert ours["ratio_cpu"] == 1  # 1, 1, 2
  assert ours["ratio_peak"] == 0.25
  assert torch["ratio_wall"] == torch["ratio_peak"] == 1
  assert (ours["mfu_wall"], ours["mfu_cpu"]) == (0.5, 0.5)
  said = benchmark_update.verdicts(lines)
  assert said == [
    "ours:float32: x torch:float32 1.50, target >= 1.05: met",
    "ours:float32: x tunix:float32 1.00, target >= 1.40: MISSED",
    "ours:float32: peak memory / torch:float32 0.25, target <= 0.33: met",
  ]
  lines["ours:float32:share_prompts=8"] = ours
  assert benchmark_update.verdicts(lines) == [
    "ours:float32:share_prompts=8: x torch:float32 1.50, target >= 1.50: met",
    *said,
  ]


@pytest.mark.parametrize(
  "name, reason",
  [
    ("ours", "'ours' is none of ours:float32, ours:bfloat16, torch:float32"),
    ("jax:float32", "is none of"),
    ("tunix:bfloat16", "is none of .* trl:float32, tunix:float32$"),
    ("torch:float32:remat=full", "'remat' is no option of torch"),
    ("ours:float32:micro_batch_size=x", "micro_batch_size = 'x'"),
  ],
)
def test_misspelt_contenders_are_refused(name, reason):
  with pytest.raises(ValueError, match=reason):
    benchmark_update.read_contender(name)
