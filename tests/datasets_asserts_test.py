"""Calls in tests that are Python source."""

import pytest

from codea1_jax.datasets import asserts
from codea1_jax.datasets.draft import Found


@pytest.mark.parametrize(
  ("source", "calls"),
  [
    ("assert f(1) == 2, 'said'", {"f(1)": "2"}),
    ("assert f( [1,2], k = 'a' ) is None", {"f([1, 2], k='a')": "None"}),
    ("def test_a():\n  assert f(1) == -1.5", {"f(1)": "-1.5"}),
    ("class TestF:\n  def test_a(self): assert f(1) == 2", {"f(1)": "2"}),
    ("x = [1]\ndef test_a():\n  assert f(x) == x", {"f([1])": "[1]"}),
    ("y = f(1)\nassert y == 2", {"f(1)": "2"}),
    ("x = 3\ny = f(x)\nz = {'a': x}\nassert y == z", {"f(3)": "{'a': 3}"}),
    ("x = 3\nx = g()\nassert f(x) == 2", {}),
    ("x: int = 3\nassert f(x) == 2", {}),  # not read: it costs that test
    ("assert not f(1)", {"f(1)": None}),
    ("assert abs(f(1) - 0.1) < 1e-9 or f(2)", {"f(1)": None, "f(2)": None}),
    ("with raises(ValueError):\n  f(-1)", {"f(-1)": None}),
    ("for x in f(3):\n  assert f(x) == f(x + 1)", {"f(3)": None}),
    ("if True:\n  pass\nelse:\n  assert f(1) == 2", {"f(1)": "2"}),
    (
      "try:\n  f(1)\nexcept E:\n  f(2)\nfinally:\n  f(3)",
      {"f(1)": None, "f(2)": None, "f(3)": None},
    ),
    ("match 1:\n  case 1: f(1)", {"f(1)": None}),
    ("assert g(f(1)) == 2", {"f(1)": None}),
    ("assert o.f(1) == 2", {}),
    ("assert f('a' * 9) == 1", {}),
    ("f(1)\nassert f(1) == 2\nassert f(1) == 3", {"f(1)": "2"}),
    ("assert f(", {}),
  ],
)
def test_calls_of_a_source(source, calls):
  found, _ = asserts.find_calls([source], "f")
  assert {f.call: f.expected for f in found} == calls
  assert len(found) == len(calls)


def test_names_of_a_function_are_its_own():
  source = """
x = 1
def test_a():
  x = 2
  assert f(x) == 4
def test_b():
  assert f(x) == 1
"""
  found, left_out = asserts.find_calls([source, "assert f(x) == 9"], "f")
  assert found == (Found("f(2)", "4"), Found("f(1)", "1"))
  assert left_out == {"asserts of another shape": 1}  # no x in the second


def test_values_do_not_grow_without_end():
  """Each line doubles the value: 2 ** 60 items if it were followed."""
  lines = ["x0 = [0]"] + [f"x{k} = [x{k - 1}, x{k - 1}]" for k in range(1, 61)]
  found, left_out = asserts.find_calls(
    ["\n".join(lines) + "\nf(x3)\nf(x60)"], "f"
  )
  assert len(found) == 1 and found[0].call.count("0") == 8
  assert not left_out


def test_the_most_called_function_and_the_first_of_equals():
  sources = ["assert g(1) == 1", "assert g(2) == f(1)", "assert h(1)"]
  assert asserts.most_called(["f", "g", "h"], sources) == "g"
  assert asserts.most_called(["h", "f"], sources) == "h"
  assert asserts.most_called(["f", "h"], sources) == "f"
