"""Chat messages for the two roles."""

import pytest

from codea1_jax import prompts
from codea1_jax.types import Problem

PROBLEM = Problem(
  id="q",
  question="Return {the} larger %s.",
  signature="def larger(a, b):",
  entry_point="larger",
  ground_truth="def larger(a, b):\n  return max(a, b)",
)
CODE = "\ndef larger(a, b):\n  return a  # {bug}\n"


def test_compact_wording_is_exact():
  code = prompts.code_messages(PROBLEM, preset="compact")
  assert code == [
    {"role": "user", "content": "Return {the} larger %s.\ndef larger(a, b):"}
  ]
  white = prompts.test_messages(PROBLEM, CODE, 8, preset="compact")
  assert white == [
    {
      "role": "user",
      "content": "Break it: Return {the} larger %s.\n"
      "def larger(a, b):\n  return a  # {bug}",
    }
  ]
  black = prompts.test_messages(
    PROBLEM, CODE, 8, preset="compact", visibility="black_box"
  )
  assert black == [
    {
      "role": "user",
      "content": "Break it: Return {the} larger %s.\ndef larger(a, b):",
    }
  ]


def test_paper_code_prompt_holds_its_parts():
  system, user = prompts.code_messages(PROBLEM)
  assert (system["role"], user["role"]) == ("system", "user")
  for part in (PROBLEM.question, PROBLEM.signature, "```python"):
    assert part in user["content"]


def test_paper_test_prompt_holds_its_parts_in_order():
  system, user = prompts.test_messages(PROBLEM, CODE, 5)
  assert (system["role"], user["role"]) == ("system", "user")
  parts = [
    "exactly 5 assertion tests",
    "boundary",
    "Only the first 5",
    PROBLEM.question,
    f"```python\n{CODE.strip()}\n```",
    "assert larger(arguments) == answer",
  ]
  places = [user["content"].index(part) for part in parts]
  assert places == sorted(places)


def test_a_black_box_never_sees_the_code():
  for preset in prompts.PRESETS:
    one, other = (
      prompts.test_messages(
        PROBLEM, code, 5, preset=preset, visibility="black_box"
      )
      for code in (CODE, "something else")
    )
    assert one == other
    assert PROBLEM.signature in one[-1]["content"]


@pytest.mark.parametrize("preset", prompts.PRESETS)
def test_anonymized_code_has_no_hints(preset):
  plain, hidden, black = (
    prompts.test_messages(PROBLEM, CODE, 5, preset=preset, **how)[-1]["content"]
    for how in (
      {},
      {"anonymize": True},
      {"anonymize": True, "visibility": "black_box"},
    )
  )
  new = "def larger(v0, v1):\n    return v0"
  assert hidden == plain.replace(CODE.strip(), new)
  assert hidden != plain
  assert (
    black
    == (
      prompts.test_messages(
        PROBLEM, CODE, 5, preset=preset, visibility="black_box"
      )[-1]["content"]
    )
  )


def test_code_cannot_leave_its_fence():
  _, user = prompts.test_messages(PROBLEM, "x = '''\n````\n'''", 5)
  assert "`````python\nx = '''\n````\n'''\n`````\n" in user["content"]


def test_unknown_names_are_refused_with_the_known_ones():
  with pytest.raises(ValueError, match="'papper'; known: paper, compact"):
    prompts.code_messages(PROBLEM, preset="papper")
  with pytest.raises(ValueError, match="preset 'x'; known: paper, compact"):
    prompts.test_messages(PROBLEM, CODE, 5, preset="x")
  with pytest.raises(ValueError, match="'grey'; known: white_box, black_box"):
    prompts.test_messages(PROBLEM, CODE, 5, visibility="grey")
