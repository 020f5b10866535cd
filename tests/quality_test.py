"""The rules that reject tests, by hand and on hostile text."""

import hypothesis
import pytest
from hypothesis import strategies as st

from codea1_jax import quality
from codea1_jax.types import TestCase

TRUTH = """
def f(): pass
def f(a, b=2, /, c=[1], *rest, k=3, unknown=len, **more):
  def f(b): pass
"""


def rejected(rules, tests, truth=TRUTH, streak=None, patience=3):
  tests = [TestCase(*test) for test in tests]
  return quality.rejected(
    rules, truth, "f", tests, streak or (lambda call: 0), patience
  )


def duplicate(calls, truth=TRUTH):
  found = rejected(["duplicate"], [(call, "0") for call in calls], truth)
  assert set(found) <= {"", "duplicate"}
  return [name == "duplicate" for name in found]


@pytest.mark.parametrize(
  ("call", "expected", "trivial"),
  [
    ("f(3)", "3", True),
    ("f(1, [2, 3])", "[2, 3]", True),
    ("f(1, k='a')", "'a'", True),
    ("f()", "3", True),
    ("f({1, 2})", "{2, 1}", True),
    ("f([])", "[]", True),  # documented: fixed points are rejected
    ("f(3)", "4", False),
    ("f([3])", "3", False),
    ("f(1)", "True", False),
    ("f(1)", "1.0", False),
    ("f([1])", "[True]", False),
    ("f([1])", "(1,)", False),
    ("f(-0.0)", "0.0", False),
    ("f([1, 2])", "[2, 1]", False),
    ("f(x)", "y", False),
    ("x", "x", False),
  ],
)
def test_trivial(call, expected, trivial):
  found = rejected(["trivial"], [(call, expected)])
  assert found == ["trivial" if trivial else ""]


@pytest.mark.parametrize(
  "same",
  [
    ("f(1)", "f(1, 2)", "f(1, 2, [1])", "f(1, c=[1])", "f(1, k=3)"),
    ("f(1, 2, c=[4], k=5)", "f(1, k=5, c=[4])", "f(1, 2, [4], k=5)"),
    ("f({1, 2})", "f({2, 1, 2})"),
    ("f({0, 8, 16})", "f({16, 8, 0})"),  # these are stored in another order
    ("f({'a': {1, 2}, 'b': 0})", "f({'b': 0, 'a': {2, 1}})"),
    ("f(1, 2, 3, 4, k=3)", "f(1, 2, 3, 4)"),
    ("f(1, z=2, y=1)", "f(1, y=1, z=2)"),
    ("f(0x10)", "f(16)"),
  ],
)
def test_one_input_in_several_spellings(same):
  assert duplicate(same) == [False] + [True] * (len(same) - 1)


@pytest.mark.parametrize(
  "different",
  [
    ("f(1)", "f(1.0)", "f(True)", "f('1')", "f(b'1')", "f(1 + 0j)"),
    ("f([1])", "f((1,))", "f({1})", "f([True])", "f({1: 1})", "f({1: 1.0})"),
    ("f(0.0)", "f(-0.0)", "f(0)"),
    ("f(x)", "f(y)", "f(1, k=x)", "f(1, k=y)"),
    ("f([1, 2])", "f([2, 1])"),
    ("f('a, b')", "f('a', 'b')", "f(['a', 'b'])", "f([\"'a','b'\"])"),
    ("f(1)", "f(1, unknown=len)", "f(1, unknown=0)"),  # default: no literal
    ("f(1, 2, 3, 4)", "f(1, 2, 3, k=4)", "f(1, 2, 3, more=4)"),
    ("f(1)", "f(1, b=2)", "f(a=1)", "f(1, a=1)"),  # by position only
    ("f(1, 2, 3, c=3)", "f(1, 2, 3)"),  # c twice: raises
    ("f(1, **{})", "f(*[1])", "f(1)"),
  ],
)
def test_different_inputs(different):
  assert duplicate(different) == [False] * len(different)


def test_without_a_signature_only_spelling_is_normalized():
  for truth in ("f = len", "class f: pass", "def g(a): pass", "def f(", ""):
    calls = ["f(1)", "f(a=1)", "f(a=1)", "f(b={1, 2}, a=0)", "f(a=0, b={2, 1})"]
    assert duplicate(calls, truth) == [False, False, True, False, True]


def test_stale_asks_for_the_call():
  streaks = {"f(1)": 2, "f(2)": 3, "f(3)": 4}
  tests = [(call, "0") for call in streaks]
  found = rejected(["stale"], tests, streak=streaks.__getitem__)
  assert found == ["", "stale", "stale"]


def test_the_first_rule_in_their_order_is_named():
  tests = [("f(0)", "0"), ("f(0)", "0"), ("f(0)", "1"), ("f(1)", "0")]
  assert rejected([], tests) == ["", "", "", ""]
  assert rejected(quality.RULES, tests) == [
    "trivial",
    "trivial",
    "duplicate",
    "",
  ]
  assert rejected(["duplicate", "trivial"], tests) == (
    ["trivial", "duplicate", "duplicate", ""]
  )
  everything = rejected(quality.RULES, tests, streak=lambda call: 9)
  assert everything == ["trivial", "trivial", "duplicate", "stale"]


def test_an_unknown_rule_is_refused():
  with pytest.raises(
    ValueError, match="'dull'; known: trivial, duplicate, stale"
  ):
    rejected(["stale", "dull"], [])


HOSTILE = [
  "f(" + "[" * 150 + "]" * 150 + ")",
  "f(" + "[" * 5_000 + "]" * 5_000 + ")",
  "f(" + "1" * 5_000 + ")",
  "f(" + "-" * 9_000 + "1)",
  "f(0x" + "f" * 60_000 + ")",
  "f({[]: 1})",
  "f('" + "a" * 70_000 + "')",
  "f(\0)",
  "f('\ud800')",
  "f(1e999, -1e999)",
  "f(1)(2)",
  "f(f(1))",
  "f(1); f(2)",
  "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_judged(text):
  expected = text.removeprefix("f(").removesuffix(")")
  found = rejected(quality.RULES, [(text, "0"), ("f(7)", text), (text, "0")])
  assert found == ["", "", "duplicate"]
  assert len(rejected(quality.RULES, [(text, expected)], truth=text)) == 1


def test_long_integers_are_compared():
  digits = "f" * 60_000
  assert rejected(["trivial"], [(f"f(0x{digits})", f"0x{digits}")]) == (
    ["trivial"]
  )
  assert duplicate([f"f(0x{digits})", f"f(0x{digits}0)"]) == [False, False]


scalars = st.one_of(
  st.none(),
  st.booleans(),
  st.integers(-2, 2),
  st.sampled_from([0.0, 1.0, -2.0]),
)
values = st.recursive(
  scalars,
  lambda inner: st.one_of(
    st.lists(inner, max_size=3),
    st.tuples(inner, inner),
    st.sets(scalars, min_size=1, max_size=3),
    st.dictionaries(scalars, inner, max_size=3),
  ),
  max_leaves=6,
)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(values, values)
def test_duplicates_are_equal_in_value_and_in_type(one, other):
  found = duplicate([f"f({one!r})", f"f({other!r})"])[1]
  assert found == _same(one, other)
  trivial = rejected(["trivial"], [(f"f({one!r})", repr(other))])
  assert (trivial == ["trivial"]) == found


def _same(one, other):
  """Equal, with equal types at every depth."""
  if type(one) is not type(other) or one != other:
    return False
  if isinstance(one, list | tuple):
    return all(map(_same, one, other))
  if isinstance(one, set):
    return all(any(_same(a, b) for b in other) for a in one)
  if isinstance(one, dict):
    return all(
      any(_same(k, j) and _same(v, w) for j, w in other.items())
      for k, v in one.items()
    )
  return True


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(
  st.lists(st.integers(0, 2), min_size=1, max_size=3), st.integers(0, 3)
)
def test_bound_inputs_are_those_of_python(arguments, by_keyword):
  """A call, its arguments moved to keywords, is the same input."""
  truth = "def f(a, b=1, c=2): return a, b, c"
  names = ["a", "b", "c"][: len(arguments)]
  cut = max(0, len(arguments) - by_keyword)
  pairs = [f"{n}={v}" for n, v in zip(names, arguments)][cut:]
  respelt = f"f({', '.join([*map(str, arguments[:cut]), *pairs[::-1]])})"
  full = f"f({', '.join(map(str, (arguments + [0, 1, 2][len(arguments) :])))})"
  scope = {}
  exec(truth, scope)
  assert eval(respelt, scope) == eval(full, scope)
  assert duplicate([respelt, full], truth) == [False, True]
