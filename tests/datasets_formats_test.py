"""Rows of published datasets as they are read: fields, files, formats."""

import base64
import json
import os
import pickle
import zlib

import pytest
from dataset_rows import (
  ACECODE,
  CODE_A1,
  EVALPLUS,
  KODCODE,
  LIVECODEBENCH,
  OWN,
  ROWS,
  TACO,
  UNLEAKED,
  packed,
  written,
)

from codea1_jax.datasets import files, json_calls, livecodebench
from codea1_jax.datasets.draft import Found, functions
from codea1_jax.datasets.recognizing import read_drafts


def _format(name):
  return "code_a1" if name == "evalplus" else name


@pytest.mark.parametrize("name", ROWS)
def test_a_format_is_recognized_by_its_fields(tmp_path, name):
  path = written(tmp_path, ROWS[name], name="kodcode_taco.jsonl")
  found, drafts = read_drafts(path)
  assert found == _format(name)
  (draft,) = drafts
  assert draft.where == f"{path}:1"


@pytest.mark.parametrize("name", sorted(ROWS))
def test_parquet_reads_as_json_does(tmp_path, name):
  """And what the file holds says which of the two it is."""
  row = ROWS[name]
  lines = written(tmp_path, row, row)
  table = written(tmp_path, row, row, name="table.parquet")
  assert list(files.read_rows(table)) == list(files.read_rows(lines))
  table.rename(tmp_path / "table.jsonl")
  again = files.read_rows(tmp_path / "table.jsonl")
  assert list(again) == list(files.read_rows(lines))


def test_a_json_array_reads_as_lines_do(tmp_path):
  path = tmp_path / "array.jsonl"
  path.write_text("\n " + json.dumps([KODCODE, UNLEAKED]))
  assert list(files.read_rows(path)) == [(1, KODCODE), (2, UNLEAKED)]


def test_blank_lines_count_and_separators_in_text_are_none(tmp_path):
  path = tmp_path / "rows.jsonl"
  path.write_text('{"a": "\u2028"}\n\n{"a": "\x85"}', encoding="utf-8")
  assert list(files.read_rows(path)) == [
    (1, {"a": "\u2028"}),
    (3, {"a": "\x85"}),
  ]


def test_rows_are_read_one_by_one(tmp_path):
  path = tmp_path / "rows.jsonl"
  path.write_text('{"a": 1}\n{"a": 2}\nbroken\n')
  rows = files.read_rows(path)
  assert [next(rows), next(rows)] == [(1, {"a": 1}), (2, {"a": 2})]
  with pytest.raises(ValueError, match=r"rows\.jsonl:3: not JSON"):
    next(rows)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"", ": empty file"),
    (b"\n\n", ": empty file"),
    (b"[]", ": no rows"),
    (b"[1, 2]", ":1: must be an object, is int"),
    (b'"text"', ":1: must be an object, is str"),
    (b'{"a": "\xff"}', ":1: not JSON"),
    (b"[" * 99_999, ": not JSON"),
    (b"PAR1 and no more", ": cannot be read"),
    (b'{"a": 1}', ":1: fields a are those of no known format"),
  ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, message):
  path = tmp_path / "rows.jsonl"
  path.write_bytes(content)
  if content.startswith(b"PAR1"):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
  with pytest.raises(ValueError) as error:
    read_drafts(path)
  assert str(error.value).startswith(f"{path}{message}")


def test_a_missing_file_is_named(tmp_path):
  for name in ("none.jsonl", "none.parquet"):
    with pytest.raises(ValueError, match=f"{name}: cannot be read"):
      read_drafts(tmp_path / name)


def test_fields_of_two_formats_want_a_word(tmp_path):
  path = written(tmp_path, KODCODE | UNLEAKED)
  with pytest.raises(ValueError, match="kodcode and of unleaked; --format="):
    read_drafts(path)
  assert read_drafts(path, "unleaked")[0] == "unleaked"
  with pytest.raises(ValueError, match="format 'kod' is none of own, code_a1"):
    read_drafts(path, "kod")


def _functional(**changes):
  return {"input": "1", "output": "1", "testtype": "functional"} | changes


def _public(*tests):
  return {"public_test_cases": json.dumps(tests)}


_ANSWER = {"completion": "def f(): pass", "pass_rate": 1.0}
_CASES = {"fn_name": "f", "inputs": [[1]], "outputs": [1]}
_MALFORMED = [
  (
    CODE_A1,
    {"clean_description": None},
    "'clean_description' or 'description'",
  ),
  (CODE_A1, {"GT_code": 3}, "field 'GT_code': must be a string, is int"),
  (CODE_A1, {"GT_test": None}, "field 'GT_test' or 'test': missing"),
  (CODE_A1, {"GT_test": 3}, "field 'GT_test': must be a list, is int"),
  (CODE_A1, {"GT_test": ["", 3]}, "field 'GT_test[1]': must be a string"),
  (CODE_A1, {"extra_info": {}}, "field 'extra_info.question_id': missing"),
  (EVALPLUS, {"problem": " "}, "field 'problem': empty"),
  (EVALPLUS, {"test": 3}, "field 'test': must be a string, is int"),
  (EVALPLUS, {"data_source": "mbpp"}, "field 'data_source': 'mbpp' is none of"),
  (
    EVALPLUS,
    {"extra_info": {"question_id": "a"}},
    "field 'extra_info.function_name': missing",
  ),
  (KODCODE, {"question_id": None}, "field 'question_id': missing"),
  (KODCODE, {"question": "\n"}, "field 'question': empty"),
  (KODCODE, {"solution": ["a"]}, "field 'solution': must be a string, is list"),
  (KODCODE, {"test_code": None}, "field 'test_code' or 'test': missing"),
  (KODCODE, {"test_info": {}}, "field 'test_info': must be a list, is dict"),
  (
    KODCODE,
    {"test_info": [{}]},
    "field 'test_info[0]': field 'function_name': missing",
  ),
  (ACECODE, {"id": 3}, "field 'id': must be a string, is int"),
  (ACECODE, {"test_cases": "assert f()"}, "field 'test_cases': must be a list"),
  (ACECODE, {"inferences": None}, "field 'inferences': missing"),
  (
    ACECODE,
    {"inferences": [_ANSWER, _ANSWER | {"pass_rate": "1"}]},
    "field 'inferences[1]': completion must be a string, pass_rate a number",
  ),
  (
    ACECODE,
    {"inferences": [{}]},
    "field 'inferences[0]': field 'completion': missing",
  ),
  (TACO, {"question": None}, "field 'question': missing"),
  (TACO, {"solutions": "[1,"}, "field 'solutions': not JSON"),
  (TACO, {"solutions": "{}"}, "field 'solutions': must be a list, is dict"),
  (TACO, {"input_output": "[1]"}, "field 'input_output': must be an object"),
  (TACO, {"input_output": "{"}, "field 'input_output': not JSON"),
  (
    TACO,
    {"input_output": json.dumps(_CASES | {"outputs": []})},
    "field 'input_output': 1 inputs, 0 outputs",
  ),
  (
    TACO,
    {"input_output": json.dumps(_CASES | {"fn_name": 3})},
    "field 'input_output.fn_name': must be a string",
  ),
  (LIVECODEBENCH, {"question_id": None}, "field 'question_id': missing"),
  (LIVECODEBENCH, {"metadata": "none"}, "field 'metadata': not JSON"),
  (LIVECODEBENCH, {"metadata": "{}"}, "field 'metadata.func_name': missing"),
  (
    LIVECODEBENCH,
    {"public_test_cases": "3"},
    "field 'public_test_cases': must be a list",
  ),
  (
    LIVECODEBENCH,
    _public(_functional(testtype=None)),
    "field 'public_test_cases[0]': field 'testtype': missing",
  ),
  (
    LIVECODEBENCH,
    _public(_functional(), _functional(input=3)),
    "field 'public_test_cases[1]': input and output must be strings",
  ),
  (
    LIVECODEBENCH,
    _public(_functional(input="1 2")),
    "field 'public_test_cases[0]': field 'input': not JSON",
  ),
  (LIVECODEBENCH, {"private_test_cases": "?"}, "field 'private_test_cases': "),
  (
    LIVECODEBENCH,
    {"private_test_cases": "AAAA"},
    "field 'private_test_cases': Error -3",
  ),
  (
    LIVECODEBENCH,
    {"private_test_cases": packed({})},
    "field 'private_test_cases': must be a list",
  ),
  (
    LIVECODEBENCH,
    {"public_test_cases": "[{"},
    "field 'public_test_cases': not JSON",
  ),
  (
    LIVECODEBENCH,
    {"private_test_cases": "[{"},
    "field 'private_test_cases': not JSON",
  ),
  (
    LIVECODEBENCH,
    {"private_test_cases": packed([_functional(output="[1")])},
    "field 'private_test_cases[0]': field 'output': not JSON",
  ),
  (
    TACO,
    {"input_output": json.dumps(_CASES | {"inputs": {}})},
    "field 'input_output.inputs': must be a list, is dict",
  ),
  (
    TACO,
    {"input_output": json.dumps({"fn_name": "f", "inputs": []})},
    "field 'input_output.outputs': missing",
  ),
  (TACO, {"solutions": "[3]"}, "field 'solutions[0]': must be a string"),
  (ACECODE, {"test_cases": ["", 3]}, "field 'test_cases[1]': must be a string"),
  (UNLEAKED, {"func_name": ""}, "field 'func_name': empty"),
  (UNLEAKED, {"task_id": [1]}, "field 'task_id': must be a string or a number"),
  (UNLEAKED, {"test_list": [1]}, "field 'test_list[0]': must be a string"),
  (OWN, {"entry_point": 3}, "field 'entry_point': must be a string, is int"),
  (OWN, {"more": 3}, "field 'more': unknown"),
  (OWN, {"golden_tests": ["1"]}, "field 'golden_tests[0]': not a test of"),
]


@pytest.mark.parametrize(("row", "change", "message"), _MALFORMED)
def test_a_malformed_row_is_named(tmp_path, row, change, message):
  """One line: file, row and field."""
  name = next(_format(name) for name, known in ROWS.items() if known is row)
  path = written(tmp_path, row, row | change)
  _, drafts = read_drafts(path, name)
  next(drafts)
  with pytest.raises(ValueError) as error:
    next(drafts)
  said = str(error.value)
  assert said.startswith(f"{path}:2: field ") and message in said, said
  assert "\n" not in said


# Fields without which a row says nothing, and those that it may lack.
_NEEDED = {
  "code_a1": "GT_code GT_test clean_description extra_info",
  "evalplus": "GT_code test problem description data_source extra_info",
  "kodcode": "question_id question solution test_code",
  "acecode": "id question test_cases inferences",
  "taco": "question solutions input_output",
  "livecodebench": "question_id question_content starter_code metadata"
  " public_test_cases private_test_cases",
  "unleaked": "func_name code prompt task_id test_list",
  "own": "id question signature entry_point ground_truth",
}
_OPTIONAL = {
  "kodcode": "test_info",
  "livecodebench": "code_list",
  "own": "golden_tests faulty_programs",
}
_WRONG = [
  (name, field, value)
  for names, values in ((_NEEDED, (None, 3.5)), (_OPTIONAL, (3.5,)))
  for name, fields in names.items()
  for field in fields.split()
  for value in values
]


@pytest.mark.parametrize(("name", "field", "value"), _WRONG)
def test_every_field_is_missed_and_its_type_is_seen(
  tmp_path, name, field, value
):
  row = ROWS[name]
  wrong = {key: x for key, x in row.items() if key != field}
  wrong |= {} if value is None else {field: value}
  path = written(tmp_path, row, wrong)
  _, drafts = read_drafts(path, _format(name))
  next(drafts)
  with pytest.raises(ValueError) as error:
    next(drafts)
  said = str(error.value)
  assert said.startswith(f"{path}:2: field ") and "\n" not in said
  assert f"'{field}" in said, said
  assert ("missing" if value is None else "must be") in said, said


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_broken_file_of_each_format_is_named(tmp_path, name):
  """A cut line, a cut table, bytes that are no text, and no file at all."""
  row = ROWS[name]
  path = written(tmp_path, row, row, row)
  whole = path.read_bytes()
  first = whole.index(b"\n") + 1
  for broken in (
    whole[: first + 9] + b"\n",
    whole[:first] + b"\xff" + whole[first:],
  ):
    path.write_bytes(broken)
    _, drafts = read_drafts(path, _format(name))
    next(drafts)
    with pytest.raises(ValueError, match=r"rows\.jsonl:2: not JSON"):
      next(drafts)
  table = written(tmp_path, row, name="table.parquet")
  table.write_bytes(table.read_bytes()[:-9])
  for bad in (table, tmp_path, tmp_path / "none.jsonl"):
    with pytest.raises(ValueError) as error:
      read_drafts(bad, _format(name))
    assert str(error.value).startswith(f"{bad}: cannot be read: ")
    assert "\n" not in str(error.value)


class _Attack:
  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return os.system, (f"touch {self._path}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_does_not_run(tmp_path, protocol):
  made = tmp_path / "made"
  data = pickle.dumps(["[]", _Attack(made)], protocol)
  bad = base64.b64encode(zlib.compress(data)).decode()
  path = written(tmp_path, LIVECODEBENCH | {"private_test_cases": bad})
  with pytest.raises(ValueError, match="'private_test_cases': refused: the pi"):
    list(read_drafts(path)[1])
  assert not made.exists()
  pickle.loads(data)  # the attack is one
  assert made.exists()


@pytest.mark.parametrize(
  "text", ["", "[]", "\u2028 \U0001f600" * 9, "x" * 99_999]
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_text_is_read(text, protocol):
  assert livecodebench.plain_text(pickle.dumps(text, protocol)) == text


@pytest.mark.parametrize(
  ("pickled", "message"),
  [
    (pickle.dumps([]), "refused: the pickle has EMPTY_LIST"),
    (pickle.dumps(("a", "b")), "refused"),
    (pickle.dumps(3), "refused: the pickle has BININT1"),
    (b"", "no pickle"),
    (b"\x80\x04.", "refused: the pickle has 0 strings"),
    (b"\x80\x04\x8c\x01a\x8c\x01b.", "refused: the pickle has 2 strings"),
    (pickle.dumps("abc")[:-3], "no pickle"),
  ],
)
def test_a_pickle_of_anything_else_is_refused(pickled, message):
  with pytest.raises(ValueError, match=message):
    livecodebench.plain_text(pickled)


def test_private_tests_may_be_plain_json_and_not_without_end(
  tmp_path, monkeypatch
):
  plain = json.dumps([_functional(input="[]\n[]", output="0")])
  path = written(tmp_path, LIVECODEBENCH | {"private_test_cases": plain})
  (draft,) = read_drafts(path)[1]
  assert draft.found[-1] == Found("pairs([], [])")
  monkeypatch.setattr(livecodebench, "_MOST_BYTES", 40)
  path = written(tmp_path, LIVECODEBENCH)
  with pytest.raises(ValueError, match="or of more than 40 bytes"):
    list(read_drafts(path)[1])


@pytest.mark.parametrize(
  ("row", "change", "reason"),
  [
    (TACO, {"input_output": ""}, "no tests"),
    (
      TACO,
      {"input_output": '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'},
      "reads standard input: no function",
    ),
    (
      LIVECODEBENCH,
      _public(_functional(testtype="stdin", input="any text")),
      "reads standard input: no function",
    ),
    (KODCODE, {"solution": "class A: pass"}, "no function at top level"),
    (CODE_A1, {"GT_code": "class A: pass"}, "no function at top level"),
    (EVALPLUS, {"test": "def check(f)"}, "test is no program that asserts"),
    (EVALPLUS, {"test": "def check(f): 1"}, "test is no program that asserts"),
  ],
)
def test_what_cannot_be_a_problem_is_said(tmp_path, row, change, reason):
  (draft,) = read_drafts(written(tmp_path, row | change))[1]
  assert draft.reason.startswith(reason)


def test_the_best_inference_comes_first(tmp_path):
  (draft,) = read_drafts(written(tmp_path, ACECODE))[1]
  assert [program[:9] for program in draft.programs] == [
    "from typi",
    "def last(",
    "def last(",
  ]
  assert draft.programs[2].endswith("xs[0]")


def test_the_function_is_the_one_that_is_tested(tmp_path):
  """test_info names the main one, unless another is called more."""
  tests = "def test_a():\n  assert g(1) == 1\n  assert g(2) == 2\n"
  row = KODCODE | {
    "solution": "def g(x): return x\ndef f(x): return x",
    "test_code": tests + "  assert f(1) == 1\n",
    "test_info": None,
  }
  path = written(tmp_path, row)
  (draft,) = read_drafts(path)[1]
  assert draft.problem.entry_point == "g"
  told = [{"function_name": name} for name in ("h", "f", "g")]
  row |= {
    "test_code": "def test_a():\n  assert f(1) == g(1)",
    "test_info": told,
  }
  (draft,) = read_drafts(written(tmp_path, row))[1]
  assert draft.problem.entry_point == "f"


@pytest.mark.parametrize(
  ("method", "signature", "call"),
  [
    (
      "def f(self, xs: List[int], *, k=1) -> int:",
      "def f(xs: List[int], *, k=1) -> int:",
      "return Solution().f(xs, k=k)",
    ),
    ("@staticmethod\n  def f(x):", "def f(x):", "return Solution().f(x)"),
    (
      "def f(self, a, /, *rest, **more):",
      "def f(a, /, *rest, **more):",
      "return Solution().f(a, *rest, **more)",
    ),
  ],
)
def test_a_method_becomes_a_function(method, signature, call):
  program = f"class Solution:\n  {method}\n    return 1"
  made = json_calls.as_function(program, "f")
  assert f"\n\n\n{signature}\n    {call}\n" in made
  assert "f" in functions(made)
  assert json_calls.as_function(program, "g") == ""
  assert json_calls.as_function("def f(", "f") == ""


def test_only_lacking_imports_are_added():
  program = (
    "from itertools import *\nimport re as r\nheappush = None\n"
    "def f(x: List[int], math=0):\n"
    "  return sqrt(chain(x)), math, r, heappush, Counter(x), copy.f, bisect\n"
  )
  added = json_calls.as_function(program, "f").removesuffix(program)
  assert added.split("\n") == [
    "from collections import Counter",
    "from typing import List",
    "from bisect import bisect",
    "import copy",
    "from math import sqrt",
    "",
    "",
    "",
  ]
