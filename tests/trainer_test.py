"""The whole loop on the shipped pair: learning steps, determinism, resume."""

import importlib
import json
import os
import signal

import jax
import numpy as np
import pytest

from codea1_jax import assembly, checkpoint, metrics, run_log, trainer


def small_config(**changes):
  """The embedded default at its smallest; every stage runs for real."""
  config = importlib.import_module("configs.tiny").get_config()
  config.update_from_flattened_dict(
    {
      "num_steps": 2,
      "rollout.questions": 3,
      "rollout.codes": 4,
      "rollout.suites": 3,
      "rollout.bucket": 64,
      "evaluation.samples": 1,
      "evaluation.targets": 1,
      "evaluation.every": 100,
      "checkpoint.every": 1,
      "dump_every": 1,
    }
  )
  config.update_from_flattened_dict(changes)
  return config


@pytest.fixture(autouse=True)
def small_world(monkeypatch):
  """One device and few problems: neither is what is tested here."""
  load = assembly.problem_files.load_problems
  make_parallel = assembly.updates.make_parallel

  def first(path):
    loaded = load(path)
    return loaded[:12] if "heldout" in str(path) else loaded[:30]

  def one_device(kind):
    return make_parallel(kind, jax.local_devices()[:1])

  monkeypatch.setattr(assembly.problem_files, "load_problems", first)
  monkeypatch.setattr(assembly.updates, "make_parallel", one_device)


def timeless(path):
  """What the seed decides: not times, nor what this process has compiled."""
  return [
    {k: v for k, v in row.items() if not k.startswith(("time/", "compile/"))}
    for row in metrics.read_jsonl(path)
  ]


def test_same_seed_same_numbers_and_resume(tmp_path):
  whole, again, halves = (tmp_path / n for n in ("whole", "again", "halves"))
  trainer.train(small_config(), whole)
  trainer.train(small_config(), again)
  assert timeless(whole / "metrics.jsonl") == timeless(again / "metrics.jsonl")
  assert timeless(whole / "eval.jsonl") == timeless(again / "eval.jsonl")
  rows = metrics.read_jsonl(whole / "metrics.jsonl")
  programs = [row["compile/programs"] for row in rows]
  # Six of the sampler a policy, score and update; of the last step few more.
  assert 16 <= programs[0] <= programs[-1] <= 1.5 * programs[0]

  class StopAfterOne(run_log.RunLog):
    def step(self, step, values, rollouts):
      super().step(step, values, rollouts)
      if step == 0:
        os.kill(os.getpid(), signal.SIGTERM)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(trainer, "RunLog", StopAfterOne)
    trainer.train(small_config(), halves)
  assert len(metrics.read_jsonl(halves / "metrics.jsonl")) == 1
  trainer.train(small_config(), halves)
  for name in ("metrics.jsonl", "eval.jsonl", "rollouts.jsonl"):
    assert timeless(halves / name) == timeless(whole / name), name

  rows = metrics.read_jsonl(whole / "metrics.jsonl")
  assert [row["step"] for row in rows] == [0, 1]
  assert rows[-1]["book/size"] > 0
  for row in rows:
    # One update a step: the policy is the one that sampled.
    assert row["code/clip_fraction"] == 0
    assert abs(row["code/approx_kl"]) < 1e-5
    assert row["code/sampler_gap"] < 1e-4
    assert 0 < row["test/grad_norm"] < 100
  assert "<html" in (whole / "report.html").read_text()
  record = metrics.read_jsonl(whole / "rollouts.jsonl")[0]
  assert len(record["codes"]) == 4 and len(record["codes"][0]["suites"]) == 3
  assert sum(code["selected"] for code in record["codes"]) == 1


@pytest.mark.slow
def test_seeds_differ(tmp_path):
  rows = []
  for seed in (0, 1):
    config = small_config(seed=seed, num_steps=1)
    trainer.train(config, tmp_path / str(seed))
    rows.append(timeless(tmp_path / str(seed) / "metrics.jsonl"))
  assert rows[0] != rows[1]


@pytest.mark.parametrize(
  "changes, untouched",
  [
    ({"method": "golden_tests"}, "test"),
    ({"method": "self_play"}, "test"),
    ({"book.enabled": False}, None),
  ],
  ids=["golden_tests", "self_play", "no_book"],
)
def test_baselines(changes, untouched, tmp_path):
  config = small_config(num_steps=1, **changes)
  trainer.train(config, tmp_path)
  (row,) = metrics.read_jsonl(tmp_path / "metrics.jsonl")
  book = {"golden_tests": None, "code_a1": 0}  # self-play fills it
  if config.method in book:
    assert row.get("book/size") == book[config.method]
  else:
    assert row["book/size"] > 0
  with assembly.open_run(config, tmp_path) as run:
    saved = checkpoint.Checkpoints(tmp_path, 1)
    state = saved.restore(run.initial_state(), run.parallel)
    saved.close()
    moved = {
      role: any(
        not np.array_equal(a, b)
        for a, b in zip(
          *(
            jax.tree.leaves(getattr(s, role).params)
            for s in (run.initial_state(), state)
          )
        )
      )
      for role in ("code", "test")
    }
  assert moved["code"]
  assert moved["test"] == (untouched != "test")


def test_checkpoint_holds_the_whole_game(tmp_path):
  config = small_config(num_steps=1)
  trainer.train(config, tmp_path)
  with assembly.open_run(config, tmp_path) as run:
    assert run.resume
    saved = checkpoint.Checkpoints(tmp_path, 1)
    state = saved.restore(run.initial_state(), run.parallel)
    saved.close()
  assert state.step == 1 and state.book.size > 0
  assert int(np.asarray(state.code.step)[0]) == 1


def test_not_a_number_stops_after_the_metrics_are_written(
  tmp_path, monkeypatch
):
  def broken_step(run, state):
    return (
      state.replace(step=1),
      {"code/loss": float("nan"), "code/kl": 0.5},
      [],
    )

  monkeypatch.setitem(trainer.STEPS, "code_a1", broken_step)
  with pytest.raises(FloatingPointError, match=r"step 0: code/loss"):
    trainer.train(small_config(num_steps=1), tmp_path)
  line = (tmp_path / "metrics.jsonl").read_text()
  assert json.loads(line)["code/kl"] == 0.5
  assert not list((tmp_path / "checkpoints").glob("[0-9]*"))


def test_long_prompts_keep_their_end_and_are_counted(tmp_path):
  config = small_config(**{"code.max_prompt_tokens": 9})
  chats = [[{"role": "user", "content": "Return the factorial of n, please."}]]
  with assembly.open_run(config, tmp_path) as run:
    full, _ = run.test.encode(chats)
    assert run.code.encode(chats) == ([full[0][-9:]], 1.0)
    params = run.initial_state().code.params
    samples = run.code.sample(params, chats, (0, 0, 0))
  assert samples.prompt_cut_share == 1.0
  assert samples.prompts == [full[0][-9:]]
