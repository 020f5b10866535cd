"""Drafts that the sandbox makes problems of, or drops and says why."""

import evalplus_rows
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
)

from codea1_jax.datasets import making
from codea1_jax.datasets.recognizing import FORMATS
from codea1_jax.types import Problem, TestCase

_FAILS = "the ground truth fails its own tests"
_RAISES = "the ground truth or its tests raise"
_NONE = "no reference solution that defines the function"
_UNSURE = "no call of its tests is sure to return a literal"


@pytest.fixture(scope="module")
def sandboxes():
  with making.open_sandboxes(2) as made:
    yield made


def _make(sandboxes, *rows, num_tests=8):
  """What becomes of rows, each as (known row of its format, changes)."""
  drafts = []
  for k, (known, changes) in enumerate(rows, start=1):
    name = next(name for name, row in ROWS.items() if row is known)
    module = FORMATS["code_a1" if name == "evalplus" else name]
    drafts.append(module.draft(f"FILE:{k}", known | changes))
  return making.make_problems(drafts, sandboxes, num_tests)


def _one(sandboxes, known, num_tests=8, **changes):
  (made,) = _make(sandboxes, (known, changes), num_tests=num_tests)
  return made


_MADE = {
  "code_a1": (
    *("Prefill_1_I", "def double(x):"),
    {"double(2)": "4", "double([1])": "[1, 1]"},
    {"asserts of another shape": 1},
  ),
  "evalplus": (
    "HumanEval/900",
    "import math\n\n\ndef half(x: float):\n    return x / 2\n\n\n"
    "def halve(xs: list, *, up=False) -> list:",
    {"halve([2, 4])": "[1.0, 2.0]", "halve([])": "[]", "halve([3])": "[1.5]"},
    {"raising ValueError": 1},
  ),
  "kodcode": (
    *("Prefill_2_I", "def ratio(x, y):"),
    {"ratio(4, 2)": "2.0", "ratio(x=1, y=4)": "0.25"},
    {"asserts of another shape": 1, "raising ValueError": 1},
  ),
  "acecode": (
    *("oss_3", "def last(xs: list) -> Any:"),
    {"last([1, 2])": "2", "last([])": "None", "last('a')": "'a'"},
    {"asserts of another shape": 1},
  ),
  "taco": (
    *("taco/5", "def count(text: str, known: Dict[int, int]) -> Tuple:"),
    {
      "count('a bb a', {1: 2})": "(3, 2)",
      "count('', {})": "(0, 0)",
      "count('x', {})": "(1, 1)",
    },
    {"repeated, or no literal": 1},
  ),
  "livecodebench": (
    *("2800", "def pairs(xs: List[int], ys: List[int]) -> int:"),
    {
      "pairs([1, 2], [1, 3])": "1",
      "pairs([], [])": "0",
      "pairs([1], [1, 1])": "2",
    },
    {},
  ),
  "unleaked": (
    *("unleaked/17", "def clip(x, low=0):"),
    {"clip(3)": "3", "clip(-3)": "0"},
    {"raising TypeError": 1},
  ),
  "own": (
    *("mine", "def negate(x): # as told"),
    {"negate(1)": "-1", "negate(-2.0)": "2.0"},
    {},
  ),
}


def test_a_row_of_each_format_becomes_a_problem(sandboxes):
  results = _make(sandboxes, *((row, {}) for row in ROWS.values()))
  for name, made in zip(ROWS, results, strict=True):
    key, heading, tests, left_out = _MADE[name]
    problem = made.problem
    assert made.reason == "", (name, made.reason, made.detail)
    assert made.passes is (None if name == "unleaked" else True)
    assert (problem.id, problem.signature) == (key, heading)
    assert {t.call: t.expected for t in problem.golden_tests} == tests
    assert len(problem.golden_tests) == len(tests)
    assert made.left_out == left_out, name
  assert results[0].problem == Problem(
    id="Prefill_1_I",
    question="Double it.",
    signature="def double(x):",
    entry_point="double",
    ground_truth=CODE_A1["GT_code"],
    golden_tests=(
      TestCase("double(2)", "4"),
      TestCase("double([1])", "[1, 1]"),
    ),
  )
  questions = [result.problem.question for result in results]
  assert questions[1:4] == [
    "Halve it.\n>>> halve([2])\n[1.0]",
    "Write `ratio`.\u2028It divides.",
    "The last item, or None.",
  ]
  assert questions[4:] == [
    TACO["question"],
    LIVECODEBENCH["question_content"],
    UNLEAKED["prompt"],
    OWN["question"],
  ]
  assert results[-1].problem.faulty_programs == tuple(OWN["faulty_programs"])
  assert results[-1].problem.family == "signs"


def test_the_most_tests_and_what_is_beyond(sandboxes):
  made = _one(sandboxes, LIVECODEBENCH, num_tests=2)
  assert len(made.problem.golden_tests) == 2
  assert made.left_out == {"long, or beyond the first 2": 1}
  tests = [f"assert double({k}) == {2 * k}" for k in range(9)]
  tests.insert(0, f"assert double('{'x' * 2_000}') == '{'x' * 4_000}'")
  made = _one(sandboxes, CODE_A1, num_tests=1, GT_test=tests)
  assert made.problem.golden_tests == (TestCase("double(0)", "0"),)
  assert made.left_out == {"long, or beyond the first 1": 9}


_TEST = "def test_all():\n  assert ratio(1, 1) == 1\n"
_CLASS = "class A:\n  def f(self): return 1\n"
_USE = "def test_all():\n  assert A().f() == {}\n"
_JSON = '{{"fn_name": "count", "inputs": [["", {{}}]], "outputs": [{}]}}'
_DROPS = [
  (CODE_A1, {"GT_test": ["assert double(1) == 3"]}, _FAILS, "double(1) == 3"),
  (CODE_A1, {"GT_code": "def double("}, _RAISES, "SyntaxError"),
  (
    CODE_A1,
    {
      "GT_code": "double = lambda x: x * 2",
      "GT_test": ["assert double(1) == 2"],
    },
    *("no function at top level", ""),
  ),
  (EVALPLUS, {"GT_code": "    return [0]\n"}, _FAILS, "AssertionError"),
  (EVALPLUS, {"GT_code": " return\n("}, _NONE, ""),
  (
    KODCODE,
    {"test_code": "assert ratio(2, 1) == 1"},
    _FAILS,
    "tests: assert ra",
  ),
  (
    KODCODE,
    {"test_code": f"{_TEST}  assert ratio(1, 2) == 1"},
    _FAILS,
    "2) == 1",
  ),
  (KODCODE, {"test_code": "def test_a(:"}, _RAISES, "tests: SyntaxError"),
  (
    KODCODE,
    {"test_code": "def check(): pass"},
    _RAISES,
    "LookupError: no test",
  ),
  (
    KODCODE,
    {"test_code": f"{_TEST}  open('a.txt', 'w')"},
    _RAISES,
    "Permission",
  ),
  (KODCODE, {"test_code": f"import torch\n{_TEST}"}, _RAISES, "'torch'"),
  (
    KODCODE,
    {"test_code": "def test_a(tmp_path):\n  assert ratio(1, 1) == 1"},
    *(_RAISES, "fixture 'tmp_path' is not there"),
  ),
  (
    KODCODE,
    {"test_code": f"import pytest\npytest.importorskip('torch')\n{_TEST}"},
    *(_RAISES, "pytest.importorskip is not in the stand-in"),
  ),
  (
    KODCODE,
    {"solution": _CLASS, "test_code": _USE.format(1)},
    "no function at top level",
    "",
  ),
  (KODCODE, {"solution": _CLASS, "test_code": _USE.format(2)}, _FAILS, "== 2"),
  (
    KODCODE,
    {"test_code": "def test_a():\n  assert ratio('a' * 2, 1) == 'aa'"},
    *(_RAISES, "test_a: TypeError"),
  ),
  (
    KODCODE,
    {"test_code": "def test_a():\n  x = 1 + 1\n  assert ratio(x, x) == 1"},
    *("no test is a call with literals", "1 asserts of another shape"),
  ),
  (
    KODCODE,
    {
      "solution": "import numpy\ndef ratio(x, y): return x / y",
      "test_code": _TEST,
    },
    "the ground truth does not load as in a run",
    "error ModuleNotFoundError: No module named 'numpy'",
  ),
  (ACECODE, {"inferences": []}, _NONE, ""),
  (ACECODE, {"test_cases": ["assert last([]) == 0"]}, _FAILS, "last([]) == 0"),
  (TACO, {"solutions": ""}, _NONE, ""),
  (TACO, {"solutions": '["def other(): pass"]'}, _NONE, ""),
  (
    TACO,
    {"input_output": _JSON.format("[[0, 1]]")},
    _FAILS,
    "test_cases: assert",
  ),
  (TACO, {"input_output": _JSON.format("[0]")}, _FAILS, "test_cases"),
  (LIVECODEBENCH, {"code_list": None}, _NONE, ""),
  (UNLEAKED, {"func_name": "other"}, _NONE, ""),
  (
    UNLEAKED,
    {"test_list": ["assert clip(None)"]},
    _UNSURE,
    "1 raising TypeError",
  ),
  (
    UNLEAKED,
    {"code": "import random\ndef clip(x): return random.random()"},
    *(_UNSURE, "not deterministic"),
  ),
  (
    UNLEAKED,
    {"code": "def clip(x): return (i for i in [x])"},
    *(_UNSURE, "3 returning no plain data"),
  ),
  (
    UNLEAKED,
    {"code": "def clip(x):\n  while True: x"},
    *(_UNSURE, "3 timeout in a run's limits"),
  ),
  (OWN, {"golden_tests": ["assert negate(1) == 1"]}, _FAILS, "negate(1) == 1"),
]


def test_what_fails_is_dropped_with_its_reason(sandboxes):
  results = _make(sandboxes, *((row, changes) for row, changes, *_ in _DROPS))
  for (_, changes, reason, detail), made in zip(_DROPS, results, strict=True):
    assert made.problem is None, changes
    assert made.reason.startswith(reason), (changes, made.reason, made.detail)
    assert detail in made.detail, (changes, made.detail)
    failed = reason in (_FAILS, _RAISES)
    assert made.passes in ((False,) if failed else (True, None)), changes


def test_a_program_that_runs_out_of_time_or_memory_is_dropped(
  sandboxes, monkeypatch
):
  from codea1_jax.datasets import kodcode

  monkeypatch.setattr(kodcode, "_CPU_S", 0.3)
  endless = "def ratio(x, y):\n  while True: pass"
  greedy = "def ratio(x, y): return bytearray(1 << 40)"
  slow, large = _make(
    sandboxes, (KODCODE, {"solution": endless}), (KODCODE, {"solution": greedy})
  )
  assert "runs out of time in its own tests" in slow.reason
  assert large.passes is False and "MemoryError" in large.detail


def test_tests_find_the_program_as_they_want_it(sandboxes):
  """As their own, as KodCode runs them, or imported from `solution`."""
  names = "assert ratio(1, 1) == 1 and math.pi"
  solution = "import math\n" + KODCODE["solution"]
  bare, imported, module, both, other = _make(
    sandboxes,
    *(
      (KODCODE, {"solution": solution, "test_code": f"{head}\n{names}"})
      for head in (
        "",
        "from solution import ratio",
        "import solution\nratio, math = solution.ratio, solution.math",
        "from solution import *",
        "from solution import rate as ratio",
      )
    ),
  )
  assert bare.passes and module.passes and both.passes and imported.passes
  assert "cannot import name 'rate'" in other.detail


_PYTEST = [
  ("class TestA:\n  def test_b(self): assert ratio(1, 1) == 1", True),
  ("class TestA:\n  def test_b(self): assert ratio(1, 1) == 2", False),
  ("class A:\n  def test_b(self): assert ratio(1, 1) == 2", True),
  (
    "class TestA:\n  def setup_method(self): self.x = 1\n"
    "  def test_b(self): assert ratio(self.x, 1) == 1",
    True,
  ),
  (
    "import unittest\nclass T(unittest.TestCase):\n"
    "  def test_b(self): self.assertEqual(ratio(1, 1), 1)",
    True,
  ),
  (
    "import unittest\nclass T(unittest.TestCase):\n"
    "  def test_b(self): self.assertEqual(ratio(1, 1), 2)",
    False,
  ),
  ("def test_b():\n  with pytest.raises(KeyError): ratio(1, 0)", False),
  ("def test_b():\n  with pytest.raises(ValueError): ratio(1, 1)", False),
  ("def test_b(): pytest.raises(ValueError, ratio, 1, y=0)", True),
  ("def test_b(): pytest.raises(ValueError, ratio, 1, y=1)", False),
  (
    "def test_b():\n  with pytest.raises(ValueError, match='^ero'):\n"
    "    ratio(1, 0)",
    False,
  ),
  ("def test_b(): assert ratio(1, 3) == pytest.approx(0.3333333)", True),
  ("def test_b(): assert ratio(1, 3) == pytest.approx(0.33333)", False),
  ("def test_b(): assert [1 / 3] == pytest.approx([0.3], abs=0.1)", True),
  ("def test_b(): assert [1 / 3] == pytest.approx([0.3], abs=0.01)", False),
  ("def test_b(): assert {'a': 1e-13} == pytest.approx({'a': 0})", True),
  (
    "@pytest.mark.parametrize('x', [1, 2])\n"
    "@pytest.mark.parametrize(('y', 'z'), [(1, 1), (2, 2)])\n"
    "def test_b(x, y, z): assert ratio(x, y) == x / z",
    True,
  ),
  (
    "@pytest.mark.parametrize('x', [1, 2])\n"
    "def test_b(x): assert ratio(x, 1) == 1",
    False,
  ),
  ("from heapq import merge as test_merge\nassert True", True),
  ("def test_b(x=1): assert ratio(x, 1) == 1", True),
  ("if __name__ == '__main__':\n  assert False", True),
  (
    "@pytest.fixture\ndef one(): return 1\n"
    "@pytest.fixture(name='two')\ndef _two(one): return [2 * one]\n"
    "def test_b(one, two): assert ratio(two.pop(), one) == 2\n"
    "def test_c(two): assert two == [2]",
    True,
  ),
  (
    "@pytest.fixture\ndef one(): return 1\n"
    "def test_b(one): assert ratio(one, 1) == 2",
    False,
  ),
  (
    "@pytest.fixture(params=[1, 2])\ndef x(request): return request.param\n"
    "@pytest.fixture\ndef y(x): return x + 1\n"
    "@pytest.mark.parametrize('z', [1, 2])\n"
    "def test_b(x, y, z): assert (x, z) != (2, 2) and y == x + 1",
    False,
  ),
  (
    "log = []\n@pytest.fixture(autouse=True)\ndef around():\n"
    "  log.append(1)\n  yield\n  log.append(2)\n"
    "def test_b(): assert log == [1]\n"
    "def test_c(): assert log == [1, 2, 1]",
    True,
  ),
  (
    "made = []\n@pytest.fixture(scope='module')\ndef one():\n"
    "  made.append(1)\n  yield len(made)\n"
    "def test_b(one): assert one == 1\n"
    "class TestC:\n  def test_c(self, one): assert one == 1",
    True,
  ),
  (
    "def test_b(capsys):\n  print('a')\n  assert capsys.readouterr().out =="
    " 'a\\n'\n  out, err = capsys.readouterr()\n  assert out == err == ''",
    True,
  ),
  (
    "def test_b(capsys):\n  print('a')\n"
    "  assert capsys.readouterr().out == 'a'",
    False,
  ),
  (
    "import solution\n"
    "def test_b(monkeypatch):\n"
    "  monkeypatch.setattr('builtins.input', lambda _: '4')\n"
    "  monkeypatch.setattr(solution, 'ratio', lambda *_: 9)\n"
    "  monkeypatch.setenv('A_NAME', 3)\n  import os\n"
    "  assert (input('?'), os.environ['A_NAME']) == ('4', '3')\n"
    "  assert solution.ratio(1, 1) == 9\n"
    "def test_c():\n  import os\n"
    "  assert solution.ratio(1, 1) == 1 and 'A_NAME' not in os.environ\n"
    "  assert input.__module__ is None or 'io' in input.__module__ or"
    " input.__module__ == 'builtins'",
    True,
  ),
  (
    "known = {'a': 1, 'b': 2}\n"
    "def test_b(monkeypatch):\n"
    "  monkeypatch.setitem(known, 'a', 3)\n"
    "  monkeypatch.setitem(known, 'c', 3)\n"
    "  monkeypatch.delitem(known, 'b')\n"
    "  assert known == {'a': 3, 'c': 3}\n"
    "def test_c(): assert known == {'a': 1, 'b': 2}",
    True,
  ),
  (
    "def test_b(monkeypatch):\n  monkeypatch.setattr('math.no_such', 1)",
    False,
  ),
  ("@pytest.mark.skip\ndef test_b(): assert False\nassert 1", True),
  (
    "@pytest.mark.skip(reason='a')\ndef test_b(): assert False\nassert 1",
    True,
  ),
  (
    "@pytest.mark.skipif(True, reason='a')\ndef test_b(): assert 0\nassert 1",
    True,
  ),
  (
    "@pytest.mark.skipif(False, reason='a')\ndef test_b(): assert False",
    False,
  ),
  (
    "@pytest.mark.skip\nclass TestB:\n  def test_b(self): assert 0\nassert 1",
    True,
  ),
  (
    "@pytest.mark.slow\n@pytest.mark.order(1)\ndef test_b(): assert True",
    True,
  ),
  ("@pytest.mark.slow\ndef test_b(): assert False", False),
  ("def test_b():\n  pytest.skip('a')\n  assert False", True),
  ("def test_b():\n  if ratio(1, 1) == 1: pytest.fail('a')", False),
  (
    "@pytest.mark.parametrize('x', [pytest.param(1, id='a'), 2], ids=str)\n"
    "def test_b(x): assert ratio(x, 1) == x",
    True,
  ),
  (
    "@pytest.mark.parametrize('x, y', [pytest.param(1, 2)])\n"
    "def test_b(x, y): assert ratio(x, y) == 1",
    False,
  ),
  (
    "@pytest.mark.parametrize('x', [1, 2])\nclass TestA:\n"
    "  @pytest.mark.parametrize('y', [1, 2])\n"
    "  def test_b(self, x, y): assert ratio(x, y) == x / y",
    True,
  ),
  (
    "@pytest.mark.parametrize('x', [1, 2])\nclass TestA:\n"
    "  def test_b(self, x): assert ratio(x, 1) == 1",
    False,
  ),
  (
    "@pytest.fixture\ndef one(): return 1\nclass TestA:\n"
    "  @pytest.fixture(autouse=True)\n"
    "  def made(self, one): self.x = one\n"
    "  @pytest.fixture\n  def one(self): return 2\n"
    "  def test_b(self, one): assert self.x == one == 2\n"
    "def test_c(one): assert one == 1",
    True,
  ),
  (
    "def test_b():\n  with pytest.raises((KeyError, ValueError)) as info:\n"
    "    ratio(1, 0)\n  assert info.type is ValueError\n"
    "  info.match('zero')\n  assert 'zero' in str(info.value)",
    True,
  ),
  (
    "import warnings\ndef test_b():\n"
    "  with pytest.warns(UserWarning, match='old'):\n"
    "    warnings.warn('is old')",
    True,
  ),
  (
    "import warnings\ndef test_b():\n"
    "  with pytest.warns(DeprecationWarning): warnings.warn('is old')",
    False,
  ),
  (
    "log = []\ndef setup_function(): log.append(1)\n"
    "def teardown_function(function): log.append(function.__name__)\n"
    "def setup_module(module): log.append(0)\n"
    "def test_b(): assert log == [0, 1]\n"
    "def test_c(): assert log == [0, 1, 'test_b', 1]",
    True,
  ),
  (
    "class TestA:\n  log = []\n  @classmethod\n"
    "  def setup_class(cls): cls.log.append(0)\n"
    "  def teardown_method(self, method): self.log.append(method.__name__)\n"
    "  def test_b(self): assert self.log == [0]\n"
    "  def test_c(self): assert self.log == [0, 'test_b']",
    True,
  ),
  (
    "import unittest\nclass T(unittest.TestCase):\n  @classmethod\n"
    "  def setUpClass(cls): cls.x = 1\n"
    "  @unittest.skip('a')\n  def test_a(self): assert False\n"
    "  def test_b(self): self.assertEqual(self.x, 1)",
    True,
  ),
  ("pytest.main([__file__] if 0 else [])\nassert True", True),
]


@pytest.fixture(scope="module")
def under_the_stand_in(sandboxes):
  """What becomes of each row of _PYTEST; all run at once."""
  codes = [f"import pytest\n{test}\n" for test, _ in _PYTEST]
  made = _make(sandboxes, *((KODCODE, {"test_code": code}) for code in codes))
  return {test: result for (test, _), result in zip(_PYTEST, made)}


@pytest.mark.parametrize(("test", "passes"), _PYTEST)
def test_the_stand_in_runs_what_pytest_would(under_the_stand_in, test, passes):
  made = under_the_stand_in[test]
  assert made.passes is passes, made.detail


def test_an_answer_that_depends_on_order_is_left_out(sandboxes):
  """The whole test passes; alone, a call gives another answer."""
  solution = "seen = []\ndef f(x):\n  seen.append(x)\n  return len(seen)\n"
  stateful = solution + "def g(x): return x"
  test = (
    "assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3\nassert g(1) == 1"
  )
  made = _one(
    sandboxes, KODCODE, solution=stateful, test_code=test, test_info=None
  )
  assert made.passes and made.reason == _UNSURE
  assert made.detail == "1 asserts of another shape, 3 not deterministic"
  twice = "def f(x): return sorted(x)"
  test = "x = [2, 1]\nf(x)\nx.append(0)\nassert f(x) == [0, 1, 2]\n"
  made = _one(
    sandboxes, KODCODE, solution=twice, test_code=test, test_info=None
  )
  assert made.reason == _UNSURE
  assert made.detail == "1 another answer than the row's"


def test_a_problem_of_ours_may_lack_tests(sandboxes):
  made = _one(sandboxes, OWN, golden_tests=[])
  assert made.problem.golden_tests == () and not made.reason


def test_an_mbpp_row_becomes_a_problem(sandboxes):
  changes = {
    "data_source": "mbppplus",
    "problem": "no Python",
    "GT_code": "def halve(): pass\ndef halve(xs):\n  'Other.'\n"
    "  return [x / 2 for x in xs]",
  }
  made = _one(sandboxes, EVALPLUS, **changes)
  assert made.problem.question == "the helper's description"
  assert made.problem.signature == "def halve(xs):"
  assert made.problem.ground_truth == changes["GT_code"]


def test_real_rows_become_problems(sandboxes):
  names = ("HumanEval/0", "HumanEval/32", "MBPP/6", "MBPP/56", "MBPP/124")
  rows = {r["extra_info"]["question_id"]: r for r in evalplus_rows.load()}
  drafts = [FORMATS["code_a1"].draft(n, rows[n]) for n in names]
  results = making.make_problems(drafts, sandboxes, 4)
  made = [result.problem for result in results]
  assert [problem.id for problem in made] == list(names)
  assert all(len(problem.golden_tests) == 4 for problem in made)
  assert made[1].question.startswith("xs are coefficients of a polynomial.")
  assert "def poly(xs: list, x: float):" in made[1].signature
  assert made[2].entry_point == "differ_At_One_Bit_Pos"
  assert made[0].golden_tests[1] == TestCase(
    "has_close_elements([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.05)", "False"
  )
