"""Completion text -> programs and tests."""

import ast
import json
import pathlib
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from codea1_jax import parsing
from codea1_jax.types import TestCase

FIXTURES = (
  pathlib.Path(__file__).parents[2]
  / "shared"
  / "fixtures"
  / "reference_fixtures.json"
)
needs_fixtures = pytest.mark.skipif(
  not FIXTURES.exists(), reason="the paper's fixtures are not in this checkout"
)
# Inside the quotes or brackets that they leave open, the next tests must live.
BROKEN_LINES = (
  "assert f([1, 2 == 3",
  "assert f('a == 3",
  "assert f('''a) == 3",
  "assert f(1) == ",
  "assert f(1)) == 2",
  "assert f(1) == 1 \\",
  "assert that f works",
  "assert f('\0') == 1",
  "assert f('\ud800') == 1",
)
PIECES = (
  *["\n", "```", "python\n", "assert", "f(", ")", "[", "'", '"""', "==", "1"],
  "\nassert f(1) == 1\n",
)
BOMBS = {
  "open brackets": "(\n" * 30_000,
  "closed and opened": ")(\n" * 20_000,
  "continued lines": "\\\n" * 30_000,
  "triple quotes": "'''\n" * 16_000,
  "deep": "assert f(" + "[" * 30_000,
  "minus": "assert f(" + "-" * 60_000 + "1) == 1",
  "sums": "assert f(" + "1+" * 30_000 + "1) == 1",
  "calls": "assert f" + "()" * 30_000 + " == 1",
  "lambdas": "assert f(" + "lambda:" * 9_000 + "1) == 1",
  "hex": "assert f(0x" + "f" * 60_000 + ") == 1",
  "digits": "assert f(" + "9" * 60_000 + ") == 1",
  "indents": "".join(" " * i + "if x:\n" for i in range(340)),
  "fences": "```\n" * 16_000,
  "power": "assert f(9**9**9) == 1",
}


def fixture(section):
  return json.loads(FIXTURES.read_text())[section]


def block(*lines):
  return "```python\n" + "\n".join(lines) + "\n```"


def sources(completion, max_tests=None):
  suite = parsing.parse_suite(completion, "f", max_tests)
  return [test.source for test in suite.tests]


def is_test(statement):
  """Whether one statement is a test; checks that it is counted if not."""
  suite = parsing.parse_suite(block(statement), "f", None)
  assert len(suite.tests) + suite.num_unparsed == 1
  assert len(suite.tests) == (parsing.parse_test(statement, "f") is not None)
  return bool(suite.tests)


@needs_fixtures
def test_code_extraction_matches_the_published_program():
  cases = fixture("code_extraction")
  assert len(cases) == 3
  for case in cases:
    text = parsing.extract_code_text(case["completion"], bare_fence=False)
    assert text == case["code"]


@needs_fixtures
def test_bare_fence_is_where_we_differ_from_the_published_program():
  case = fixture("code_extraction")[1]
  assert case["code"] == case["completion"]  # theirs takes the fences as code
  ours = parsing.extract_code(case["completion"], "f")
  assert (ours.source, ours.error) == ("def f(x):\n    return x", "")
  theirs = parsing.extract_code(case["completion"], "f", bare_fence=False)
  assert "does not compile" in theirs.error


@needs_fixtures
def test_test_extraction_matches_the_published_program():
  cases = fixture("test_extraction")
  assert len(cases) == 4
  for case in cases:
    assert parsing.extract_asserts(case["completion"]) == case["asserts"]
    assert sources(case["completion"]) == case["asserts"]


@pytest.mark.parametrize(
  ("completion", "code"),
  [
    ("```\na\n```\n```python\nb\n```\n```python\nc\n```", "b"),
    ("```text\na\n```\nso\n```\nb\n```", "b"),  # a closing fence opens nothing
    ("Sure: ```python\nb\n```", "b"),
    ("```Python \r\nb\r\nc\r\n```", "b\nc"),
    ("```python\nb = 1", "b = 1"),  # cut by the length limit
    ("```python\ns = '```'\nb\n```", "s = '```'\nb"),
    ("use ```x``` or\n b ", "use ```x``` or\n b"),
    ("", ""),
  ],
)
def test_which_block_is_the_code(completion, code):
  assert parsing.extract_code_text(completion) == code


@pytest.mark.parametrize(
  "source",
  [
    "def f(): pass",
    "class f: pass",
    "f = 1",
    "f, g = 1, 2",
    "f: int = 1",
    "try:\n  import z\n  def f(): pass\nexcept ImportError:\n  f = None",
    "try:\n  from z import f\nexcept ImportError:\n  def f(): pass",
  ],
)
def test_programs_that_define_the_entry_point(source):
  assert parsing.extract_code(source, "f").error == ""


@pytest.mark.parametrize(
  ("source", "error"),
  [
    ("def g():\n  def f(): pass", "does not define 'f'"),
    ("from x import f", "does not define 'f'"),
    ("f", "does not define 'f'"),
    ("", "does not define 'f'"),
    ("def f(x) return x", "SyntaxError"),
    ("return 1\ndef f(): pass", "outside function"),  # parses, won't compile
    ("def f(): pass\0", "does not compile"),
    ("def f(): return '\ud800'", "does not compile"),
    ("def f(): pass\n" + "#" * parsing.MAX_SOURCE, "longer than 65536"),
    ("def f(): return " + "(" * 101 + ")" * 101, "nested deeper than 100"),
  ],
)
def test_programs_that_are_none(source, error):
  assert error in parsing.extract_code(source, "f").error


@pytest.mark.parametrize(
  ("statement", "normalized"),
  [
    ("assert f( 1,k = 0x10 )==2", "assert f(1, k=16) == 2"),
    ("assert f(1) == 2, 'message'", "assert f(1) == 2"),
    ("assert (f(1) == 2)", "assert f(1) == 2"),
    ("assert f(1) is None", "assert f(1) == None"),
    ("assert f(1) is True", "assert f(1) == True"),
    ("assert f(1) is False", "assert f(1) == False"),
    ('assert f(u"a") == "b" "c"', "assert f('a') == 'bc'"),
    ("assert f(-1, {1: (2,)}) == -2.50", "assert f(-1, {1: (2,)}) == -2.5"),
    ("assert f(set(), {1, 2}) == set()", "assert f(set(), {1, 2}) == set()"),
    ("assert f(1+2j) == b'x'", "assert f(1 + 2j) == b'x'"),
    ("assert f() == 1, 2", "assert f() == 1"),
    ("assert f(1) == (1, 2)", "assert f(1) == (1, 2)"),
  ],
)
def test_spellings_of_a_test(statement, normalized):
  assert sources(block(statement)) == [normalized]
  assert is_test(statement)
  assert ast.unparse(ast.parse(normalized)) == normalized


@pytest.mark.parametrize(
  "statement",
  [
    "assert f(1) != 2",
    "assert f(1)",
    "assert not f(1)",
    "assert f(1) + 1 == 2",
    "assert 1 == f(1)",
    "assert f(1) == 1 == 1",
    "assert f(1) is not None",
    "assert f(1) is 5",
    "assert (f(1) == 1, 'always true')",
    "assert g(1) == 1",
    "assert x.f(1) == 1",
    "assert f(float('inf')) == 1",
    "assert f(1) == float('nan')",
    "assert f(1) == x",
    "assert f(1) == [0] * 3",
    "assert f(*[1]) == 1",
    "assert f(**{'a': 1}) == 1",
    "assert f(a=1, a=2) == 1",
    "assert f({[1]: 2}) == 1",
    "assert f({[1]}) == 1",
    "assert f(...) == 1",
    "assert f(+1) == 1",
    "assert f(g(1)) == 1",
    "assert f(" + "[" * 70 + "]" * 70 + ") == 1",
    "def t(): assert f(1) == 1",
    "assert",
  ],
)
def test_statements_that_are_no_tests(statement):
  assert not is_test(statement)


def test_assignments_are_substituted_into_later_calls():
  completion = block(
    "assert f(x) == 0",  # too early
    "x = y = [1]",
    "z: dict = {'a': x}",
    "n = -1",
    "assert f(x, y, k=z) == 1",
    "assert f(-n, n) == 2",  # --1 is no literal
    "assert f([n, x]) == 3",
    "x = len(z)",
    "assert f(x) == 4",
    "y.append(2)",
    "assert f(y) == 5",
    "assert f(z) == 6",
    "z['b'] = 1",
    "assert f(z) == 7",
    "n = 5",
    "assert f(-n) == 8",
    "assert f(9) == n",  # into calls only: an answer must be written out
  )
  suite = parsing.parse_suite(completion, "f", None)
  assert [test.source for test in suite.tests] == [
    "assert f([1], [1], k={'a': [1]}) == 1",
    "assert f([-1, [1]]) == 3",
    "assert f({'a': [1]}) == 6",
    "assert f(-5) == 8",
  ]
  assert suite.num_unparsed == 6


@pytest.mark.parametrize("line", BROKEN_LINES)
@pytest.mark.parametrize("fenced", [True, False])
def test_a_broken_line_costs_that_line_only(line, fenced):
  lines = (
    "assert f(1) == 1",
    line,
    "assert f(",
    "  [2,",
    "], k='''",
    "''')==2",
  )
  good = ["assert f(1) == 1", "assert f([2], k='\\n') == 2"]
  completion = block(*lines) if fenced else "\n".join(lines)
  suite = parsing.parse_suite(completion, "f", None)
  assert [test.source for test in suite.tests] == good
  assert suite.num_unparsed == 1


def test_broken_lines_that_are_no_asserts_cost_nothing():
  completion = block("def t(:", "x = [1]", "Here are:", "assert f(x) == 1", ")")
  suite = parsing.parse_suite(completion, "f", None)
  assert suite.tests == (TestCase("f([1])", "1"),)
  assert suite.num_unparsed == 0


def test_nested_asserts_are_counted_and_their_bodies_kept_together():
  body = ("def t():", "  x = 1", "", "  assert f(1) == 1", "  assert f(2) == 2")
  for extra in ("", ")"):  # whole, and by statements
    completion = block(*body, "assert f(3) == 3", extra)
    suite = parsing.parse_suite(completion, "f", None)
    assert suite.tests == (TestCase("f(3)", "3"),)
    assert suite.num_unparsed == 2


def test_blocks_are_joined_and_prose_is_ignored_beside_them():
  completion = "\n".join(
    [
      "assert f(0) == 0",
      block("x = 1"),
      "assert f(0) == 0",
      block("assert f(x) == 1", "assert f(2"),
      block("assert f(3) == 3"),
    ]
  )
  assert sources(completion) == ["assert f(1) == 1", "assert f(3) == 3"]


def test_without_a_python_block_lines_that_start_with_assert_count():
  completion = (
    "Tests:\nx = 1\n  assert f(1) == 1\n- assert f(2) == 2\nassert f(x) == 3\n"
    "```\nassert f(\n 4) == 4\n```"
  )
  suite = parsing.parse_suite(completion, "f", None)
  assert [t.source for t in suite.tests] == [
    "assert f(1) == 1",
    "assert f(4) == 4",
  ]
  assert suite.num_unparsed == 1  # f(x): the assignment was not read


def test_reading_stops_at_the_kth_parsed_test():
  completion = block(
    "assert f(1) == 1",
    "assert f(1) != 1",
    "assert f(1) == 1",
    "assert f(2) != 2",
    "assert f(3) == 3",
  )
  counts = {
    k: (len(suite.tests), suite.num_unparsed)
    for k in (0, 1, 2, 3, None)
    for suite in [parsing.parse_suite(completion, "f", k)]
  }
  # What follows the last counted test is not even counted as unparsed.
  assert counts == {0: (0, 0), 1: (1, 0), 2: (2, 1), 3: (3, 2), None: (3, 2)}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("prefix", ["", "```python\n", "```python\n)\n"])
def test_hostile_text_is_parsed_in_bounded_time(bomb, prefix):
  start = time.process_time()
  suite = parsing.parse_suite(prefix + "assert f(7) == 7\n" + bomb, "f", None)
  assert suite.tests[0] == TestCase("f(7)", "7")
  assert len(suite.tests) == 1
  assert parsing.extract_code(prefix + bomb, "f").error
  assert time.process_time() - start < 5


def test_substitution_cannot_grow_a_test_without_bound():
  lines = ["a0 = [1]"]
  lines += [f"a{i + 1} = [{', '.join([f'a{i}'] * 50)}]" for i in range(30)]
  lines += ["assert f(a2) == 1", "assert f(a30) == 1"]
  nested = ["b0 = []", *(f"b{i + 1} = [b{i}]" for i in range(2000))]
  nested += ["assert f(b60) == 1", "assert f(b2000) == 1"]
  suite = parsing.parse_suite(block(*lines), "f", None)
  assert (len(suite.tests), suite.num_unparsed) == (1, 1)
  suite = parsing.parse_suite(block(*nested), "f", None)
  assert (len(suite.tests), suite.num_unparsed) == (1, 1)


literals = st.recursive(
  st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
  lambda inner: (
    st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(), inner, max_size=3)
    | st.sets(st.integers(), max_size=3)
  ),
  max_leaves=8,
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(argument=literals, expected=literals)
def test_any_literal_survives_and_normalizing_twice_is_once(argument, expected):
  source = f"assert f({argument!r},) == {expected!r}"
  test = parsing.parse_test(source, "f")
  call = ast.parse(test.call, mode="eval").body
  assert ast.literal_eval(call.args[0]) == argument
  assert ast.literal_eval(test.expected) == expected
  assert parsing.parse_test(test.source, "f") == test
  assert parsing.parse_suite(block(source), "f", 1).tests == (test,)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(
  st.lists(
    st.sampled_from(PIECES) | st.text(max_size=3),
    max_size=40,
  )
)
def test_no_text_raises(pieces):
  text = "".join(pieces)
  limited = parsing.parse_suite(text, "f", 2)
  whole = parsing.parse_suite(text, "f", None)
  assert limited.tests == whole.tests[:2]
  assert limited.num_unparsed <= whole.num_unparsed <= text.count("assert")
  parsing.extract_code(text, "f")


def test_nonprintable_share():
  assert parsing.nonprintable_share("") == 0
  assert parsing.nonprintable_share("a b\n\té\u4e2d") == 0
  assert parsing.nonprintable_share("ab\x00\ufffd") == 0.5
  assert parsing.nonprintable_share("\x1b\u200b\ud800a") == 0.75
