"""What the contenders of `benchmark_rollout` are asked to do, and the models
of random weights."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from codea1_jax import problems, prompts
from codea1_jax.models import convert, qwen, text
from codea1_jax.models.config import QwenConfig, config_from_hf
from codea1_jax.tiny import DATA
from experiments import benchmark_ceilings

HAZARD = 64  # one token of so many stops


@dataclasses.dataclass(frozen=True)
class Size:
  """A model of random weights and its default number of prompts."""

  config: QwenConfig
  prompts: int


SIZES = {
  "tiny": Size(QwenConfig(128, 32, 64, 1, 2, 1, 16), 1),  # for the test
  "A": Size(QwenConfig(512, 256, 704, 4, 8, 2, 32), 64),
  "B": Size(QwenConfig(8192, 576, 1536, 12, 9, 3, 64), 16),
}


@dataclasses.dataclass(frozen=True)
class Job:
  """What every contender is asked; `dtype` is added for each."""

  model: str
  prompts: list[list[int]]
  stop_ids: list[int]
  pad_id: int
  num_samples: int
  max_new_tokens: int
  max_rows: int  # in our decode loop at once
  peer_rows: int  # in a batch of the others, which do not refill


@dataclasses.dataclass(frozen=True)
class Setting:
  """The flags that shape a job."""

  num_samples: int = 8
  max_new_tokens: int = 128
  max_rows: int = 128
  peer_rows: int = 512
  prompts: int | None = None
  prompt_tokens: int = 64


def random_model(
  directory: str, config: QwenConfig
) -> tuple[QwenConfig, qwen.Params]:
  """Writes random weights to the directory, and returns them.

  The head is apart from the embedding and wide enough for logits of standard
  deviation 1: no token is favoured.
  """
  config = dataclasses.replace(config, tie_word_embeddings=False)
  params = dict(qwen.init_params(config, jax.random.key(0)))
  head = np.asarray(params["head"])
  params["head"] = head / (head.std() * config.hidden_size**0.5)
  convert.save_pretrained(directory, config, params, dtype="float32")
  return config, params


def random_job(directory: str, size: Size, setting: Setting) -> Job:
  """Random weights and prompts without stops, which are a 64th of all tokens
  and equally likely."""
  config, _ = random_model(directory, size.config)
  rng = np.random.default_rng(0)
  shape = (setting.prompts or size.prompts, setting.prompt_tokens)
  stop_ids = list(range(config.vocab_size // HAZARD))
  return Job(
    model=directory,
    prompts=rng.integers(len(stop_ids), config.vocab_size, shape).tolist(),
    stop_ids=stop_ids,
    pad_id=0,  # a stop: no prompt has it, and no row goes on after it
    num_samples=setting.num_samples,
    max_new_tokens=setting.max_new_tokens,
    max_rows=setting.max_rows,
    peer_rows=setting.peer_rows,
  )


def model_job(directory: str, setting: Setting) -> Job:
  """The first shipped problems as the model's chats, its own stop tokens."""
  tokenizer = text.load_tokenizer(directory)
  rows = problems.load_problems(DATA / "train.jsonl")[: setting.prompts or 4]
  texts = [
    tokenizer.apply_chat_template(
      prompts.code_messages(row), tokenize=False, add_generation_prompt=True
    )
    for row in rows
  ]
  stop_ids = text.eos_token_ids(directory, tokenizer)
  pad_id = tokenizer.pad_token_id
  return Job(
    model=directory,
    prompts=tokenizer(texts, add_special_tokens=False)["input_ids"],
    stop_ids=list(stop_ids),
    pad_id=stop_ids[0] if pad_id is None else pad_id,
    num_samples=setting.num_samples,
    max_new_tokens=setting.max_new_tokens,
    max_rows=setting.max_rows,
    peer_rows=setting.peer_rows,
  )


def check_rows(job: Job, rows: Sequence[Sequence[int]]) -> None:
  """Every row ends at its first stop or at the limit.

  Raises:
    ValueError: names the row that does not.
  """
  expected = len(job.prompts) * job.num_samples
  if len(rows) != expected:
    raise ValueError(f"{len(rows)} rows, expected {expected}")
  stops, limit = set(job.stop_ids), job.max_new_tokens
  for index, row in enumerate(rows):
    at = next((i for i, t in enumerate(row) if t in stops), None)
    if len(row) != (limit if at is None else at + 1) or len(row) > limit:
      raise ValueError(
        f"row {index} has {len(row)} tokens, its first stop is at {at}, the"
        f" limit is {limit}"
      )


def describe_model(config: QwenConfig) -> str:
  return (
    f"vocab {config.vocab_size}, hidden {config.hidden_size},"
    f" {config.num_layers} layers, {config.num_heads} heads of"
    f" {config.head_dim}, {config.num_kv_heads} kv heads, mlp"
    f" {config.intermediate_size}"
  )


def read_config(directory: str) -> QwenConfig:
  text = pathlib.Path(directory, "config.json").read_text(encoding="utf-8")
  return config_from_hf(json.loads(text))


def read_sizes(job: Job) -> list[int]:
  """Bytes of the arrays that stand for the weights and the full loop's cache.

  A float32 loop's, at half of the limit; from 4 MiB (less would measure the
  call) to 1 GiB.
  """
  config = read_config(job.model)
  rows = min(job.max_rows, len(job.prompts) * job.num_samples)
  cache = benchmark_ceilings.kv_elements(config) * rows * job.max_new_tokens
  sizes = 4 * benchmark_ceilings.matrix_parameters(config), 2 * cache
  return [min(2**30, max(2**22, size)) for size in sizes]
