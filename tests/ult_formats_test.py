"""Which part of an answer is the test: the published rules, and ours."""

import pytest

from codea1_jax.ult import formats

PLAIN = """\
Here is one:
```python
import pytest

def test_clip():
    # below
    assert clip(1, 2, 5) == 2
    assert clip(9, 2, 5) == 5
```
It checks both ends."""
KEPT = "def test_clip_0():\n    assert clip(1, 2, 5) == 2"
WHOLE = KEPT.replace("_0", "")
WRONG = "def test_clip_0():\n    assert 1 == 0"
HALF = PLAIN[: PLAIN.index(" == 5")]  # a complete statement, but another
MULTI_LINE = """\
```python
def test_clip():
    assert clip(
        1, 2, 5
    ) == 2
```"""
RAISES = """\
```python
import pytest
def test_clip():
    with pytest.raises(TypeError):
        clip("a", 2, 5)
```"""
LOOP = """\
```python
def test_clip():
    for x in (1, 2):
        assert clip(x, 2, 5) == 2
```"""
HELPER = """\
```python
def low():
    return 2

def test_clip():
    assert clip(1, low(), 5) == low()
```"""
BARE = "```python\nx = 1\nassert clip(x, 2, 5) == 2\nassert x\n```"
UNNAMED = """\
```python
def check():
    assert clip(1, 2, 5) == 2
    assert clip(3, 2, 5) == 3
check()
```"""
CLASS = """\
```python
class TestClip:
    def test_nothing(self):
        pass

    def setup_method(self):
        self.low = 2

    def test_low(self):
        assert clip(1, 2, 5) == 2
        assert clip(1, 3, 5) == 3

    def test_high(self):
        assert clip(9, 2, 5) == 5
```"""
FIRST_METHOD = """\
class TestClip:

    def setup_method(self):
        self.low = 2

    def test_low(self):
        assert clip(1, 2, 5) == 2"""
SETUP = """\
```python
def test_clip():
    assert True
    low = 2
    found = clip(1, low, 5)
    assert found == low
    assert found != 5
```"""
CUT = """\
```python
def test_clip():
    assert clip(1, 2, 5) == 2

def test_again():
    assert clip(1, 2, [5, 5, 5,"""
OWN_COPY = """\
```python
def clip(x, low, high):
    return 2

def test_clip():
    assert clip(1, 2, 5) == 2
```"""


def body(answer):
  return answer.split("```python\n")[1].split("\n```")[0]


@pytest.mark.parametrize(
  "answer, published, complete",
  [
    (PLAIN, KEPT, f"import pytest\n\n{WHOLE}"),
    (MULTI_LINE, WRONG, WHOLE),
    (RAISES, WRONG, "import pytest\n\ndef test_clip():\n    with pytest.raises("
     "TypeError):\n        clip('a', 2, 5)"),
    (LOOP, WRONG, body(LOOP)),
    # The helper is dropped, and the test fails for the lack of it.
    (HELPER, "def test_clip_0():\n    assert clip(1, low(), 5) == low()",
     body(HELPER)),
    (BARE, "def test_clip_0():\n    x = 1\n    assert clip(x, 2, 5) == 2",
     "x = 1\nassert clip(x, 2, 5) == 2"),
    (UNNAMED, KEPT, body(UNNAMED)),
    # From the first "def test" on, and the first function is made the test.
    (CLASS, "def test_clip_0(self):\n    pass\n\ndef setup_method(self):\n"
     "    self.low = 2\n\ndef test_low(self):\n    assert clip(1, 2, 5) == 2",
     FIRST_METHOD),
    (SETUP, "def test_clip_0():\n    assert True",
     body(SETUP).replace("\n    assert found != 5", "")),
    (CUT, KEPT, WHOLE),
    (HALF, KEPT, f"import pytest\n\n{WHOLE}"),
    (OWN_COPY, KEPT, WHOLE),
    # An assert on the last line ends the test at the first of all asserts.
    ("assert x\ndef test_a():\n    assert clip(1) == 2", WRONG,
     "assert x\n\ndef test_a():\n    assert clip(1) == 2"),
    ("def test_a():\n  print(clip(1))", WRONG, None),
    ("```python\nasync def test_a():\n  assert clip(1)\n```", WRONG, None),
    (UNNAMED.replace("\ncheck()", ""), KEPT, None),
    ("def test_a():\n  assert 1 == 1\n", WRONG[:-1] + "1", None),
    ("I cannot.", WRONG, None),
    ("```python\n" + "(" * 5000 + "\n```", WRONG, None),
  ],
  ids=["plain", "multi-line", "raises", "loop", "helper", "bare", "unnamed",
       "class", "setup", "cut", "cut in a test", "own copy", "last line",
       "no assert", "async", "never called", "not about it", "prose",
       "brackets"],
)  # fmt: skip
def test_what_counts(answer, published, complete):
  assert formats.published(answer, "clip", 0) == published
  assert formats.complete(answer, "clip") == complete


def test_one_test_of_several():
  answer = """\
```python
import unittest
def test_clip():
    helper()
def test_low():
    assert clip(1, 2, 5) == 2
def test_high():
    assert clip(9, 2, 5) == 5
def helper():
    pass
test_low()
test_high()
if __name__ == "__main__":
    unittest.main()
```"""
  kept = formats.complete(answer, "clip")
  assert kept.split("\n\n") == [
    "import unittest",
    "def test_low():\n    assert clip(1, 2, 5) == 2",
    "def helper():\n    pass",
  ]


def test_the_first_function_becomes_the_published_test():
  """Also where it is a helper: the assert's own function is then no test."""
  answer = "```python\ndef help(): pass\ndef check():\n  assert clip(1)\n```"
  kept = formats.published(answer, "clip", 3)
  assert kept.startswith("def test_clip_3():\n    pass")
  assert "def check():" in kept
