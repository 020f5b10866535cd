"""The building blocks that the generated problems are composed of.

A problem reads a source (a list, a string, ...), keeps some elements, changes
each, and finishes with a summary. Every block knows its English and its right
code, and the wrong code that a hurried programmer writes instead.
"""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

SIZES = ("small", "usual", "large")  # of inputs


@dataclasses.dataclass(frozen=True)
class Form:
  """One way to write a block; `helper` is a local function it calls."""

  code: str
  helper: str = ""


@dataclasses.dataclass(frozen=True)
class Block:
  """A filter, a map or a finisher: what it says, does, and gets wrong.

  `forms[0]` is right, the others are faulty. `{c}` stands for the constant
  drawn from `constants`, `{L}` for the list that a finisher summarizes.
  """

  name: str
  phrase: str
  forms: tuple[Form, ...]
  constants: tuple[int, ...] = ()
  takes: str = ""  # element type a finisher takes
  gives: str = ""  # element type a map gives


@dataclasses.dataclass(frozen=True)
class Source:
  """Where the elements come from, and random inputs of it."""

  name: str
  signature: str
  noun: str  # "numbers in xs"
  variable: str  # loop variable
  iterables: tuple[str, ...]  # the first is right, the others are faulty
  element: str  # element type before any map
  filters: tuple[Block, ...]
  maps: tuple[Block, ...]
  edges: tuple[tuple[Any, ...], ...]  # argument tuples worth trying always
  draw: Callable[[random.Random, str], tuple[Any, ...]]  # (rng, SIZES)


def _block(name, phrase, *codes, constants=(), takes="", gives=""):
  forms = tuple(c if isinstance(c, Form) else Form(c) for c in codes)
  return Block(name, phrase, forms, tuple(constants), takes, gives)


def _helper(name, right, *wrong):
  return tuple(
    Form(f"{name}(x)", f"def {name}(x):\n    return {body}")
    for body in (right, *wrong)
  )


NUMBER_FILTERS = (
  _block("even", "even", "x % 2 == 0", "x % 2 == 1", "x % 2"),
  _block("odd", "odd", "x % 2 == 1", "x % 2 == 0", "x % 3 == 1"),
  _block("positive", "positive", "x > 0", "x >= 0", "x > 1"),
  _block("negative", "negative", "x < 0", "x <= 0", "x > 0"),
  _block("nonzero", "not zero", "x != 0", "x > 0", "x == 0"),
  _block(
    "above", "greater than {c}", "x > {c}", "x >= {c}", "x < {c}",
    constants=(1, 2, 3, 4, 5),
  ),
  _block(
    "below", "less than {c}", "x < {c}", "x <= {c}", "x > {c}",
    constants=(1, 2, 3, 4, 5),
  ),
  _block(
    "multiple", "divisible by {c}", "x % {c} == 0", "x % {c} == 1",
    "x // {c} == 0", constants=(3, 4, 5),
  ),
  _block(
    "prime", "prime",
    *_helper(
      "prime",
      "x > 1 and all(x % d for d in range(2, x))",
      "all(x % d for d in range(2, x))",
      "x > 1 and all(x % d for d in range(1, x))",
      "x > 2 and all(x % d for d in range(2, x))",
    ),
  ),
  _block(
    "square_number", "perfect squares",
    *_helper(
      "square",
      "any(r * r == x for r in range(x + 1))",
      "any(r * r == x for r in range(1, x + 1))",
      "any(r * r == x for r in range(x))",
    ),
  ),
)  # fmt: skip

NUMBER_MAPS = (
  _block("double", "double", "x * 2", "x * x", "x + 2", gives="int"),
  _block("square", "square", "x * x", "x * 2", "x + x", gives="int"),
  _block("negate", "negate", "-x", "abs(x)", "x", gives="int"),
  _block("absolute", "take the absolute value of", "abs(x)", "-x", "x",
         gives="int"),
  _block("add", "add {c} to", "x + {c}", "x + {c} + 1", "x - {c}",
         constants=(1, 2, 3), gives="int"),
  _block("subtract", "subtract {c} from", "x - {c}", "{c} - x", "x + {c}",
         constants=(1, 2, 3), gives="int"),
  _block("remainder", "take the remainder by {c} of", "x % {c}", "x // {c}",
         "x % ({c} + 1)", constants=(2, 3, 4), gives="int"),
  _block("cap", "cap at {c}", "min(x, {c})", "max(x, {c})",
         "min(x, {c} - 1)", constants=(3, 4, 5), gives="int"),
  _block(
    "digit_sum", "take the digit sum of",
    *_helper(
      "digits",
      "sum(int(d) for d in str(abs(x)))",
      "sum(int(d) for d in str(x))",
      "len(str(abs(x)))",
    ), gives="int",
  ),
  _block(
    "divisors", "count the divisors of",
    *_helper(
      "divisors",
      "sum(x % d == 0 for d in range(1, x + 1))",
      "sum(x % d == 0 for d in range(1, x))",
      "sum(x % d == 0 for d in range(2, x + 1))",
    ), gives="int",
  ),
)  # fmt: skip

CHARACTER_FILTERS = (
  _block("vowel", "vowels", 'x in "aeiou"', 'x not in "aeiou"',
         'x in "aeio"'),
  _block("not_vowel", "not vowels", 'x not in "aeiou"', 'x in "aeiou"',
         'x not in "aeio"'),
  _block("digit", "digits", "x.isdigit()", "x.isalpha()", "x.isalnum()"),
  _block("letter", "letters", "x.isalpha()", "x.isdigit()", "x.isalnum()"),
  _block("upper", "uppercase", "x.isupper()", "x.islower()", "x.isalpha()"),
  _block("lower", "lowercase", "x.islower()", "x.isupper()",
         "not x.isupper()"),
  _block("not_space", "not spaces", 'x != " "', 'x == " "', "x.isalpha()"),
)  # fmt: skip

CHARACTER_MAPS = (
  _block("to_upper", "uppercase", "x.upper()", "x.lower()", "x",
         gives="char"),
  _block("to_lower", "lowercase", "x.lower()", "x.upper()", "x",
         gives="char"),
  _block("swap_case", "swap the case of", "x.swapcase()", "x.upper()", "x",
         gives="char"),
  _block("twice", "repeat {c} times", "x * {c}", "x * ({c} - 1)",
         "x * ({c} + 1)", constants=(2, 3), gives="char"),
)  # fmt: skip

WORD_FILTERS = (
  _block("longer", "longer than {c}", "len(x) > {c}", "len(x) >= {c}",
         "len(x) < {c}", constants=(1, 2, 3)),
  _block("shorter", "shorter than {c}", "len(x) < {c}", "len(x) <= {c}",
         "len(x) > {c}", constants=(3, 4, 5)),
  _block("vowel_start", "starting with a vowel", 'x[0] in "aeiou"',
         'x[-1] in "aeiou"', 'x[0] not in "aeiou"'),
  _block("has_a", 'containing "a"', '"a" in x', '"a" not in x',
         'x[0] == "a"'),
  _block("even_length", "of even length", "len(x) % 2 == 0",
         "len(x) % 2 == 1", "len(x) % 2"),
)  # fmt: skip

WORD_MAPS = (
  _block("word_upper", "uppercase", "x.upper()", "x.lower()", "x",
         gives="word"),
  _block("word_reverse", "reverse", "x[::-1]", "x[::1]", "x[1:]",
         gives="word"),
  _block("initial", "take the first letter of", "x[0]", "x[-1]", "x[:2]",
         gives="word"),
  _block("word_length", "take the length of", "len(x)", "len(x) - 1",
         "len(x) + 1", gives="int"),
  _block("drop_first", "drop the first letter of", "x[1:]", "x[:-1]",
         "x[0:]", gives="word"),
)  # fmt: skip

ITEM_FILTERS = (
  _block("value_even", "with an even value", "v % 2 == 0", "v % 2 == 1",
         "v % 2"),
  _block("value_positive", "with a positive value", "v > 0", "v >= 0",
         "v < 0"),
  _block("value_negative", "with a negative value", "v < 0", "v <= 0",
         "v > 0"),
  _block("value_above", "with a value greater than {c}", "v > {c}",
         "v >= {c}", "v < {c}", constants=(1, 2, 3, 4)),
  _block("key_long", "with a key longer than {c}", "len(k) > {c}",
         "len(k) >= {c}", "len(k) < {c}", constants=(1, 2)),
)  # fmt: skip

ITEM_MAPS = (
  _block("keys", "take the key of", "k", "v", "k[:1]", gives="word"),
  _block("values", "take the value of", "v", "k", "abs(v)", gives="int"),
  _block("value_square", "square the value of", "v * v", "v * 2", "v",
         gives="int"),
  _block("pair_double", "double the value of", "(k, v * 2)", "(k, v)",
         "(k, v * v)", gives="pair"),
  _block("pair_add", "add {c} to the value of", "(k, v + {c})",
         "(k, v - {c})", "(k, v)", constants=(1, 2, 3), gives="pair"),
  _block("pair_negate", "negate the value of", "(k, -v)", "(k, abs(v))",
         "(k, v)", gives="pair"),
)  # fmt: skip

PAIR_FILTERS = (
  _block("ascending", "with a < b", "a < b", "a <= b", "a > b"),
  _block("descending", "with a > b", "a > b", "a >= b", "a < b"),
  _block("equal", "with a == b", "a == b", "a != b", "a <= b"),
  _block("different", "with a != b", "a != b", "a == b", "a < b"),
  _block("even_sum", "with an even sum", "(a + b) % 2 == 0",
         "(a + b) % 2 == 1", "a % 2 == 0"),
)  # fmt: skip

PAIR_MAPS = (
  _block("pair_sum", "add up", "a + b", "a - b", "a * b", gives="int"),
  _block("pair_product", "multiply", "a * b", "a + b", "a * a",
         gives="int"),
  _block("pair_larger", "take the larger of", "max(a, b)", "min(a, b)", "a",
         gives="int"),
  _block("pair_smaller", "take the smaller of", "min(a, b)", "max(a, b)",
         "b", gives="int"),
  _block("pair_gap", "take the distance of", "abs(a - b)", "a - b", "b - a",
         gives="int"),
)  # fmt: skip

FINISHERS = (
  _block("list", "them as a list", "{L}", "{L}[1:]", "{L}[::-1]",
         takes="int word"),
  _block("reverse", "them in reverse order", "{L}[::-1]", "{L}[::1]",
         "sorted({L})[::-1]", takes="int word"),
  _block("sorted", "them sorted", "sorted({L})", "sorted({L})[::-1]", "{L}",
         takes="int word pair"),
  _block("unique", "them without repeats", "list(dict.fromkeys({L}))",
         "sorted(set({L}))", "{L}", takes="int word"),
  _block("first", "the first {c} of them", "{L}[:{c}]", "{L}[:{c} - 1]",
         "{L}[{c}:]", constants=(2, 3), takes="int word"),
  _block("last", "the last {c} of them", "{L}[-{c}:]", "{L}[:-{c}]",
         "{L}[-{c} - 1:]", constants=(2, 3), takes="int word"),
  _block("second", "every second of them", "{L}[::2]", "{L}[1::2]",
         "{L}[:2]", takes="int word"),
  _block("count", "how many there are", "len({L})", "len({L}) - 1",
         "len(set({L}))", takes="int char word pair"),
  _block("sum", "their sum", "sum({L})", "len({L})", "sum({L}[1:])",
         takes="int"),
  _block("largest", "the largest or 0", "max({L}, default=0)", "max({L})",
         "min({L}, default=0)", takes="int"),
  _block("smallest", "the smallest or 0", "min({L}, default=0)",
         "min({L})", "max({L}, default=0)", takes="int"),
  _block("head", "the first or -1", "next(iter({L}), -1)", "{L}[0]",
         "next(iter({L}), 0)", takes="int"),
  _block("span", "largest minus smallest or 0",
         "max({L}, default=0) - min({L}, default=0)",
         "max({L}) - min({L})", "max({L}, default=0)", takes="int"),
  _block("join", "them as a string", '"".join({L})', '"".join({L}[1:])',
         '" ".join({L})', takes="char word"),
  _block("join_reverse", "them as a reversed string", '"".join({L}[::-1])',
         '"".join({L})', '"".join(sorted({L}))', takes="char"),
  _block("join_unique", "them as a string without repeats",
         '"".join(dict.fromkeys({L}))', '"".join({L})',
         '"".join(sorted(set({L})))', takes="char"),
  _block("join_sorted", "them as a sorted string", '"".join(sorted({L}))',
         '"".join({L})', '"".join(sorted({L})[::-1])', takes="char"),
  _block("longest", "the longest or an empty string",
         'max({L}, key=len, default="")', "max({L}, key=len)",
         'min({L}, key=len, default="")', takes="word"),
  _block("dict", "them as a dict", "dict({L})", "dict({L}[1:])", "{L}",
         takes="pair"),
)  # fmt: skip

_WORDS = ("a", "ox", "cat", "sky", "tree", "apple", "under", "Bee", "is")
_LETTERS = "abeioxyzAEX12 "
_KEYS = ("a", "b", "cc", "key", "x")


def _numbers(rng, size):
  """Ints of a list: how many and how far from 0 depends on the size."""
  if size == "small":
    count, low, high = rng.choice((1, 1, 2, 2, 3)), -5, 9
  elif size == "usual":
    count, low, high = rng.choice((1, 2, 2, 3, 3, 4)), -9, 9
  else:
    count, low, high = rng.randint(5, 9), -40, 40
  return [rng.randint(low, high) for _ in range(count)]


def _draw_list(rng, size):
  return (_numbers(rng, size),)


def _draw_text(rng, size):
  low, high = {"small": (1, 3), "usual": (1, 5), "large": (8, 14)}[size]
  count = rng.randint(low, high)
  return ("".join(rng.choice(_LETTERS) for _ in range(count)),)


def _draw_words(rng, size):
  low, high = {"small": (1, 2), "usual": (1, 3), "large": (4, 7)}[size]
  count = rng.randint(low, high)
  return (" ".join(rng.choice(_WORDS) for _ in range(count)),)


def _draw_digits(rng, size):
  if size == "small":
    return (rng.randint(0, rng.choice((9, 99, 99, 999))),)
  return (rng.randint(0, 9999) if size == "usual" else _large(rng),)


def _large(rng):
  return rng.randint(10**5, 10**9)


def _draw_limit(rng, size):
  low, high = {"small": (1, 6), "usual": (1, 8), "large": (12, 30)}[size]
  return (rng.randint(low, high),)


def _draw_dict(rng, size):
  fewest, most = {"small": (1, 2), "usual": (1, 3), "large": (4, 5)}[size]
  count = rng.randint(fewest, most)
  low, high = {"small": (-5, 9), "usual": (-9, 9), "large": (-40, 40)}[size]
  keys = rng.sample(_KEYS, count)
  return ({k: rng.randint(low, high) for k in keys},)


def _draw_pairs(rng, size):
  xs = _numbers(rng, size)
  if size == "small":
    xs = xs[:2]
  top = {"small": 9, "usual": 9, "large": 40}[size]
  ys = [x if rng.random() < 0.25 else rng.randint(-top, top) for x in xs]
  return (xs, ys)


SOURCES = (
  Source("list", "def solve(xs):", "numbers in xs", "x", ("xs",), "int",
         NUMBER_FILTERS, NUMBER_MAPS,
         (([],), ([0],), ([-1],), ([1],), ([2],), ([5, 5],), ([0, 0, 3],),
          ([1, 2, 3, 4],), ([-3, 3],), ([4, 9, -4],)), _draw_list),
  Source("text", "def solve(s):", "characters of s", "x", ("s", "s[1:]"),
         "char", CHARACTER_FILTERS, CHARACTER_MAPS,
         (("",), ("a",), ("X",), ("1",), (" ",), ("aa",), ("aB1",),
          ("u u",), ("Eex",)), _draw_text),
  Source("words", "def solve(s):", "words of s", "x",
         ("s.split()", 's.split(" ")[1:]'), "word", WORD_FILTERS, WORD_MAPS,
         (("",), ("a",), ("cat",), ("ox ox",), ("is a",), ("Bee under",),
          ("apple tree sky",)), _draw_words),
  Source("digits", "def solve(n):", "digits of n", "x",
         ("map(int, str(n))", "map(int, str(n)[1:])"), "int",
         NUMBER_FILTERS, NUMBER_MAPS,
         ((0,), (1,), (2,), (5,), (9,), (10,), (11,), (100,), (1234,)),
         _draw_digits),
  Source("range", "def solve(n):", "numbers from 1 to n", "x",
         ("range(1, n + 1)", "range(1, n)", "range(n)"), "int",
         NUMBER_FILTERS, NUMBER_MAPS,
         ((0,), (1,), (2,), (3,), (4,), (5,), (-1,), (10,)), _draw_limit),
  Source("dict", "def solve(d):", "items of d", "k, v", ("d.items()",),
         "item", ITEM_FILTERS, ITEM_MAPS,
         (({},), ({"a": 0},), ({"a": 1},), ({"b": -1},), ({"cc": 2},),
          ({"a": 3, "b": 3},), ({"key": -2, "x": 4},)), _draw_dict),
  Source("pairs", "def solve(xs, ys):", "pairs (a, b) of xs and ys", "a, b",
         ("zip(xs, ys)", "zip(xs, ys[1:])", "zip(ys, xs)"), "pair_of_int",
         PAIR_FILTERS, PAIR_MAPS,
         (([], []), ([0], [0]), ([1], [2]), ([2], [1]), ([-1], [1]),
          ([1, 2], [2, 1]), ([3, 3], [3, 4])), _draw_pairs),
)  # fmt: skip
