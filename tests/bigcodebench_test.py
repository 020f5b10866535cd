"""BigCodeBench: rows, prompts, what is left of answers, results, the export."""

import json

import pytest
from bigcodebench_rows import row
from dataset_rows import written

from codea1_jax import (
  bigcodebench,
  bigcodebench_export,
  code_suites,
  jsonl,
  rollout,
)
from codea1_jax.bigcodebench import read_results
from codea1_jax.models import text
from codea1_jax.sanitizing import longest_program, sanitize
from codea1_jax.tiny import DATA

TEXTS = ("complete_prompt", "instruct_prompt", "code_prompt", "test",
         "canonical_solution", "entry_point", "task_id")  # fmt: skip


def settings(data, **changes):
  given = {
    "model": "shipped:code_llm",
    "samples_file": "",
    "data": str(data),
    "split": "instruct",
    "limit": 0,
    "samples": 2,
    "temperature": 0.7,
    "top_p": 0.95,
    "max_new_tokens": 16,
    "max_prompt_tokens": 512,
    "max_rows": 4,
    "dtype": "float32",
    "seed": 0,
  }
  return bigcodebench_export.Settings(**given | changes)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_rows_of_both_kinds_of_file(tmp_path, name):
  path = written(tmp_path, row(0), row(1), name=name)
  assert bigcodebench.load_rows(path) == [row(0), row(1)]


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize(
  ("value", "message"),
  [
    (None, "missing"),
    (3, "must be a string, is int"),
    ([], "must be a string, is list"),
    (" \n", "empty"),
  ],
)
def test_a_malformed_row_is_named(tmp_path, field, value, message):
  path = written(tmp_path, row(0), row(1, **{field: value}))
  with pytest.raises(ValueError) as error:
    bigcodebench.load_rows(path)
  assert str(error.value) == f"{path}:2: field {field!r}: {message}"


def test_a_task_that_is_there_twice_and_a_file_without_rows(tmp_path):
  path = written(tmp_path, row(0), row(1), row(0))
  with pytest.raises(ValueError, match=r":3: field 'task_id': .*in row 1$"):
    bigcodebench.load_rows(path)
  path.write_text("[]")
  with pytest.raises(ValueError, match=r"rows\.jsonl: no rows$"):
    bigcodebench.load_rows(path)


def test_the_prompt_up_to_where_the_answer_goes_on():
  tokenizer = text.load_tokenizer(DATA / "code_llm")
  policy = rollout.Policy(DATA / "code_llm", None, tokenizer, (), 0)
  shown = {}
  for split in bigcodebench.SPLITS:
    asked = bigcodebench.question(row(0), split)
    (ids,) = rollout.encode_prefilled(
      policy, [[{"role": "user", "content": asked}]], bigcodebench.PREFILL
    )
    shown[split] = tokenizer.decode(ids)
  for split, asked in (
    ("instruct", f"{row(0)['instruct_prompt']}\n"),
    ("complete", f"```\n{row(0)['complete_prompt'].strip()}\n```\n"),
  ):
    assert shown[split] == (
      "<|im_start|>user\nPlease provide a self-contained Python script that"
      " solves the following problem in a markdown code block:\n"
      f"{asked}<|im_end|>\n<|im_start|>assistant\nBelow is a Python script"
      " with a self-contained function that solves the problem and passes"
      " corresponding tests:\n```python\n"
    )


def test_a_template_without_answers_is_an_error():
  tokenizer = text.load_tokenizer(DATA / "code_llm")
  tokenizer.chat_template = "{{ messages[0]['content'] }}"
  policy = rollout.Policy(DATA / "code_llm", None, tokenizer, (), 0)
  with pytest.raises(ValueError, match="code_llm: its chat template shows no"):
    rollout.encode_prefilled(policy, [[{"role": "user", "content": "a"}]], "b")


@pytest.mark.parametrize(
  ("answer", "kept"),
  [
    ("x = 1\n```\nDone", "x = 1"),
    ("x = 1\nif __name__ == 'a':\n  x\nprint(x)", "x = 1"),
    ("x = 1\nprint(x)\n```\n", "x = 1"),
    ("\ndef main():\n  pass", ""),
    ("x = 1\n```", "x = 1\n```"),  # the end is no stop
    ("if x:\n\tprint(x)", "if x:\n    print(x)"),
    ("a</s>b<|endoftext|>c", "a"),
  ],
)
def test_an_answer_ends_where_the_benchmark_stops_it(answer, kept):
  assert bigcodebench.until_stop(answer) == kept


_FUNCTION = "def f(x):\n    return g(x) + LIMIT"
_HELPER = "def g(x):\n    return x"


@pytest.mark.parametrize(
  ("answer", "program"),
  [
    (_FUNCTION, _FUNCTION),
    # What the function mentions, at any distance, and the imports.
    (
      f"import re\nLIMIT = DEEP\nDEEP = 3\nother = 4\n{_HELPER}\n\n\n"
      f"class A:\n    pass\n\n{_FUNCTION}\n\nassert f(1) == 4",
      f"import re\nLIMIT = DEEP\nDEEP = 3\n{_HELPER}\n{_FUNCTION}",
    ),
    (f"def f():\n    return a.g()\n{_HELPER}",
     f"def f():\n    return a.g()\n{_HELPER}"),
    # Of a name the first; no tuples, attributes or decorated functions.
    (f"{_HELPER}\n{_HELPER}0\n{_FUNCTION}", f"{_HELPER}\n{_FUNCTION}"),
    (f"g, LIMIT = 1, 2\na.g = 3\n@cache\n{_HELPER}\n{_FUNCTION}", _FUNCTION),
    (f"LIMIT: int = 3\nif 1:\n  g = 2\n{_FUNCTION}",
     f"LIMIT: int = 3\n{_FUNCTION}"),
    # Lines after the last indented one, from the first that names it on.
    (f"{_FUNCTION}\nLIMIT = 3\ng = f(1)\n", f"{_FUNCTION}\nLIMIT = 3"),
    # Prose around it, an answer that is cut, nothing that parses.
    (f"Sure, here you are:\n{_FUNCTION}\nIt adds.", _FUNCTION),
    (f"{_FUNCTION}\n\ndef g(x):\n    return (x", _FUNCTION),
    ("I cannot do it.\nReally not.", "I cannot do it."),
    # Nothing is left: all of it.
    ("class A:\n    x = 1", "class A:\n    x = 1"),
    ("def f(x): return x\n", "def f(x): return x\n"),
  ],
)  # fmt: skip
def test_what_is_left_of_an_answer(answer, program):
  """Each also what the benchmark's own program makes of it, version 0.2.5."""
  assert sanitize(answer, "f") == program


def test_the_longest_program_is_found_in_little_time():
  lines = ["This is prose (with a bracket"] * 400 + _FUNCTION.split("\n")
  lines += ["It's more of it"] * 400
  assert longest_program("\n".join(lines)) == _FUNCTION
  assert longest_program("a = 1\n\nb c\nx = 1\ny = 2\n") == "x = 1\ny = 2\n"
  assert longest_program("") == ""


def _results(tmp_path, found):
  path = tmp_path / "samples_eval_results.json"
  path.write_text(json.dumps(found))
  return path


def _result(status):
  return {"task_id": "a", "solution": "", "status": status, "details": {}}


def test_results_come_back_into_the_table(tmp_path):
  found = {
    "date": "2026-01-01 00:00",
    "eval": {
      "BigCodeBench/0": [_result("pass"), _result("fail")],
      "BigCodeBench/1": [_result("timeout"), _result("pass")],
      "BigCodeBench/2": [_result("pass"), _result("pass")],
    },
  }
  path = _results(tmp_path, found)
  scores = bigcodebench_export.read(str(path))
  table = scores["bigcodebench"]["its own"]
  assert [table[k] for k in ("problems", "samples", "passed")] == [3, 6, 4]
  assert table["pass@1"]["value"] == pytest.approx(200 / 3)
  assert table["avg@2"]["low"] == pytest.approx(50)
  text = code_suites.markdown(scores)
  assert "| bigcodebench | its own | 3 | 4 of 6 | 66.67 [50.00, " in text


@pytest.mark.parametrize(
  ("found", "message"),
  [
    ([], ": field 'eval': missing"),
    ({"eval": []}, ": field 'eval': must be an object, is list"),
    ({"eval": {}}, ": field 'eval': empty"),
    ({"eval": {"a": {}}}, ": field 'eval': field 'a': must be a list, is dict"),
    ({"eval": {"a": []}}, ": field 'eval': field 'a': empty"),
    ({"eval": {"a": [_result("pass"), {}]}}, ": a[1]: field 'status': missing"),
    ({"eval": {"a": [3]}}, ": a[0]: field 'status': missing"),
    (
      {"eval": {"a": [_result("passed")]}},
      ": a[0]: field 'status': 'passed' is none of pass, fail, timeout",
    ),
  ],
)
def test_malformed_results_are_named(tmp_path, found, message):
  path = _results(tmp_path, found)
  with pytest.raises(ValueError) as error:
    read_results(path)
  assert str(error.value) == f"{path}{message}"


def test_results_that_cannot_be_read(tmp_path):
  path = tmp_path / "cut.json"
  with pytest.raises(ValueError, match=r"cut\.json: cannot be read"):
    read_results(path)
  path.write_text('{"eval": {')
  with pytest.raises(ValueError, match=r"cut\.json: cannot be read"):
    read_results(path)


def test_a_real_policy_is_exported_and_goes_on(tmp_path, monkeypatch):
  """The shipped Code LLM; stopped inside the first chunk of two rows, against
  all rows in one."""
  data = written(tmp_path, *map(row, range(3)))
  wanted, whole = settings(data, samples=4), tmp_path / "whole"
  found = bigcodebench_export.run(settings(data, samples=4, max_rows=12), whole)
  assert (found["problems"], found["samples"]) == (3, 12)
  lines = jsonl.read_jsonl(found["samples_file"])
  assert [x["task_id"][-1] for x in lines] == list("000011112222")
  assert all(x["solution"] in x["raw_solution"] for x in lines)
  assert len({x["raw_solution"] for x in lines}) > 6

  add, told = bigcodebench_export.Journal.add, []

  def stop(journal, task, answers):
    if len(told) == 1:
      raise KeyboardInterrupt
    told.append(task)
    add(journal, task, answers)

  out = tmp_path / "out"
  with monkeypatch.context() as patch:
    patch.setattr(bigcodebench_export.Journal, "add", stop)
    with pytest.raises(KeyboardInterrupt):
      bigcodebench_export.run(wanted, out)
  assert not list(out.glob("bigcodebench*"))
  again = bigcodebench_export.run(wanted, out)
  assert jsonl.read_jsonl(again["samples_file"]) == lines
  with pytest.raises(ValueError, match="split: instruct there, complete here"):
    bigcodebench_export.run(settings(data, samples=4, split="complete"), out)


def test_given_programs_are_exported(tmp_path):
  data = written(tmp_path, row(0), row(1))
  given = [
    {"task_id": "BigCodeBench/0", "solution": "a\ndef task_func():\n    pass"},
    {"task_id": "BigCodeBench/0", "solution": "x = 1\n```\n"},
    {"task_id": "BigCodeBench/2", "solution": "y"},
  ]
  path = written(tmp_path, *given, name="given.jsonl")
  wanted = settings(data, model="", samples_file=str(path), limit=1)
  found = bigcodebench_export.run(wanted, tmp_path / "out")
  lines = jsonl.read_jsonl(found["samples_file"])
  assert [line["solution"] for line in lines] == [
    "def task_func():\n    pass",
    "x = 1",
  ]
  with pytest.raises(ValueError, match=r"given\.jsonl: no answer to .*/1"):
    bigcodebench_export.run(
      settings(data, model="", samples_file=str(path)), tmp_path / "other"
    )
  assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"split": "hard"}, "--split=hard: known are"),
    ({"model": ""}, "one of --model and --samples_file"),
    ({"samples_file": "x"}, "one of --model and --samples_file"),
  ],
)
def test_wrong_settings_are_one_line(changes, message):
  with pytest.raises(ValueError, match=message):
    settings("x", **changes)
