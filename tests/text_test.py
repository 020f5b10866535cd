"""Tokenizers, end tokens and sampling defaults of model directories."""

import json
import pathlib

import jax
import pytest

from codea1_jax.models import convert, qwen, text

CONFIG = qwen.QwenConfig(
  vocab_size=5,
  hidden_size=4,
  intermediate_size=4,
  num_layers=1,
  num_heads=1,
  num_kv_heads=1,
  head_dim=2,
)


def random_params(config):
  return qwen.init_params(config, jax.random.key(0))


TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def write_tokenizer(directory: pathlib.Path, **extra):
  """Three words and an end token, in the files of a real model."""
  import tokenizers

  vocabulary = {"<end>": 0, "<pad>": 1, "a": 2, "b": 3, "<unk>": 4}
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordLevel(vocabulary, unk_token="<unk>")
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  directory.mkdir(exist_ok=True)
  tokenizer.save(str(directory / "tokenizer.json"))
  settings = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<end>",
    "pad_token": "<pad>",
  }
  (directory / "tokenizer_config.json").write_text(json.dumps(settings | extra))


def test_the_tokenizer_travels_with_the_model(tmp_path):
  write_tokenizer(tmp_path / "old", chat_template=TEMPLATE)
  new = tmp_path / "new"
  params = random_params(CONFIG)
  convert.save_pretrained(new, CONFIG, params, tokenizer_from=tmp_path / "old")
  tokenizer = text.load_tokenizer(new)
  chat = tokenizer.apply_chat_template(
    [{"role": "user", "content": "b a"}], tokenize=False
  )
  assert tokenizer(chat)["input_ids"] == [3, 2]
  assert text.eos_token_ids(new, tokenizer) == (0,)
  generation = json.loads((new / "generation_config.json").read_text())
  assert generation == {"eos_token_id": 0, "pad_token_id": 1}


@pytest.mark.parametrize(("ids", "want"), [(3, (0, 3)), ([3, 2], (0, 2, 3))])
def test_end_tokens_of_both_sources_are_joined(tmp_path, ids, want):
  write_tokenizer(tmp_path, chat_template=TEMPLATE)
  (tmp_path / "generation_config.json").write_text(
    json.dumps({"eos_token_id": ids, "temperature": 0.7})
  )
  tokenizer = text.load_tokenizer(tmp_path)
  assert text.eos_token_ids(tmp_path, tokenizer) == want
  params, new = random_params(CONFIG), tmp_path / "new"
  convert.save_pretrained(new, CONFIG, params, tokenizer_from=tmp_path)
  generation = json.loads((new / "generation_config.json").read_text())
  assert generation == {"eos_token_id": ids, "temperature": 0.7}
  raw = json.loads((new / "config.json").read_text())
  assert raw["eos_token_id"] == ids and "temperature" not in raw


def test_tokenizer_errors_are_named(tmp_path):
  with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
    text.load_tokenizer(tmp_path / "nowhere")
  with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
    text.load_tokenizer(tmp_path)
  write_tokenizer(tmp_path)
  with pytest.raises(ValueError, match="has no chat template"):
    text.load_tokenizer(tmp_path)
  (tmp_path / "tokenizer.json").write_text("{}")
  with pytest.raises(ValueError, match="cannot load the tokenizer of"):
    text.load_tokenizer(tmp_path)


def test_a_model_without_any_end_token_is_an_error(tmp_path):
  class Endless:
    eos_token_id = None

  with pytest.raises(ValueError, match="no end token"):
    text.eos_token_ids(tmp_path, Endless())
