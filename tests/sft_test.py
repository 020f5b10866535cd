"""Supervised training: reproducible bytes, a falling loss, going on."""

import importlib
import math

import pytest

from codea1_jax import rollout, sft


def small_config(**changes):
  config = importlib.import_module("configs.tiny_sft").get_config("both")
  config.update_from_flattened_dict(
    {
      "num_steps": 8,
      "batch_size": 16,
      "micro_batch_size": 16,
      "bucket": 128,
      "model.num_layers": 1,
      "optimizer.warmup_steps": 1,
      "optimizer.learning_rate": 0.01,
    }
  )
  config.update_from_flattened_dict(changes)
  return config


def test_it_learns_and_its_directory_loads(tmp_path):
  loss = sft.train_sft(small_config(), tmp_path / "model")
  policy, _ = rollout.load_policy(tmp_path / "model")
  assert policy.model_config.num_layers == 1
  assert loss < math.log(policy.model_config.vocab_size) - 1.0


@pytest.mark.slow
def test_same_bytes_and_going_on(tmp_path):
  first, again, more = (tmp_path / n for n in ("first", "again", "more"))
  loss = sft.train_sft(small_config(), first)
  assert sft.train_sft(small_config(), again) == loss
  for name in ("model.safetensors", "tokenizer.json", "config.json"):
    assert (first / name).read_bytes() == (again / name).read_bytes()
  config = small_config(init_from=str(first), seed=1)
  assert sft.train_sft(config, more) < loss - 0.5
  tokenizers = [(d / "tokenizer.json").read_bytes() for d in (first, more)]
  assert tokenizers[0] == tokenizers[1]


def test_roles_alternate_in_both():
  config = small_config()
  shown = [sft.make_example(config, i).completion for i in range(20)]
  asserts = ["assert solve(" in text for text in shown]
  assert asserts == [False, True] * 10


def test_unknown_role():
  with pytest.raises(ValueError, match="'judge' is not one of"):
    importlib.import_module("configs.tiny_sft").get_config("judge")
