"""Rows in BigCodeBench's published schema, for tests; the contents are ours."""

_HEAD = "import csv\nimport io\n\n\ndef task_func(text, column=0):\n"
_DOC = '  """Sum one column of a table.\n\n  Requirements:\n  - csv\n  """\n'
_TEST = """import unittest

class TestCases(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(task_func("1,2\\n3,4", 1), 6)
"""


def row(number, **changes):
  """A right row; `changes` replace fields."""
  return {
    "task_id": f"BigCodeBench/{number}",
    "complete_prompt": f"{_HEAD}{_DOC}",
    "instruct_prompt": f"Sum one column of table {number}.\nYou should write"
    f" self-contained code starting with:\n```\n{_HEAD}```",
    "canonical_solution": "  rows = csv.reader(io.StringIO(text))\n"
    "  return sum(int(cells[column]) for cells in rows)\n",
    "code_prompt": _HEAD,
    "test": _TEST,
    "entry_point": "task_func",
    "doc_struct": '{"description": ["Sum one column of a table."]}',
    "libs": "['csv', 'io']",
  } | changes
