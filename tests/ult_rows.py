"""A small benchmark of two functions for tests, and answers to them."""

import json

CLIP = '''\
def clip(x, low, high):
  """Keeps x between low and high."""
  if x < low:
    return low
  return high if x > high else x
'''
# Uses what the benchmark imports above every function; `import *` hides it.
ROOT = "def _root(x):\n  return int(math.sqrt(x))\n"
ROWS = [
  {"func_name": "clip", "code": CLIP, "prompt": "Clips.", "task_id": "7",
   "test_list": []},
  {"func_name": "_root", "code": ROOT, "prompt": "A root.", "task_id": 9,
   "test_list": ["assert _root(4) == 2"]},
]  # fmt: skip


def fenced(*lines: str) -> str:
  text = "\n".join(lines)
  return f"```python\n{text}\n```"


def plain(*asserts: str) -> list[str]:
  """An answer an assert."""
  return [fenced("def test_it():", f"  assert {text}") for text in asserts]


CLIPPED = plain(
  "clip(1, 2, 5) == 2", "clip(3, 2, 5) == 3", "clip(9, 2, 5) == 5",
  "clip(2, 2, 5) == 2", "clip(1, 2, 5) == 1",
)  # fmt: skip
ROOTS = plain(*[f"_root({n * n}) == {n}" for n in range(1, 6)])


def write(tmp_path, rows=ROWS) -> str:
  path = tmp_path / "ult.jsonl"
  path.write_text(json.dumps(rows))
  return str(path)
