"""Every shipped config builds, and its numbers fit together."""

import pytest

from codea1_jax import assembly, checks, optimizer
from configs import ablations, qwen2_5_coder, tiny

SIZES = ("0.5b", "1.5b", "3b", "7b")
ENDS = ("", ",lora", ",runlocal", ",lora,runlocal")
CODERS = [f"{size}{end}" for size in SIZES for end in ENDS]


def check(config):
  checks.check_values(config)
  for role in ("code", "test"):
    settings = config[role].optimizer
    updates = assembly._updates_a_step(config, role) * config.num_steps
    schedule = optimizer.make_schedule(
      learning_rate=settings.learning_rate,
      warmup_steps=settings.warmup_steps,
      total_steps=updates,
      schedule=settings.schedule,
    )
    rate = float(schedule(updates // 2))
    assert 0 < rate <= 1.001 * settings.learning_rate


def test_the_default():
  check(tiny.get_config())


@pytest.mark.parametrize("name", ablations.CHANGES)
def test_ablations_are_documented_and_valid(name):
  config = ablations.get_config(name)
  check(config)
  if name.startswith("alpha"):
    name = "alpha_0 ... alpha_1"
  assert f"\n  {name} " in ablations.__doc__


@pytest.mark.parametrize("arg", CODERS)
def test_sizes_of_the_coder(arg):
  config = qwen2_5_coder.get_config(arg)
  check(config)
  assert config.code.model.endswith(f"-{arg.split(',')[0].upper()}-Instruct")


def test_the_papers_run():
  config = qwen2_5_coder.get_config("7b")
  rollout = config.rollout
  sizes = rollout.questions, rollout.codes, rollout.suites, rollout.tests
  assert sizes == (256, 8, 8, 8)
  assert config.code.optimizer.learning_rate == 1e-6
  assert config.test.max_prompt_tokens == 8192


@pytest.mark.parametrize(
  "arg", ["2b", "7b,remote", "", "7b,runlocal,lora", "7b,local"]
)
def test_an_unknown_argument_is_named(arg):
  with pytest.raises(ValueError, match=f"qwen2_5_coder.py:{arg}, expected"):
    qwen2_5_coder.get_config(arg)
