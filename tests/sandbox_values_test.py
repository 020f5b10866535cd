"""Encoding, canonical forms and equality of plain data."""

import ast
import collections
import enum
import math
import random
import subprocess
import sys
import time
import tracemalloc

import pytest

from codea1_jax.sandbox import calls, encoding, values, wire

_CHARS = 100_000
_PLAIN = [
  None,
  True,
  0,
  -1,
  255,
  -(2**64),
  10**30,
  0.5,
  -0.0,
  1e16,
  1e-7,
  math.inf,
  -math.inf,
  2j,
  -2j,
  complex(-1.5, 2),
  "",
  'it\'s "quoted"\n\\',
  "\ud800 é 😀",
  b"\x00\xff'",
  [],
  (),
  (1,),
  set(),
  {1: {"a": (True, [b"b"])}, (1, 2): {3, 1, 2}},
  [[[]], [()], {}],
  list(range(-9, 9)),
  ("a", "", "\ud800é😀", *"bcdefg"),
  [0.5, math.inf, -0.0] * 3,
  [2**63] * 8,
  [True] * 8,
  [[1] * 8, ["a"] * 8],
  [1, 2.5, -1, 0.0] * 3,
  ["a", "é", "", "\ud800"] * 5,
  [(1, 2), (), (3,)] * 4,
  tuple([["x", 'y"'], ["x"]] * 9),
  [[[1, 2.0]] * 9] * 9,
]


def _round_trip(value):
  return encoding.decode(encoding.encode(value, 10**6, 10**4), 10**4)


def _literal(text):
  return values.parse_literal(text, _CHARS)


def _equal(left, right):
  key = values.key(left)
  return key is not None and key == values.key(right)


@pytest.mark.parametrize("value", _PLAIN, ids=repr)
def test_source_is_what_unparse_writes_of_repr(value):
  text = values.source(_round_trip(value))
  wanted = repr(value).replace("inf", "1e309")
  assert text == ast.unparse(ast.parse(wanted, mode="eval"))
  assert eval(text) == value
  assert _equal(_literal(text), _round_trip(value))


def _random_value(rng, depth=0):
  scalars = [0, 1, 1.0, True, False, 2, 2.5, "a", "1", None, 1 + 0j, 1j, b"a"]
  kind = rng.randrange(7)
  if depth == 3:
    return rng.choice(scalars)
  items = [_random_value(rng, depth + 1) for _ in range(rng.randrange(3))]
  if kind <= 1:
    return rng.choice(scalars)
  if kind <= 3:
    return (list if kind == 2 else tuple)(items)
  if kind == 4:
    return {rng.choice(scalars) for _ in items}
  if kind == 5:
    return frozenset(rng.choice(scalars) for _ in items)
  return {rng.choice(scalars): item for item in items}


def test_equality_is_pythons():
  rng = random.Random(0)
  pool = [_random_value(rng) for _ in range(300)]
  trees = [_round_trip(value) for value in pool]
  pairs = [(i, j) for i in range(300) for j in range(300)]
  wrong = [
    (pool[i], pool[j])
    for i, j in pairs
    if _equal(trees[i], trees[j]) != (pool[i] == pool[j])
  ]
  assert not wrong
  assert sum(pool[i] == pool[j] for i, j in pairs if i != j) > 1000


@pytest.mark.parametrize(
  ("left", "right", "equal"),
  [
    ("1", "1.0", True),
    ("True", "1", True),
    ("[1, 2]", "(1, 2)", False),
    ("{1, 2}", "{2, 1, 1.0}", True),
    ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", True),
    ("{1: 'a', 1.0: 'b'}", "{1: 'b'}", True),
    ("0.0", "-0.0", True),
    ("9007199254740993", "9007199254740992.0", False),
    ("0.1", "0.30000000000000004 ", False),
    ("'1'", "1", False),
    ("b'a'", "'a'", False),
    ("set()", "frozenset()", True),
    ("1e309", "1e310", True),
    ("['ab', 'c']", "['a', 'bc']", False),
    ("None", "False", False),
  ],
)
def test_equality_by_hand(left, right, equal):
  assert _equal(_literal(left), _literal(right)) is equal


def test_nan_equals_nothing():
  nan = _round_trip([math.nan])
  assert values.key(nan) is None
  assert values.key(_round_trip({math.nan: 1})) is None
  assert not values.close(nan, nan, 0.1)


def test_tolerance_is_for_floats_only():
  def close(left, right):
    return values.close(_literal(left), _literal(right), 1e-6)

  assert close("[0.1, {'a': (1.0, 2)}]", "[0.1000000001, {'a': (1, 2)}]")
  assert close("0.0", "1e-7")
  assert not close("0.1", "0.1001")
  assert not close("10000000", "10000001")
  assert not close("{0.1}", "{0.1000000001}")
  assert not close("[0.1]", "(0.1,)")
  assert not close("[0.1]", "[0.1, 0.1]")
  assert not close("{'a': 0.1}", "{'b': 0.1}")
  assert not close("1e300", "1" + "0" * 400)


class _Int(int):
  pass


class _Color(enum.IntEnum):
  RED = 1


@pytest.mark.parametrize(
  "value",
  [_Int(1), _Color.RED, type("S", (str,), {})("a"), object(), [iter(())], len],
  ids=lambda value: type(value).__name__,
)
def test_only_exact_types_are_encoded(value):
  with pytest.raises(ValueError, match="not plain data"):
    encoding.encode(value, 1000, 1000)


def test_standard_dict_subclasses_travel_as_dicts():
  tree = _round_trip([collections.Counter("aab"), collections.OrderedDict(x=1)])
  assert values.source(tree) == "[{'a': 2, 'b': 1}, {'x': 1}]"


def test_encode_is_bounded():
  endless = []
  endless.append(endless)
  deep = []
  for _ in range(100_000):
    deep = [deep]
  for value in (endless, deep):
    with pytest.raises(ValueError, match="deeper than 100"):
      encoding.encode(value, 10**6, 10**6)
  for value in ("x" * 1001, "é" * 600, b"x" * 1001, 1 << 9000, [None] * 1001):
    with pytest.raises(ValueError, match="too large"):
      encoding.encode(value, 1000, 1000)
  for item in (None, 1, 0.5, "a"):
    with pytest.raises(ValueError, match="too large"):
      encoding.encode([item] * 20, 1000, 10)
    with pytest.raises(ValueError, match="too large"):
      encoding.encode([item] * 2000, 1000, 10_000)


def test_claims_become_values_again():
  for value in (*_PLAIN, {frozenset("abcdefghi"): {1, 2}}):
    back = encoding.build(_round_trip(value))
    assert back == value and type(back) is type(value)
  for data in (b"s\1\0\0\0l\0\0\0\0", b"d\1\0\0\0l\0\0\0\0N"):
    with pytest.raises(ValueError, match="unhashable"):
      encoding.build(encoding.decode(data, 10))


@pytest.mark.parametrize(
  "data",
  [
    b"",
    b"?",
    b"NN",
    b"i\x04\x00\x00\x00ab",
    b"f\x00",
    b"l\xff\xff\xff\xff",
    b"l\x02\x00\x00\x00N",
    b"u\x01\x00\x00\x00\xff",
    b"l\x01\x00\x00\x00" * 101 + b"N",
    b"l\x0b\x00\x00\x00" + b"N" * 11,
    b"pl\x0b\0\0\0q" + bytes(88),  # more items than allowed
    b"pl\2\0\0\0q" + bytes(15),
    b"pl\1\0\0\0x" + bytes(8),
    b"pd\1\0\0\0q" + bytes(8),
    b"pl\1\0\0\0m\2" + bytes(8),
    b"pl\1\0\0\0u\2\0\0\0\1\0\0\0a",  # one string of length 2
    b"pl\1\0\0\0v\1\0\0\0\1\0\0\0\1\0\0\0a\1",  # beyond the table
    b"pl\1\0\0\0v\1\0\0\0\x21\0\0\0\x21\0\0\0" + b"a" * 33 + b"\0",
    b"rls\1\0\0\0\1\0\0\0q" + bytes(8),
    b"rll\2\0\0\0\5\0\0\0\5\0\0\0q" + bytes(80),  # 12 items
  ],
  ids=repr,
)
def test_decode_refuses_broken_claims(data):
  with pytest.raises(ValueError):
    encoding.decode(data, 10)


def test_mutated_claims_raise_nothing_but_value_errors():
  rng = random.Random(1)
  seeds = [encoding.encode(value, 10**6, 10**4) for value in _PLAIN]
  seeds.append(encoding.encode([{0.5: {1, 2}}, (math.nan, 2j)] * 3, 999, 99))
  read = 0
  for _ in range(5000):
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randrange(1, 4)):
      data[rng.randrange(len(data))] = rng.choice(
        b"NTFiubfcltszdpqrmv\0\x01\xff"
      )
    try:
      tree = encoding.decode(bytes(data), 100)
    except ValueError:
      continue
    read += 1
    values.key(tree)
    values.source(tree)
    values.close(tree, tree, 0.1)
  assert read > 500


def test_colliding_integers_do_not_stall_the_judge():
  colliding = encoding.SetNode([k * (2**61 - 1) for k in range(20_000)])
  start = time.process_time()
  assert values.key(colliding) is not None
  assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
  "text",
  [
    "f(1)",
    "x",
    "1 + 1",
    "[*range(3)]",
    "{**{}}",
    "...",
    "not 1",
    "{[1]: 2}",
    "{(1, [2])}",
    "frozenset([1])",
    "set([1])",
    "nan",
    "lambda: 1",
    "f'{1}'",
    "[" * 150 + "]" * 150,
    "-" * 5000 + "1",
    "1" + "+1" * 9000,
    "1" * 5000,
    "'\x00'",
    "'\ud800'",
    "",
    "'" + "a" * _CHARS + "'",
  ],
  ids=lambda text: text[:20],
)
def test_what_is_no_literal(text):
  with pytest.raises(ValueError):
    _literal(text)


def test_what_is_simple_is_read_as_by_the_parser():
  rng = random.Random(2)
  seeds = ["[1, -2.5e3, 'a']", '[["é", ""], [0.0, 12]]', "'x, y'", "-7"]
  seeds += ["['a', 'b'], [1]", "1e400, [-0.0], []"]
  letters = "[]'\",.-+0123459eE_ ()abtrue#\t\n\r\f{}\\\0jJ\ud800\ufeff"
  simple = 0
  for _ in range(20_000):
    text = list(rng.choice(seeds))
    for _ in range(rng.randrange(3)):
      text[rng.randrange(len(text))] = rng.choice(letters)
      text.insert(rng.randrange(len(text)), rng.choice(letters))
    text = "".join(text)
    call = calls.arguments_source
    found, value = values.simple_literal(text, _CHARS)
    whole, _ = values.simple_literal(f"[{text}]", _CHARS)
    if found:
      node = values.parse_expression(text, _CHARS)
      assert repr(values.literal_value(node, 0)) == repr(value), text
    if whole:  # a comma more, and the parser has to read it
      slow = f"f({text}, )" if text.strip() else "f( )"
      assert call(f"f({text})", "f", _CHARS) == call(slow, "f", _CHARS), text
    simple += found + whole
  assert simple > 5000


def test_call_arguments():
  def arguments(text):
    return calls.arguments_source(text, "f", _CHARS)

  assert (
    arguments(" f( [1,2], k = {'a':-1} )") == "(([1, 2],), {'k': {'a': -1}})"
  )
  assert arguments("f()") == "((), {})"
  assert arguments("f(set(), 1e400)") == "((set(), 1e309), {})"
  for text in (
    "g(1)",
    "f(x)",
    "f(*[1])",
    "f(**{})",
    "f(a=1, a=2)",
    "f(1)(2)",
    "a.f(1)",
    "f(open('x'))",
    "f(1) == f(1)",
    "f(1); f(2)",
    "f(lambda: 1)",
    "f(__import__('os').getcwd())",
    "f([x for x in (1,)])",
    "f(*range(10**8))",
    "f",
    "f(",
  ):
    with pytest.raises(ValueError):
      arguments(text)


def test_frames_survive_any_cut_and_are_bounded():
  stream = wire.pack(b"ab") + wire.pack(b"") + wire.pack_json("\ud800")
  reader = wire.FrameReader(100)
  frames = []
  for k in range(len(stream)):
    frames += reader.feed(stream[k : k + 1])
  assert frames == [b"ab", b"", b'"\\ud800"']
  late = reader.feed(wire.pack(b"good") + wire.pack(bytes(101)))
  assert next(late) == b"good"
  with pytest.raises(ValueError, match="at most 100"):
    next(late)


def test_the_sandbox_imports_no_jax():
  code = (
    "import sys; import codea1_jax.sandbox; "
    "sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
  )
  subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("value", _PLAIN, ids=repr)
def test_source_has_a_bound_that_is_exact(value):
  node = _round_trip(value)
  text = values.source(node)
  assert values.source(node, len(text)) == text
  with pytest.raises(ValueError, match="result too large"):
    values.source(node, len(text) - 1)


def test_a_source_too_long_is_not_written_to_its_end():
  value = ["\U000e0001" * 32] * 50_000
  for _ in range(90):
    value = [value]
  tracemalloc.start()
  with pytest.raises(ValueError, match="result too large"):
    values.source(value, 10_000)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 1_000_000  # of 16 MB


def test_the_deepest_claim_of_sets_is_written():
  data = b"z\1\0\0\0" * encoding.MAX_DEPTH + b"T"
  text = values.source(encoding.decode(data, 1000), 10_000)
  assert text == "frozenset({" * 100 + "True" + "})" * 100
