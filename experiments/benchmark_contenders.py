"""The samplers that `benchmark_rollout` compares: job -> calls by name.

Every function imports what it needs: the contenders live in different
environments, and none of them needs the others' packages.
"""

import json
import os
from typing import Any

Rows = list[list[int]]  # sampled tokens of a completion, the stop included


def _batches(job: dict[str, Any]) -> list[list[list[int]]]:
  """The prompts whose samples a contender without refilling draws at once."""
  size = max(1, job["peer_rows"] // job["num_samples"])
  prompts = job["prompts"]
  return [prompts[i : i + size] for i in range(0, len(prompts), size)]


def _left_padded(prompts: list[list[int]], pad_id: int):
  """Equally long rows, and what of them is not padding."""
  length = max(map(len, prompts))
  gaps = [length - len(p) for p in prompts]
  tokens = [[pad_id] * gap + p for gap, p in zip(gaps, prompts)]
  valid = [[0] * gap + [1] * len(p) for gap, p in zip(gaps, prompts)]
  return tokens, valid


def _until_stop(row: list[int], stop_ids: set[int]) -> list[int]:
  """Up to the first stop, which belongs to the row."""
  for index, token in enumerate(row):
    if token in stop_ids:
      return row[: index + 1]
  return row


class _NoText:
  """In a tokenizer's place: no contender's time holds making text."""

  def batch_decode(self, rows, **_):
    return [""] * len(rows)


class _SpacedIds:
  """What tunix takes for a tokenizer, though it is given ids: "5 17 3"."""

  def __init__(self, pad_id: int):
    self._pad_id = pad_id

  def encode(self, text: str, **_) -> list[int]:
    return [int(word) for word in text.split()]

  def decode(self, ids, **_) -> str:
    return ""

  def bos_id(self) -> None:
    return None

  def eos_id(self) -> int:
    return self._pad_id

  def pad_id(self) -> int:
    return self._pad_id


def ours(job: dict[str, Any]):
  """`rollout.make_sampler` on one device; `prefill` stops at one token."""
  import jax

  from codea1_jax import devices, rollout
  from codea1_jax.models import convert

  dtype = job["dtype"]
  model_config, params = convert.load_pretrained(
    job["model"], dtype=dtype, param_dtype=dtype
  )
  policy = rollout.Policy(
    directory=job["model"],
    model_config=model_config,
    tokenizer=_NoText(),
    eos_ids=tuple(job["stop_ids"]),
    pad_id=job["pad_id"],
  )
  parallel = devices.make_parallel("pmap", jax.local_devices()[:1])
  params = parallel.place(params)

  def make(max_new_tokens: int):
    config = rollout.SamplingConfig(
      num_samples=job["num_samples"],
      max_new_tokens=max_new_tokens,
      max_rows=job["max_rows"],
    )
    sampler = rollout.make_sampler(policy, config, parallel)

    def sample(seed: int) -> Rows:
      groups = sampler(params, job["prompts"], (seed,))
      return [list(c.tokens) for group in groups for c in group]

    return sample

  return {"sample": make(job["max_new_tokens"]), "prefill": make(1)}


def transformers(job: dict[str, Any]):
  """`generate` of PyTorch as it comes: not compiled, its default attention."""
  import torch
  from transformers import AutoModelForCausalLM, GenerationConfig

  torch.set_num_threads(os.cpu_count())
  model = AutoModelForCausalLM.from_pretrained(
    job["model"], dtype=getattr(torch, job["dtype"]), local_files_only=True
  ).eval()
  # A model's own settings (top_p 0.8, repetition_penalty) would fill the gaps.
  model.generation_config = GenerationConfig()
  settings = GenerationConfig(
    do_sample=True,
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    repetition_penalty=1.0,
    num_return_sequences=job["num_samples"],
    max_new_tokens=job["max_new_tokens"],
    eos_token_id=job["stop_ids"],
    pad_token_id=job["pad_id"],
  )
  stops = set(job["stop_ids"])

  def sample(seed: int) -> Rows:
    torch.manual_seed(seed)
    rows = []
    for prompts in _batches(job):
      tokens, valid = map(torch.tensor, _left_padded(prompts, job["pad_id"]))
      with torch.inference_mode():
        out = model.generate(
          tokens, attention_mask=valid, generation_config=settings
        )
      rows += out[:, tokens.shape[1] :].tolist()
    return [_until_stop(row, stops) for row in rows]

  return {"sample": sample}


def tunix_config(job: dict[str, Any]):
  """Its config of a Qwen2 directory."""
  import jax.numpy as jnp
  from tunix.models.qwen2 import model as qwen2

  with open(os.path.join(job["model"], "config.json"), encoding="utf-8") as f:
    raw = json.load(f)
  if raw["model_type"] != "qwen2":
    raise ValueError(f"tunix runs here for qwen2 only, not {raw['model_type']}")
  heads = raw["num_attention_heads"]
  return qwen2.ModelConfig(
    num_layers=raw["num_hidden_layers"],
    vocab_size=raw["vocab_size"],
    embed_dim=raw["hidden_size"],
    hidden_dim=raw["intermediate_size"],
    num_heads=heads,
    head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
    num_kv_heads=raw["num_key_value_heads"],
    rope_theta=int(raw["rope_theta"]),
    norm_eps=raw["rms_norm_eps"],
    use_tied_embedding=raw["tie_word_embeddings"],
    dtype=jnp.dtype(job["dtype"]),
    param_dtype=jnp.dtype(job["dtype"]),
  )


def tunix(job: dict[str, Any]):
  """google-tunix's sampler, the weights through its own loader."""
  import jax.numpy as jnp
  from tunix.generate import sampler as tunix_sampler
  from tunix.models.qwen2 import params as loader

  config = tunix_config(job)
  model = loader.create_model_from_safe_tensors(
    job["model"], config, dtype=jnp.dtype(job["dtype"])
  )
  longest, limit = max(map(len, job["prompts"])), job["max_new_tokens"]
  cache = tunix_sampler.CacheConfig(
    cache_size=longest + limit,
    num_layers=config.num_layers,
    num_kv_heads=config.num_kv_heads,
    head_dim=config.head_dim,
  )
  tokenizer = _SpacedIds(job["pad_id"])
  sampler = tunix_sampler.Sampler(model, tokenizer, cache)

  def sample(seed: int) -> Rows:
    rows = []
    for prompts in _batches(job):
      texts = [" ".join(map(str, prompt)) for prompt in prompts]
      out = sampler(
        [text for text in texts for _ in range(job["num_samples"])],
        max_generation_steps=limit,
        max_prompt_length=longest,
        eos_tokens=job["stop_ids"],
        temperature=1.0,
        top_p=1.0,
        seed=seed,
      )
      rows += [row.tolist() for row in out.tokens]
    # It cuts off the stop and does not tell which one it was: a stand-in.
    stop = job["stop_ids"][:1]
    return [row + stop if len(row) < limit else row for row in rows]

  return {"sample": sample}


def ceilings(job: dict[str, Any]):
  """What the machine can do, see benchmark_ceilings."""
  from experiments import benchmark_ceilings

  return {"measure": lambda: benchmark_ceilings.measure(*job["sizes"])}


CONTENDERS = {f.__name__: f for f in (ours, transformers, tunix, ceilings)}
