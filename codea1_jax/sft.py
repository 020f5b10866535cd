"""Supervised fine-tuning of a small policy on the corpus of `tiny/`."""

import json
import pathlib
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import tqdm

from codea1_jax import devices, losses, rollout, train_state, update
from codea1_jax import optimizer as optimizers
from codea1_jax.models import convert, hub, qwen, text
from codea1_jax.models.config import QwenConfig
from codea1_jax.tiny import corpus, tokenizer

_TOKENIZER_EXAMPLES = 4000
_SORTED_BATCHES = 8  # batches of like length are cut from this many


def make_example(config: Any, index: int) -> corpus.Example:
  """Example `index` of a role; a pure function of the config's seed."""
  role = ("code", "test")[index % 2] if config.role == "both" else config.role
  share = config.fault_share[role]
  if role == "code":
    return corpus.code_example(index, config.seed, share)
  return corpus.test_example(index, config.seed, share, config.num_tests)


def train_tokenizer(config: Any, directory: pathlib.Path) -> None:
  """Both roles' texts in one tokenizer, the same for both policies."""
  texts = []
  for index in range(_TOKENIZER_EXAMPLES):
    for example in (
      corpus.code_example(index, config.seed, 0.3),
      corpus.test_example(index, config.seed, 0.3, config.num_tests),
    ):
      texts += [m["content"] for m in example.messages] + [example.completion]
  tokenizer.train(texts, config.model.vocab_size, directory)


def batches(
  config: Any, policy: rollout.Policy
) -> Iterator[train_state.UpdateBatch]:
  """Endless batches, rows of like length together, order shuffled."""
  end = policy.tokenizer.convert_tokens_to_ids(tokenizer.END)
  size = config.batch_size * _SORTED_BATCHES
  start = 0
  while True:
    examples = [make_example(config, start + i) for i in range(size)]
    prompts = rollout.encode_prompts(policy, [e.messages for e in examples])
    texts = policy.tokenizer([e.completion for e in examples])["input_ids"]
    rows = sorted(
      zip(prompts, ([*t, end] for t in texts)),
      key=lambda row: (len(row[1]) // config.bucket, len(row[0])),
    )
    cuts = list(range(0, size, config.batch_size))
    random.Random(f"{config.seed}/{start}").shuffle(cuts)
    for cut in cuts:
      yield rollout.pack(
        *zip(*rows[cut : cut + config.batch_size]),
        pad_id=policy.pad_id,
        bucket=config.bucket,
      )
    start += size


def _start(config: Any, out: pathlib.Path) -> tuple[QwenConfig, Any]:
  """Random parameters and a new tokenizer, or those of `init_from`."""
  if not config.init_from:
    train_tokenizer(config, out)
    model_config = QwenConfig(**config.model.to_dict())
    key = jax.random.key(config.seed)
    return model_config, qwen.init_params(model_config, key)
  source = hub.resolve_model(config.init_from)
  model_config, params = convert.load_pretrained(source)
  convert.save_pretrained(out, model_config, params, tokenizer_from=source)
  return model_config, params


def train_sft(config: Any, out: str | pathlib.Path) -> float:
  """Trains one role's policy from scratch and writes its model directory.

  Args:
    config: see configs/tiny_sft.py.
    out: directory for the Hugging Face style model.

  Returns:
    The mean loss of the last hundred steps, nats a token.
  """
  out = pathlib.Path(out)
  model_config, params = _start(config, out)
  tokens = text.load_tokenizer(out)
  eos_ids = text.eos_token_ids(out, tokens)
  policy = rollout.Policy(out, model_config, tokens, eos_ids, 0)
  parallel = devices.make_parallel("pmap")
  optimizer = optimizers.make_optimizer(
    total_steps=config.num_steps, **config.optimizer.to_dict()
  )
  state = parallel.place(train_state.create_policy_state(params, optimizer))
  step_fn = update.make_update(
    losses.sft_loss(model_config, chunk_size=None),
    optimizer,
    parallel,
    micro_batch_size=config.micro_batch_size,
  )
  recent, started = [], time.monotonic()
  progress = tqdm.tqdm(
    zip(range(config.num_steps), batches(config, policy)),
    total=config.num_steps,
    mininterval=5,
    file=sys.stderr,
  )
  for _, batch in progress:
    state, metrics = step_fn(state, batch)
    recent = [*recent[-99:], metrics["loss"]]
    progress.set_postfix_str(
      f"loss {sum(recent) / len(recent):.3f}", refresh=False
    )
  params = parallel.fetch(state.params)
  convert.save_pretrained(out, model_config, params, tokenizer_from=out)
  mean_loss = sum(recent) / len(recent)
  summary = {"loss": mean_loss, "seconds": time.monotonic() - started}
  print(json.dumps({"role": config.role, **summary}))
  return mean_loss
