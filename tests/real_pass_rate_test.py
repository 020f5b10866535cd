"""Greedy pass rate of the real 0.5B on EvalPlus: ours and transformers'.

Needs the real weights, the rows, pyarrow and torch; skips with the reason.
"""

import time

import evalplus_rows
import pytest
import real_qwen

from codea1_jax import rollout

COUNTS = {"humanevalplus": 20, "mbppplus": 40}
MAX_NEW_TOKENS = 512


@pytest.fixture(scope="module")
def rows():
  return {s: evalplus_rows.load(s, count) for s, count in COUNTS.items()}


def test_ground_truths_pass_and_wrong_programs_do_not(rows):
  for source in rows:
    for row in rows[source][:3]:
      assert evalplus_rows.runs(row, evalplus_rows.ground_truth(row))
      name = evalplus_rows.entry_point(row)
      wrong = f"def {name}(*args):\n  return 'wrong'"
      assert not evalplus_rows.passes(row, f"```python\n{wrong}\n```")
      early = f"def {name}(*args):\n  import os\n  os._exit(0)"
      assert not evalplus_rows.passes(row, f"```python\n{early}\n```")
      assert not evalplus_rows.passes(row, "I cannot.")


@pytest.mark.slow
def test_greedy_pass_rate_is_that_of_transformers(rows):
  directory = real_qwen.weights()
  theirs = real_qwen.load_theirs(directory)
  policy, params = rollout.load_policy(directory)
  replicated = real_qwen.one_device().replicate(params)
  del params
  for source, problems in rows.items():
    prompts = rollout.encode_prompts(policy, [r["prompt"] for r in problems])
    begin = time.monotonic()
    ours = real_qwen.greedy(policy, replicated, prompts, MAX_NEW_TOKENS)
    middle = time.monotonic()
    tokens = real_qwen.their_greedy(theirs, policy, prompts, MAX_NEW_TOKENS)
    end = time.monotonic()
    texts = policy.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    mine = [
      evalplus_rows.passes(row, completion.text)
      for row, completion in zip(problems, ours, strict=True)
    ]
    other = [
      evalplus_rows.passes(row, text)
      for row, text in zip(problems, texts, strict=True)
    ]
    same = sum(a.tokens == tuple(b) for a, b in zip(ours, tokens, strict=True))
    print(
      f"\n{source}: ours {sum(mine)}, transformers {sum(other)} of "
      f"{len(problems)}; {same} answers token for token the same; "
      f"{middle - begin:.0f} s and {end - middle:.0f} s"
    )
    assert abs(sum(mine) - sum(other)) <= 1
    # A model that answers at all: seen with transformers 14 of 20, 17 of 40.
    assert sum(mine) >= len(problems) // 4
