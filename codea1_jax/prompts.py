"""Chat messages for the two roles; presets by name (ALGORITHM.md, Prompts)."""

import re
from collections.abc import Sequence

from codea1_jax.anonymize import anonymize as without_hints
from codea1_jax.types import Problem

Messages = list[dict[str, str]]

PRESETS = ("paper", "compact")
VISIBILITIES = ("white_box", "black_box")

_CODE_SYSTEM = (
  "You are a helpful coding assistant who writes correct, complete Python."
)
_CODE_USER = """\
Solve the programming question below.

{question}

The function must have this signature:
{signature_block}

Answer with the complete function, imports included, in one ```python block \
and write nothing else."""

_TEST_SYSTEM = (
  "You are an adversarial software tester: you look for inputs on which a"
  " program departs from what its question asks for."
)
_TEST_USER = """\
Task: write exactly {num_tests} assertion tests for the function \
`{entry_point}`. {target}

Strategy:
- Aim at gaps in the logic, not at what any implementation gets right.
- Prefer boundary values, compound inputs that mix several conditions, and \
inputs that reach rarely taken branches.
- Every answer must be what the question demands, whatever the code returns.
- Do not test the same behavior twice. Only the first {num_tests} tests count.

Question:
{question}

{subject}

Output: one ```python block that holds nothing but lines of the form
assert {entry_point}(arguments) == answer
where arguments and answer are Python literals."""

_TARGET = {
  "white_box": "A test succeeds when the code shown below fails it.",
  "black_box": "A test succeeds when a flawed solution, unseen, fails it.",
}


def code_messages(problem: Problem, *, preset: str = "paper") -> Messages:
  """What the Code LLM is asked for one problem.

  Args:
    problem: the question with its signature.
    preset: "paper" (system line, instructions) or "compact" (question and
      signature only, for policies of a million parameters).

  Returns:
    Messages for the tokenizer's chat template.

  Raises:
    ValueError: for an unknown preset.
  """
  _check("preset", preset, PRESETS)
  if preset == "compact":
    return [_user(f"{problem.question}\n{problem.signature}")]
  request = _CODE_USER.format(
    question=problem.question, signature_block=_fenced(problem.signature)
  )
  return [{"role": "system", "content": _CODE_SYSTEM}, _user(request)]


def test_messages(
  problem: Problem,
  code: str,
  num_tests: int,
  *,
  preset: str = "paper",
  visibility: str = "white_box",
  anonymize: bool = False,
) -> Messages:
  """What the Test LLM is asked for one problem and one code.

  Args:
    problem: the question with its signature.
    code: source of the program under attack; unused in a black box.
    num_tests: K, the tests that count.
    preset: "paper" or "compact", as for `code_messages`.
    visibility: "white_box" shows the code, "black_box" the signature only.
    anonymize: shows the code without names, comments and docstrings; in a
      black box there is nothing to hide.

  Returns:
    Messages for the tokenizer's chat template.

  Raises:
    ValueError: for an unknown preset or visibility.
  """
  _check("preset", preset, PRESETS)
  _check("visibility", visibility, VISIBILITIES)
  white_box = visibility == "white_box"
  if white_box and anonymize:
    code = without_hints(code, problem.entry_point)
  shown = code.strip() if white_box else problem.signature
  if preset == "compact":
    return [_user(f"Break it: {problem.question}\n{shown}")]
  title = "Code under test" if white_box else "Signature"
  request = _TEST_USER.format(
    num_tests=num_tests,
    entry_point=problem.entry_point,
    target=_TARGET[visibility],
    question=problem.question,
    subject=f"{title}:\n{_fenced(shown)}",
  )
  return [{"role": "system", "content": _TEST_SYSTEM}, _user(request)]


# pytest would collect the name above from any test module that imports it.
test_messages.__test__ = False


def _user(content: str) -> dict[str, str]:
  """One user turn."""
  return {"role": "user", "content": content}


def _fenced(source: str) -> str:
  """`source` in a fence longer than any it holds, so it cannot break out."""
  longest = max((len(run) for run in re.findall(r"`+", source)), default=0)
  fence = "`" * max(3, longest + 1)
  return f"{fence}python\n{source}\n{fence}"


def _check(what: str, name: str, known: Sequence[str]) -> None:
  """ValueError that lists what is known."""
  if name not in known:
    raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
