"""The whole loop on the shipped pair: learning steps, determinism, resume."""

import dataclasses
import json
import os
import signal

import event_files
import jax
import numpy as np
import optax
import pytest
from run_files import NAMES, read, timeless
from small_runs import small_config

from codea1_jax import (
  assembly,
  checkpoint,
  checkpointing,
  devices,
  dumps,
  game,
  groups,
  jsonl,
  player,
  problems,
  replay,
  run_log,
  trainer,
  usage,
)
from codea1_jax.types import Completion


@pytest.fixture(autouse=True)
def small_world(monkeypatch):
  """One device and few problems: neither is what is tested here."""
  load = problems.load_problems
  make_parallel = devices.make_parallel

  def first(path):
    loaded = load(path)
    return loaded[:12] if "heldout" in str(path) else loaded[:30]

  def one_device(kind, **mesh):
    return make_parallel(kind, jax.local_devices()[:1], **mesh)

  monkeypatch.setattr(problems, "load_problems", first)
  monkeypatch.setattr(devices, "make_parallel", one_device)


class StopAfterOne(run_log.RunLog):
  """A run that is asked to stop after its first step."""

  def step(self, step, values, rollouts):
    super().step(step, values, rollouts)
    if step == 0:
      os.kill(os.getpid(), signal.SIGTERM)


def test_same_seed_same_numbers(tmp_path):
  whole, again = tmp_path / "whole", tmp_path / "again"
  watched = {
    "logging.tensorboard": True,
    "logging.peak_tflops": 0.1,
    "profile_steps": (1, 1),
  }
  trainer.train(small_config(), whole)
  trainer.train(small_config(**watched), again)
  check_boards(again)
  check_usage(again)
  assert timeless(whole / "metrics.jsonl") == timeless(again / "metrics.jsonl")
  assert timeless(whole / "eval.jsonl") == timeless(again / "eval.jsonl")
  rows = jsonl.read_jsonl(whole / "metrics.jsonl")
  programs = [row["compile/programs"] for row in rows]
  # Six of the sampler a policy, score and update; of the last step few more.
  assert 16 <= programs[0] <= programs[-1] <= 1.5 * programs[0]
  assert [row["step"] for row in rows] == [0, 1]
  assert rows[-1]["book/size"] > 0
  for row in rows:
    # One update a step: the policy is the one that sampled.
    assert row["code/ratio/mean"] == pytest.approx(1, abs=1e-5)
    assert row["code/clip_fraction"] == 0
    assert abs(row["code/approx_kl"]) < 1e-5
    assert row["code/sampler_gap"] < 1e-4
    assert 0 < row["test/grad_norm"] < 100
  assert "<html" in (whole / "report.html").read_text()
  for role in ("code", "test"):  # still the reference itself
    assert rows[0][f"{role}/kl"] == pytest.approx(0, abs=1e-6)
    assert rows[1][f"{role}/kl"] > 0
  check_replay(small_config(), whole)


def check_boards(workdir):
  """TensorBoard shows every number of the JSONL files, once."""
  pytest.importorskip("tensorboardX")
  expected = {
    (key, row["step"]): [pytest.approx(value, rel=1e-6)]
    for name in ("metrics.jsonl", "eval.jsonl")
    for row in jsonl.read_jsonl(workdir / name)
    for key, value in row.items()
    if key != "step"
  }
  assert len(expected) > 100
  assert event_files.scalars(workdir / "tensorboard") == expected


def check_usage(workdir):
  """What a step costs adds up, and its stages are in the trace."""
  rows = jsonl.read_jsonl(workdir / "metrics.jsonl")
  for row in rows:
    stages = [row[f"time/{s}_s"] for s in event_files.STAGES]
    assert 0.9 * row["time/step_s"] < sum(stages) <= row["time/step_s"]
    idle = row["idle/device"] + row["idle/sandbox"]
    assert idle == pytest.approx(2 - sum(stages) / row["time/step_s"])
    assert row["sandbox/exec_per_s"] > 1
    assert 0 < row["mfu/step"] < row["mfu/update"] + row["mfu/rollout"]
    assert 0 < row["memory/host_gib"] < 16
    for role in ("code", "test"):
      seen, trained = (
        row[f"{role}/tokens/{n}"] for n in ("sampled", "trained")
      )
      assert 0 < trained <= seen
      lengths = [row[f"{role}/length/{n}"] for n in ("mean", "p90", "max")]
      assert lengths == sorted(lengths)
  # One code of four trains its three suites.
  assert row["test/tokens/trained"] < row["test/tokens/sampled"] / 2
  (events,) = event_files.traces(workdir / "profile")
  named = {event["name"] for event in events}
  assert named == {"train", *event_files.STAGES}
  (step,) = [event for event in events if event["name"] == "train"]
  assert step["args"]["step_num"] == "1"
  assert step["dur"] / 1e6 == pytest.approx(rows[1]["time/step_s"], rel=0.1)


def check_replay(config, workdir):
  """The dump of a run, judged without its models, gives what the run had."""
  records = read(workdir / dumps.FILE)
  assert len(records[0]["codes"]) == 4
  assert len(records[0]["codes"][0]["suites"]) == 3
  with assembly.open_pool(config.sandbox) as pool:
    steps = list(
      replay.replay(config, replay.load_dump(workdir / dumps.FILE), pool)
    )
  for step in steps:
    ours = [r for r in records if r["step"] == step.step]
    judged = step.judgement
    assert judged.reward.code.tolist() == [
      [code["reward"] for code in r["codes"]] for r in ours
    ]
    assert judged.reward.test.tolist() == [
      [[suite["reward"] for suite in code["suites"]] for code in r["codes"]]
      for r in ours
    ]
    assert judged.selected.tolist() == [
      [m for m, code in enumerate(r["codes"]) if code["selected"]] for r in ours
    ]
  assert steps[-1].judgement.book == checkpoint.read_book(workdir)


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
    ({"method": "self_play", "reference.placement": "host"}, "test"),
    ({"book.enabled": False}, None),
    ({"method": "sft"}, "code"),
  ],
  ids=["golden_tests", "self_play", "no_book", "sft"],
)
def test_baselines(changes, untouched, tmp_path):
  config = small_config(num_steps=1, **changes)
  trainer.train(config, tmp_path)
  (row,) = jsonl.read_jsonl(tmp_path / "metrics.jsonl")
  # Self-play fills it.
  book = {"golden_tests": None, "code_a1": 0, "sft": None}
  if config.method in book:
    assert row.get("book/size") == book[config.method]
  else:
    assert row["book/size"] > 0
  samples = config.method != "sft"
  assert ("rollout/tokens_per_s" in row) == samples
  assert ("idle/device" in row) and row["update/tokens_per_s"] > 0
  with assembly.open_run(config, tmp_path) as run:
    with checkpointing.Checkpoints(tmp_path, 1) as saved:
      state = saved.restore(run.initial_state(), run.parallel)
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
  assert moved == {role: role != untouched for role in ("code", "test")}


def test_all_variants_together(tmp_path):
  config = small_config(
    **{
      "prompts.anonymize_code": True,
      "quality.enabled": True,
      "book.sampler": "quality",
      "book.refresh": 2,
      "book.max_archive": 4,
      "selection.kind": "random",
      "selection.drop_zero_variance": True,
      "selection.refill": 1,
      "curriculum.enabled": True,
      "grpo.kl_estimator": "none",
      "grpo.ratio": "sequence",
      "grpo.aggregation": "seq_mean_token_mean",
      "grpo.std": "population",
      "grpo.importance_cap": 2.0,
      "code.optimizer.moment_dtype": "bfloat16",
      "evaluation.temperature": 0.7,
      "evaluation.top_p": 0.95,
      "evaluation.samples": 2,
      "evaluation.collaboration": 2,
      "evaluation.train_pass_rate": True,
      "logging.tensorboard": True,
    },
  )
  whole, halves = tmp_path / "whole", tmp_path / "halves"
  trainer.train(config, whole)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(trainer, "RunLog", StopAfterOne)
    trainer.train(config, halves)
  trainer.train(config, halves)
  for name in NAMES:
    assert timeless(halves / name) == timeless(whole / name), name

  check_boards(halves)
  check_replay(config, whole)
  row, _ = jsonl.read_jsonl(whole / "metrics.jsonl")
  dumped = read(whole / dumps.FILE)
  records = [record for record in dumped if record["step"] == 0]
  assert row["rollout/questions"] == len(records)
  assert 3 < len(records) <= 6
  # A round that refills plays none of the questions again.
  assert len({r["problem"]["id"] for r in records}) == len(records)
  assert row["code/ratio/mean"] == pytest.approx(1, abs=1e-5)
  assert 0.9 < row["code/importance_weight/mean"] < 1.1
  assert "code/kl" not in row
  assert 0 <= row["code/pass_rate"] <= 1
  before, after = jsonl.read_jsonl(whole / "eval.jsonl")
  for scores in (before, after):
    assert 0 < scores["eval/code/chosen_pass_rate"] <= 1
  with assembly.open_run(config, whole) as run:
    assert run.code.reference is None
    with checkpointing.Checkpoints(whole, 1) as saved:
      state = saved.restore(run.initial_state(), run.parallel)
  moments = optax.tree_utils.tree_get(state.code.opt_state, "nu")
  assert {leaf.dtype.name for leaf in jax.tree.leaves(moments)} == {"bfloat16"}
  seen = {record["problem"]["id"] for record in dumped}
  assert set(state.pass_rates.questions) == seen


def test_dropped_groups_leave_the_batch_its_shape():
  rewards = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 1]], np.float32)
  samples = player.Samples(
    [[k] for k in range(4)],
    [
      [Completion(f"{k}{n}", (n,), (0.0,), True) for n in "012"] for k in "0123"
    ],
  )
  four = groups.Groups(samples, rewards, np.ones((4, 3), bool))
  assert four.informative.tolist() == [False, True, False, True]
  filled = groups.fill(four, 3)
  assert filled.samples.prompts == [[1], [3], [0]]
  assert filled.mask.tolist() == [[True] * 3, [True] * 3, [False] * 3]
  assert filled.reward.tolist() == rewards[[1, 3, 0]].tolist()


def test_checkpoint_holds_the_whole_game(tmp_path):
  config = small_config(num_steps=1)
  trainer.train(config, tmp_path)
  with assembly.open_run(config, tmp_path) as run:
    assert run.resume
    with checkpointing.Checkpoints(tmp_path, 1) as saved:
      state = saved.restore(run.initial_state(), run.parallel)
  assert state.step == 1 and state.book.size > 0
  assert int(np.asarray(state.code.step)[0]) == 1


def test_not_a_number_stops_after_the_metrics_are_written(
  tmp_path, monkeypatch
):
  def broken_step(run, state, stop):
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


@pytest.mark.parametrize(
  "field, value, name",
  [("pack_length", 512, "pack_length"), ("share_prompts", 4, "max_slots")],
)
def test_other_rows_learn_the_same(tmp_path, field, value, name):
  config = small_config(**{f"grpo.{field}": value})
  with assembly.open_run(config, tmp_path) as run:
    state = run.initial_state()
    played = game.play(run, state, state.code, state.test, usage.Clock())
    assert run.test.rows_multiple == config.grpo.micro_batch_size
    packed = dataclasses.replace(run.test, rows_multiple=1)
    padded = dataclasses.replace(run.test, **{name: 0})
    scored = [
      who._scorer(played.test_batch)(who.full(state.test.params))
      for who in (packed, padded)
    ]
    learned, numbers = zip(
      *(
        # An update takes its state with it.
        who.learn(run.initial_state().test, played.test_batch, (0, 0, 1))
        for who in (packed, padded)
      )
    )
  mask = played.test_batch.completion_mask
  np.testing.assert_allclose(*(each * mask for each in scored), atol=1e-5)
  for ours, theirs in zip(*(jax.tree.leaves(s.params) for s in learned)):
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
  moved = jax.tree.map(lambda a, b: abs(a - b).max(), learned[0], state.test)
  assert max(jax.tree.leaves(moved.params)) > 5e-5
  fill = [each.pop("update/fill") for each in numbers]
  assert fill[0] > fill[1] > 0
  assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-5)


def test_sampler_log_probs_save_a_pass(tmp_path):
  """The same batch and the same lesson, but for rounding."""
  config = small_config()
  with assembly.open_run(config, tmp_path) as run:
    state, passes = run.initial_state(), []

    def prepared(behavior):
      def score(*args):
        passes.append(behavior)
        return run.test.score(*args)

      player = dataclasses.replace(run.test, behavior=behavior, score=score)
      changed = dataclasses.replace(run, test=player)
      return game.play(changed, state, state.code, state.test, usage.Clock())

    both = [prepared(behavior) for behavior in ("trainer", "sampler")]
    learned = [
      run.test.learn(run.initial_state().test, p.test_batch, (0, 0, 1))[1]
      for p in both
    ]
  assert passes == ["trainer", "trainer", "sampler"]
  scored, drawn = (p.test_batch for p in both)
  mask = scored.completion_mask > 0
  gap = scored.behavior_log_probs[mask] - drawn.behavior_log_probs[mask]
  assert 0 < abs(gap).max() < 1e-4
  np.testing.assert_array_equal(scored.ref_log_probs, drawn.ref_log_probs)
  flops = [p.metrics["test/flops/score"] for p in both]
  assert flops[0] == 2 * flops[1] > 0
  assert "test/sampler_gap" in both[0].metrics
  assert "test/sampler_gap" not in both[1].metrics
  assert learned[0] == pytest.approx(learned[1], rel=1e-4, abs=1e-5)


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
