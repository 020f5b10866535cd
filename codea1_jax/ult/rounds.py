"""The chat of a Test LLM about one function: a test a round."""

from collections.abc import Callable, Sequence
from typing import Any

from codea1_jax import rollout
from codea1_jax.ult.rows import Function

ROUNDS = 5
HISTORY_TOKENS = 16_384  # of a chat; a longer one keeps its last exchange only

_SYSTEM = (
  "You write unit tests in Python. Answer with one test function in a ```python"
  " block and with nothing else."
)
_FIRST = """\
Write one test for the function `{name}` shown below: one call with one input, \
and one assert on what it returns.

Code:
```python
{code}
```

What `{name}` does:
{description}

Answer with a test of this form, and stop after its assert:
```python
def test_{name}():
    assert {name}(...) == ...
```"""
_NEXT = (
  "Write one more test for the same function, of the same form. It must differ"
  " from all tests above and should reach other statements and branches."
)

Answer = dict[str, Any]  # "text"; of a model also "tokens" and "finished"
# ask(functions, [P][r] texts so far, place of the first function) -> [P]
Ask = Callable[[Sequence[Function], Sequence[Sequence[str]], int], list[Answer]]


def chat(function: Function, texts: Sequence[str]) -> list[dict[str, str]]:
  """The messages that the next test answers, after those of `texts`."""
  first = _FIRST.format(
    name=function.name,
    code=function.code.strip("\n"),
    description=function.description.strip(),
  )
  messages = [_message("system", _SYSTEM), _message("user", first)]
  for text in texts:
    messages += [_message("assistant", text), _message("user", _NEXT)]
  return messages


def shortened(
  messages: Sequence[dict[str, str]], tokens: int
) -> list[dict[str, str]]:
  """The chat as it is sent: past `HISTORY_TOKENS` only its system line, last
  answer and last request, as the published program does."""
  if tokens <= HISTORY_TOKENS or len(messages) <= 2:
    return list(messages)
  return [messages[0], *messages[-2:]]


def make_ask(
  sample: Callable,
  policy: rollout.Policy,
  seed: int,
  max_prompt_tokens: int,
) -> Ask:
  """Asks a policy for each function's next test, all in one batch.

  An answer depends on the seed, the round and the function's place in the
  file; not on what else is asked. A prompt keeps its last tokens.
  """

  def ask(functions, texts, first):
    chats = [chat(f, said) for f, said in zip(functions, texts)]
    whole = ["\n".join(m["content"] for m in messages) for messages in chats]
    sizes = [
      len(ids)
      for ids in policy.tokenizer(whole, add_special_tokens=False)["input_ids"]
    ]
    chats = [shortened(c, tokens) for c, tokens in zip(chats, sizes)]
    prompts = [
      ids[-max_prompt_tokens:] for ids in rollout.encode_prompts(policy, chats)
    ]
    answers = sample(prompts, (seed, len(texts[0])), first=first)
    return [
      {"text": c.text, "tokens": len(c.tokens), "finished": c.finished}
      for (c,) in answers
    ]

  return ask


def _message(role: str, content: str) -> dict[str, str]:
  return {"role": role, "content": content}
