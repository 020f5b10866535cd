"""The real Qwen2.5-Coder-0.5B-Instruct for tests, here and in transformers."""

import os
import pathlib

import jax
import numpy as np
import pytest

from codea1_jax import rollout
from codea1_jax.devices import Parallel, make_parallel

ROOT = pathlib.Path(__file__).parents[1]
BUILT = ROOT / "build" / "qwen2.5-coder-0.5b"
VARIABLE = "CODEA1_QWEN_DIR"

_SHORT = (
  "Write a Python function that returns the sum of a list.",
  "Write fizzbuzz(n) in Python. Return a list of strings.",
  "What does `x[::-1]` do in Python? One sentence.",
)
_LONG = """\
Review the function below and write it again without its mistakes.

```python
def merge_intervals(intervals):
  merged = []
  for start, end in sorted(intervals):
    if merged and start < merged[-1][1]:
      merged[-1][1] = end
    else:
      merged.append((start, end))
  return merged
```

The function receives a list of pairs of integers, each the first and the last \
second of a recording. Pairs may overlap, may touch, may lie inside one \
another, and may come in any order; the same pair may come twice. It returns \
the smallest list of pairs that covers the same seconds, in ascending order. \
Two pairs that touch, such as (1, 3) and (3, 5), become one. An empty list \
gives an empty list. The input must not be changed, and a pair whose end lies \
before its start is an error: raise ValueError that names the pair. Do not \
use any library. Examples: merge_intervals([(1, 3), (2, 6)]) == [(1, 6)]; \
merge_intervals([(5, 8), (1, 3)]) == [(1, 3), (5, 8)]; \
merge_intervals([(1, 9), (2, 3)]) == [(1, 9)]."""
_MIDDLE = (
  "Write a Python function `is_anagram(a, b)` that ignores case, spaces and "
  "punctuation. Explain its complexity in one sentence.",
  "Implement a class Stack with push, pop, peek and __len__. pop and peek of "
  "an empty stack raise IndexError. Then show how to reverse a string with it.",
  "Here is a function:\n\ndef f(n):\n  return 1 if n < 2 else n * f(n - 1)\n\n"
  "Write five assert statements that test it, edge cases first, then say for "
  "which arguments it never returns and how you would repair that.",
)


def weights() -> pathlib.Path:
  """Where the weights are; skips the test where they are not."""
  directory = pathlib.Path(os.environ.get(VARIABLE) or BUILT)
  if not (directory / "config.json").is_file():
    pytest.skip(
      f"no real weights: {directory} has no config.json; .ci/run builds them, "
      f"or {VARIABLE} says where they are"
    )
  return directory


def one_device() -> Parallel:
  """The first device: parity is a matter of numbers, not of devices."""
  return make_parallel("pmap", jax.devices()[:1])


def prompts(policy: rollout.Policy) -> list[list[int]]:
  """Token ids of 8 chats of different length, short ones first.

  The shortest, about 20 tokens, has no system line of its own.
  """
  template = policy.tokenizer.apply_chat_template
  bare = template(
    [{"role": "system", "content": "Code."}, {"role": "user", "content": "Hi"}],
    tokenize=False,
    add_generation_prompt=True,
  )
  texts = [*_SHORT, *_MIDDLE, _LONG]
  chats = [[{"role": "user", "content": text}] for text in texts]
  rows = rollout.encode_prompts(policy, chats)
  rows.append(policy.tokenizer(bare, add_special_tokens=False)["input_ids"])
  return sorted(rows, key=len)


def greedy(policy, replicated, rows, max_new_tokens, **settings):
  """Our greedy completion of each row of token ids."""
  config = rollout.SamplingConfig(
    num_samples=1,
    max_new_tokens=max_new_tokens,
    temperature=0.0,
    **settings,
  )
  sample = rollout.make_sampler(policy, config, one_device())
  return [samples[0] for samples in sample(replicated, rows, (0,))]


def load_theirs(directory, dtype="float32"):
  """transformers' model; skips where torch is missing."""
  torch = pytest.importorskip("torch", reason="parity needs torch")
  import transformers

  model = transformers.AutoModelForCausalLM.from_pretrained(
    directory, dtype=getattr(torch, dtype)
  )
  return model.eval()


def their_logits(model, row) -> np.ndarray:
  """float32 logits [T, V] of one row of token ids, alone."""
  import torch

  with torch.inference_mode():
    return model(torch.tensor([list(row)])).logits[0].float().numpy()


def their_greedy(model, policy, rows, max_new_tokens) -> list[list[int]]:
  """transformers' greedy tokens of rows in one batch, end token included."""
  import torch

  length = max(map(len, rows))
  tokens, valid = rollout.pad_rows(rows, length, policy.pad_id, left=True)
  with torch.inference_mode():
    output = model.generate(
      input_ids=torch.tensor(tokens, dtype=torch.long),
      attention_mask=torch.tensor(valid, dtype=torch.long),
      max_new_tokens=max_new_tokens,
      do_sample=False,
      repetition_penalty=1.0,  # the model's own file asks for another
      temperature=None,
      top_p=None,
      top_k=None,
      eos_token_id=list(policy.eos_ids),
      pad_token_id=policy.pad_id,
    )
  return [_until_end(row[length:], policy) for row in output.tolist()]


def _until_end(tokens, policy):
  ends = [i for i, token in enumerate(tokens) if token in policy.eos_ids]
  return tokens[: ends[0] + 1] if ends else tokens
