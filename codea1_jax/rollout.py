"""Prompts -> sampled completions, and completions -> arrays for an update.

Lengths are padded up to a multiple of `bucket`, so that a run compiles a few
shapes only. Prompts are padded on the left, completions on the right.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from codea1_jax import sampling
from codea1_jax.devices import Parallel
from codea1_jax.generation import SamplingConfig, make_generate
from codea1_jax.models import convert, text
from codea1_jax.models.config import QwenConfig
from codea1_jax.train_state import UpdateBatch
from codea1_jax.types import Completion

_CUT = "\N{SYMBOL FOR CANCEL} the answer goes on here"


@dataclasses.dataclass(frozen=True)
class Policy:
  """What belongs to a policy and never changes: shape, text, end tokens."""

  directory: pathlib.Path
  model_config: QwenConfig
  tokenizer: Any
  eos_ids: tuple[int, ...]
  pad_id: int


def load_policy(
  directory: str | pathlib.Path,
  *,
  dtype: str = "float32",
  param_dtype: str = "float32",
  shardings: Any = None,
  **compute: Any,
) -> tuple[Policy, Any]:
  """A policy and its parameters from a Hugging Face style directory.

  Args:
    directory: config.json, safetensors, tokenizer.json, chat template.
    dtype: of the computation.
    param_dtype: of the parameters.
    shardings: of the parameters, see `convert.load_pretrained`.
    **compute: `scan_layers`, `remat` of QwenConfig.

  Raises:
    FileNotFoundError, ValueError: one line that names file and tensor.
  """
  model_config, params = convert.load_pretrained(
    directory, dtype=dtype, param_dtype=param_dtype, shardings=shardings
  )
  model_config = dataclasses.replace(model_config, **compute)
  tokenizer = text.load_tokenizer(directory)
  if len(tokenizer) > model_config.vocab_size:
    raise ValueError(
      f"{directory}: the tokenizer has {len(tokenizer)} entries, the model"
      f" vocab_size {model_config.vocab_size}"
    )
  eos_ids = text.eos_token_ids(directory, tokenizer)
  pad_id = tokenizer.pad_token_id
  policy = Policy(
    pathlib.Path(directory),
    model_config,
    tokenizer,
    eos_ids,
    eos_ids[0] if pad_id is None else pad_id,
  )
  return policy, params


def encode_prompts(
  policy: Policy, messages: Sequence[Sequence[dict[str, str]]]
) -> list[list[int]]:
  """Token ids of chats, up to where the assistant's answer starts."""
  texts = policy.tokenizer.apply_chat_template(
    [list(m) for m in messages], tokenize=False, add_generation_prompt=True
  )
  encoded = policy.tokenizer(list(texts), add_special_tokens=False)
  return encoded["input_ids"]


def encode_prefilled(
  policy: Policy, messages: Sequence[Sequence[dict[str, str]]], prefill: str
) -> list[list[int]]:
  """Token ids of chats, up to where the answer goes on after `prefill`.

  Raises:
    ValueError: the chat template shows no answers.
  """
  # A template may strip an answer, but nothing in front of other text.
  answer = {"role": "assistant", "content": f"{prefill}{_CUT}"}
  texts = policy.tokenizer.apply_chat_template(
    [[*m, answer] for m in messages], tokenize=False
  )
  if not all(_CUT in text for text in texts):
    raise ValueError(f"{policy.directory}: its chat template shows no answers")
  texts = [text[: text.index(_CUT)] for text in texts]
  return policy.tokenizer(texts, add_special_tokens=False)["input_ids"]


def bucket_length(longest: int, bucket: int) -> int:
  """The shortest length allowed from `longest` on.

  Multiples of `bucket`, four to a doubling at most: however long texts get, a
  run compiles few shapes, and beyond four buckets less than a quarter of a row
  is padding.
  """
  step = max(bucket, 2 ** (max(longest - 1, 1).bit_length() - 1) // 4)
  step = -(-step // bucket) * bucket
  return max(step, -(-longest // step) * step)


def pad_rows(
  rows: Sequence[Sequence[float]],
  length: int,
  fill: float,
  dtype: Any = np.int32,
  *,
  left: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
  """[B, length] values and a bool mask of what is not padding."""
  values = np.full((len(rows), length), fill, dtype)
  valid = np.zeros((len(rows), length), bool)
  for i, row in enumerate(rows):
    place = slice(length - len(row), length) if left else slice(0, len(row))
    values[i, place] = row
    valid[i, place] = True
  return values, valid


def pack(
  prompts: Sequence[Sequence[int]],
  completions: Sequence[Sequence[int]],
  *,
  pad_id: int,
  bucket: int,
) -> UpdateBatch:
  """[B, P + T] rows for scoring and updating, P and T bucketed."""
  prompt_length = bucket_length(max(map(len, prompts)), bucket)
  length = bucket_length(max(map(len, completions)), bucket)
  left, left_valid = pad_rows(prompts, prompt_length, pad_id, left=True)
  right, right_valid = pad_rows(completions, length, pad_id)
  return UpdateBatch(
    tokens=np.concatenate([left, right], axis=1),
    valid=np.concatenate([left_valid, right_valid], axis=1),
    completion_mask=right_valid.astype(np.float32),
  )


def make_sampler(policy: Policy, config: SamplingConfig, parallel: Parallel):
  """Builds sample(placed params, prompts, seed, limits) -> Completions.

  Sample n of prompt p depends on (seed, p, n) and the prompt alone. The key of
  `seed` is any tuple of integers: (run seed, step, role). `limits` [P] bounds
  the tokens of a prompt's completions further than `max_new_tokens` does; so
  does the length that the model has positions for. Of prompts that come in
  several calls, `first` is how many came before. Returned as lists [P][N].
  """
  generate = make_generate(
    policy.model_config,
    config,
    parallel,
    eos_ids=policy.eos_ids,
    pad_id=policy.pad_id,
  )
  context = policy.model_config.context_length

  def sample(params, prompts, seed: Sequence[int], limits=None, first=0):
    shape = (len(prompts), config.num_samples)
    key = functools.reduce(jax.random.fold_in, seed, jax.random.key(0))
    ids = first * config.num_samples + np.arange(np.prod(shape))
    keys = np.asarray(jax.random.key_data(sampling.row_keys(key, ids)))
    length = bucket_length(max(map(len, prompts)), config.bucket)
    tokens, valid = pad_rows(prompts, length, policy.pad_id, left=True)
    room = np.array([context - len(ids) for ids in prompts])
    if room.min() < 1:
      raise ValueError(
        f"a prompt of {len(prompts[room.argmin()])} tokens leaves no room in"
        f" the model's {context} positions"
      )
    limits = room if limits is None else np.minimum(room, limits)
    output = generate(
      params,
      tokens,
      valid,
      keys.reshape(*shape, -1),
      np.broadcast_to(limits[:, None], shape),
    )
    return _read(policy, output, len(prompts))

  return sample


def _read(policy: Policy, out, prompts: int) -> list[list[Completion]]:
  """Arrays [P, N, T] of the sampler as texts; end tokens are not text."""
  stops = set(policy.eos_ids)
  lengths = out.mask.sum(-1)
  rows = []
  for p in range(prompts):
    samples = []
    for n in range(out.tokens.shape[1]):
      tokens = out.tokens[p, n, : lengths[p, n]].tolist()
      finished = bool(tokens) and tokens[-1] in stops
      samples.append((tokens, finished))
    rows.append(samples)
  texts = policy.tokenizer.batch_decode(
    [t[: len(t) - done] for samples in rows for t, done in samples],
    skip_special_tokens=True,
  )
  texts = iter(texts)
  return [
    [
      Completion(
        next(texts),
        tuple(tokens),
        tuple(out.log_probs[p, n, : len(tokens)].tolist()),
        finished,
      )
      for n, (tokens, finished) in enumerate(samples)
    ]
    for p, samples in enumerate(rows)
  ]
