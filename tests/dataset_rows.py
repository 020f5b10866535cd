"""One right row of each published format, and files of rows, for tests.

The fields are those of the datasets' cards and of their own loading programs;
the contents are ours.
"""

import base64
import json
import pathlib
import pickle
import zlib

import pytest

DATA = pathlib.Path(__file__).parents[2] / "shared/data"

CODE_A1 = {
  "prompt": [{"role": "user", "content": "Double it."}],
  "data_source": "kodcode_light",
  "clean_description": "Double it.",
  "GT_code": "import math\n\ndef half(x):\n  return x / 2\n\n"
  "def double(x):\n  return x * 2\n",
  "GT_test": [
    "assert double(2) == 4",
    "x = [1]\ny = double(x)\nassert y == [1, 1]",
    "assert math.isclose(half(3), 1.5)",
  ],
  "extra_info": {"question_id": "Prefill_1_I", "function_name": "double"},
}

_HELPER = "import math\n\n\ndef half(x: float):\n    return x / 2\n\n\n"
EVALPLUS = {
  "data_source": "humanevalplus",
  "prompt": [{"role": "user", "content": "Halve it."}],
  "description": "the helper's description",
  "problem": f'''{_HELPER}def halve(xs: list, *, up=False) -> list:
    """ Halve it.
    >>> halve([2])
    [1.0]
    """
''',
  "GT_code": """    if xs and xs[0] < 0:
        raise ValueError(xs)
    return [half(x) for x in xs]
""",
  "test": f"""
import numpy as np
from math import inf
def other():
  inputs = [[9]]  # not these
def check(candidate):
  inputs = [[[2, 4]], [[-1]], [[inf]], [[2,4]], [[{"1," * 300}]], [[]], ([3],)]
  for inp in inputs[3:]:
    assert candidate(*inp) == [x / 2 for x in inp[0]]
""",
  "extra_info": {"function_name": "halve", "question_id": "HumanEval/900"},
}

KODCODE = {
  "style": "instruct",
  "subset": "Prefill",
  "question_id": "Prefill_2_I",
  "question": "Write `ratio`.\u2028It divides.",
  "solution": "def _check(y):\n  if not y:\n    raise ValueError('zero')\n\n"
  "def ratio(x, y):\n  'Divides.'\n  _check(y)\n  return x / y\n",
  "test_code": """import pytest
from solution import ratio

def test_whole():
  assert ratio(4, 2) == 2
  assert ratio(x=1, y=4) == 0.25, "a quarter"

@pytest.mark.parametrize("x, wanted", [(3, 1), (9, 3)])
def test_thirds(x, wanted):
  assert ratio(x, 3) == pytest.approx(wanted)

def test_zero():
  with pytest.raises(ValueError, match="zero"):
    ratio(1, 0)
""",
  "test_info": [
    {
      "function_name": "ratio",
      "parameter_list": "(x, y)",
      "function_declaration": "def ratio(x, y):",
      "docstring": "Divides.",
    }
  ],
  "gpt_pass_percentage": 1.0,
  "gpt_difficulty": "easy",
}

_WRONG = "Here it is:\n```python\ndef last(xs):\n  return xs[0]\n```\n"
_RIGHT = "```python\nfrom typing import Any\n\ndef last(xs: list) -> Any:\n"
ACECODE = {
  "id": "oss_3",
  "source": "oss",
  "question": "The last item, or None.",
  "test_cases": [
    "assert last([1, 2]) == 2",
    "assert last([]) is None",
    "assert isinstance(last('a'), str)",
  ],
  "inferences": [
    {
      "completion": _WRONG,
      "completion_id": 0,
      "model_name": "m",
      "pass_rate": 0.3,
    },
    {
      "completion": _RIGHT + "  return xs[-1] if xs else None\n```",
      "completion_id": 1,
      "model_name": "m",
      "pass_rate": 1.0,
    },
    {
      "completion": "def last(xs): return xs and xs[-1] or None  # always?",
      "completion_id": 2,
      "model_name": "m",
      "pass_rate": 0.9,
    },
  ],
  "context_messages": [[{"role": "user", "content": "The last item."}]],
}

TACO = {
  "question": "Count the words, and the longest of them.",
  "solutions": json.dumps(
    [
      "def count(text, known):\n  return None",
      "class Solution:\n"
      "  def count(self, text: str, known: Dict[int, int]) -> Tuple:\n"
      "    words = Counter(text.split())\n"
      "    return sum(words.values()), max(map(len, words), default=0)\n",
    ]
  ),
  "starter_code": "class Solution:\n  def count(self, text, known):\n",
  "input_output": json.dumps(
    {
      "fn_name": "count",
      "inputs": [["a bb a", {"1": 2}], ["", {}], ["x", {}], ["x", {}]],
      "outputs": [[[3, 2]], [[0, 0]], [1, 1], [1, 1]],
    }
  ),
  "difficulty": "EASY",
  "url": "https://example.org",
}


def packed(tests) -> str:
  """Private tests as LiveCodeBench packs them."""
  text = json.dumps(tests)
  return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


LIVECODEBENCH = {
  "question_title": "pairs",
  "question_content": "How many equal pairs are there?",
  "platform": "leetcode",
  "question_id": "2800",
  "contest_id": "weekly-contest-1",
  "contest_date": "2023-08-01T00:00:00",
  "starter_code": "class Solution:\n"
  "    def pairs(self, xs: List[int], ys: List[int]) -> int:\n        ",
  "difficulty": "easy",
  "public_test_cases": json.dumps(
    [{"input": "[1, 2]\n[1, 3]", "output": "1", "testtype": "functional"}]
  ),
  "private_test_cases": packed(
    [
      {"input": "[]\n[]", "output": "0", "testtype": "functional"},
      {"input": "[1]\n[1, 1]", "output": "2", "testtype": "functional"},
    ]
  ),
  "metadata": json.dumps({"func_name": "pairs"}),
  "code_list": [
    "class Solution:\n    def pairs(self, xs: List[int], ys: List[int]) -> int:"
    "\n        return sum(x == y for x, y in itertools.product(xs, ys))"
  ],
}

UNLEAKED = {
  "func_name": "clip",
  "code": "def clip(x, low=0):\n  if x is None:\n    raise TypeError(x)\n"
  "  return max(x, low)",
  "prompt": "Clips a number from below.",
  "task_id": 17,
  "test_list": [
    "assert clip(3) == 99",  # wrong: no oracle
    "assert clip(-3) == 0",
    "assert clip(-3) == -3",
    "assert clip(None) == 0",
  ],
}

OWN = {
  "id": "mine",
  "question": "Negate it.",
  "signature": "def negate(x): # as told",
  "entry_point": "negate",
  "ground_truth": "def negate(x):\n  return -x",
  "golden_tests": ["assert negate(1) == -1", "assert negate(-2.0) == 2"],
  "faulty_programs": ["def negate(x):\n  return x"],
  "family": "signs",
}

ROWS = {
  "code_a1": CODE_A1,
  "evalplus": EVALPLUS,
  "kodcode": KODCODE,
  "acecode": ACECODE,
  "taco": TACO,
  "livecodebench": LIVECODEBENCH,
  "unleaked": UNLEAKED,
  "own": OWN,
}


def written(tmp_path, *rows, name="rows.jsonl"):
  """A file of rows: JSON lines, or parquet where the name says so."""
  path = tmp_path / name
  if name.endswith(".parquet"):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
  else:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
  return path
