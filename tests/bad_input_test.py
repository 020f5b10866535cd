"""Bad input: one clear line and exit code 2, before any long work."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import ml_dtypes  # noqa: F401  makes numpy know bfloat16
import numpy as np
import pytest
import safetensors.numpy

from codea1_jax import checks
from codea1_jax.tiny import DATA
from configs import tiny

ROOT = pathlib.Path(__file__).parents[1]


def run(tmp_path, *arguments, config="configs/tiny.py"):
  """The command as a user types it: (exit code, standard error's lines)."""
  done = subprocess.run(
    [
      sys.executable,
      "-m",
      "experiments.train",
      f"--config={config}",
      f"--workdir={tmp_path / 'run'}",
      *arguments,
    ],
    cwd=ROOT,
    env=os.environ | {"XLA_FLAGS": ""},
    capture_output=True,
    text=True,
    timeout=120,
  )
  return done.returncode, done.stderr.strip().split("\n")


def expect(result, *words):
  code, lines = result
  assert code == 2, lines
  assert len(lines) == 1, lines
  for word in words:
    assert word in lines[0], lines


def test_unknown_field(tmp_path):
  expect(run(tmp_path, "--config.rollout.question=3"), "rollout.question")


def test_wrong_type(tmp_path):
  expect(run(tmp_path, "--config.num_steps=many"), "num_steps", "many")


def test_unknown_name(tmp_path):
  expect(run(tmp_path, "--config.rewards.preset=papers"), "papers", "corrected")


@pytest.mark.parametrize(
  "field, value",
  [
    ("evaluation.samples", "0"),
    ("code.minibatch_size", "-4"),
    ("rollout.temperature", "nan"),
    ("seed", "-1"),
    ("test.optimizer.learning_rate", "-1.0"),
  ],
)
def test_out_of_range(tmp_path, field, value):
  expect(run(tmp_path, f"--config.{field}={value}"), field, value, "[")


@pytest.mark.parametrize(
  "changes, words",
  [
    ({"book.refresh": 2}, "book.max_archive = 0"),
    ({"grpo.importance_cap": 2.0, "rollout.temperature": 0.7}, "at 0.7"),
    ({"selection.refill": 1}, "drop_zero_variance"),
    ({"grpo.behavior": "sampler", "rollout.temperature": 0.7}, "at 0.7"),
    ({"grpo.behavior": "sampler", "grpo.importance_cap": 2.0}, "must be 0"),
    ({"grpo.behavior": "player"}, "trainer, sampler"),
    ({"grpo.pack_length": 512, "grpo.share_prompts": 2}, "must be 0"),
    ({"grpo.ratio": "word"}, "token, sequence"),
    ({"method": "sft", "curriculum.enabled": True}, "method sft"),
    ({"method": "golden_tests", "quality.enabled": True}, "quality filters"),
    ({"quality.enabled": True, "book.enabled": False}, "book.enabled"),
    (
      {
        "lora.rank": 2,
        "lora.targets": (),
        "test.model": "shipped:code_llm",
      },
      "lora targets",
    ),
    ({"grpo.entropy_coef": float("nan")}, "entropy_coef"),
    ({"quality.rules": ("dull",)}, "trivial, duplicate, stale"),
    ({"guards.action": "shout"}, "warn, stop, off"),
    ({"guards.max_zero_variance": 1.5}, "max_zero_variance is 1.5"),
    ({"guards.steps": 0}, "guards.steps is 0"),
    ({"profile_steps": (3,)}, r"profile_steps is \(3,\), must be \(first, c"),
    ({"profile_steps": (3, -1)}, "must be .first, count"),
  ],
)
def test_fields_that_do_not_go_together(changes, words):
  config = tiny.get_config()
  config.update_from_flattened_dict(changes)
  with pytest.raises(ValueError, match=words):
    checks.check_values(config)


def test_config_file_that_does_not_parse(tmp_path):
  path = tmp_path / "broken.py"
  path.write_text("def get_config(:\n")
  code, lines = run(tmp_path, config=path)
  assert code == 2 and len(lines) == 1, lines


def test_a_mistake_does_not_claim_the_workdir(tmp_path):
  expect(run(tmp_path, "--config.code.model=no/such/model"), "no/such/model")
  assert not (tmp_path / "run" / "config.json").exists()


def test_problem_without_golden_tests(tmp_path):
  path = _problem_file(tmp_path, golden_tests=[])
  result = run(tmp_path, f"--config.heldout_problems={path}")
  expect(result, "train/list/001", "golden tests")


def test_missing_config_file(tmp_path):
  expect(run(tmp_path, config="configs/none.py"), "configs/none.py")


def test_prompts_that_fill_the_context(tmp_path):
  result = run(tmp_path, "--config.test.max_prompt_tokens=32768")
  expect(result, "test.max_prompt_tokens is 32768", "32768 positions")


def test_unknown_remat(tmp_path):
  result = run(tmp_path, "--config.compute.remat=some")
  expect(result, "compute.remat is 'some'", "dots_no_batch")


def test_missing_model_directory(tmp_path):
  expect(run(tmp_path, "--config.code.model=no/such/model"), "no/such/model")


def _tensors(tmp_path):
  model = tmp_path / "model"
  shutil.copytree(DATA / "test_llm", model)
  path = model / "model.safetensors"
  return model, path, safetensors.numpy.load_file(path)


def test_missing_tensor(tmp_path):
  model, path, tensors = _tensors(tmp_path)
  del tensors["model.norm.weight"]
  safetensors.numpy.save_file(tensors, path)
  result = run(tmp_path, f"--config.test.model={model}")
  expect(result, str(model), "model.norm.weight")


def test_wrong_shape(tmp_path):
  model, path, tensors = _tensors(tmp_path)
  tensors["model.norm.weight"] = np.ones(7, np.float32)
  safetensors.numpy.save_file(tensors, path)
  result = run(tmp_path, f"--config.test.model={model}")
  expect(result, "model.norm.weight", "(7,)", "(128,)")


def _problem_file(tmp_path, **changes):
  """The first two shipped problems, the second with changed fields."""
  lines = (DATA / "train.jsonl").read_text().split("\n")[:2]
  row = json.loads(lines[1]) | changes
  path = tmp_path / "problems.jsonl"
  path.write_text("\n".join([lines[0], json.dumps(row)]) + "\n")
  return path


def test_malformed_row(tmp_path):
  path = _problem_file(tmp_path, entry_point=3)
  result = run(tmp_path, f"--config.train_problems={path}")
  expect(result, f"{path}:2", "entry_point")


def test_ground_truth_that_fails_its_own_tests(tmp_path):
  golden = ["assert solve([1]) == 'never'"]
  path = _problem_file(tmp_path, golden_tests=golden)
  result = run(
    tmp_path,
    f"--config.train_problems={path}",
    "--config.rollout.questions=1",
  )
  expect(result, "train/list/001", golden[0])


def test_workdir_of_another_config(tmp_path):
  workdir = tmp_path / "run"
  workdir.mkdir()
  (workdir / "config.json").write_text('{"num_steps": 7}')
  expect(run(tmp_path), str(workdir), "num_steps: 7 there, ")
