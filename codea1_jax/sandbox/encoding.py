"""The tagged, type-exact bytes in which a child claims what a call returned.

Used on both sides of the fence: `encode` runs next to hostile code and is
trusted with nothing; `decode` runs in the judge on whatever bytes arrive and
bounds everything it builds. Only exact built-in types are encoded: a subclass
could answer differently to each question asked of it. The exceptions are the
standard library's own dict subclasses, which travel as plain dicts.

Sets and dicts are decoded into `SetNode` and `DictNode`, never into real sets
and dicts: chosen integers collide in a hash table and would stall the judge.
"""

import collections
import dataclasses
import itertools
import struct

from codea1_jax.sandbox import columns

MAX_DEPTH = 100  # Python's own tokenizer stops at 200 nested brackets


@dataclasses.dataclass(frozen=True)
class SetNode:
  """A set or frozenset as the list of its elements."""

  items: list
  frozen: bool = False


@dataclasses.dataclass(frozen=True)
class DictNode:
  """A dict as the list of its (key, value) pairs, in insertion order."""

  items: list


_DICTS = (
  dict,
  collections.Counter,
  collections.OrderedDict,
  collections.defaultdict,
)
_SEQUENCES = {list: b"l", tuple: b"t", set: b"s", frozenset: b"z"}
_FEWEST = 8  # elements of a container that is worth a column
# Equal to Python's numbers, and what numpy's functions return instead of them.
_NUMPY_SCALARS = frozenset(
  [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
  + ["float16", "float32", "float64", "complex64", "complex128"]
  + ["bool", "bool_", "str_", "longlong", "ulonglong"]
)
_CONSTANTS = {None: b"N", True: b"T", False: b"F"}


def encode(value, max_bytes: int, max_items: int) -> bytes:
  """Encodes plain data.

  Raises:
    ValueError: `value` is not plain data, or too deep or too large.
  """
  parts: list[bytes] = []
  budget = [max_bytes, max_items]
  _encode(value, parts, budget, 0)
  return b"".join(parts)


def _spend(budget: list[int], num_bytes: int) -> None:
  """Takes one item and its bytes off the budget."""
  budget[0] -= num_bytes
  budget[1] -= 1
  if budget[0] < 0 or budget[1] < 0:
    raise ValueError("result too large")


def _check_size(budget: list[int], num_bytes: int) -> None:
  if num_bytes > budget[0]:
    raise ValueError("result too large")


def _encode(value, parts: list[bytes], budget: list[int], depth: int) -> None:
  kind = type(value)
  if kind is int:
    size = value.bit_length() // 8 + 1
    _spend(budget, size + 5)  # before the bytes of a huge integer are made
    parts.append(_sized(b"i", value.to_bytes(size, "little", signed=True)))
  elif kind is str:
    _check_size(budget, len(value))  # before its bytes are made
    data = value.encode("utf-8", "surrogatepass")
    _spend(budget, len(data) + 5)
    parts.append(_sized(b"u", data))
  elif value is None or kind is bool:
    _spend(budget, 1)
    parts.append(_CONSTANTS[value])
  elif kind is float:
    _spend(budget, 9)
    parts.append(struct.pack("<cd", b"f", value))
  elif kind in _SEQUENCES:
    if len(value) >= _FEWEST and _encode_many(value, parts, budget, depth):
      return
    _enter(parts, budget, depth, _SEQUENCES[kind], len(value))
    for item in value:
      _encode(item, parts, budget, depth + 1)
  elif kind in _DICTS:
    _enter(parts, budget, depth, b"d", len(value))
    for key, item in value.items():
      _encode(key, parts, budget, depth + 1)
      _encode(item, parts, budget, depth + 1)
  elif kind is bytes:
    _spend(budget, len(value) + 5)
    parts.append(_sized(b"b", value))
  elif kind is complex:
    _spend(budget, 17)
    parts.append(struct.pack("<cdd", b"c", value.real, value.imag))
  elif kind.__module__ == "numpy" and kind.__name__ in _NUMPY_SCALARS:
    _encode(value.item(), parts, budget, depth + 1)
  else:
    raise ValueError(f"result holds a {kind.__name__}, not plain data")


def _encode_many(value, parts, budget: list[int], depth: int) -> bool:
  """Encodes a container of scalars, or of rows of them, in one piece.

  Says whether it could: they are of one kind, as columns.py wants it.
  """
  tag = _SEQUENCES[type(value)]
  if len(value) > budget[1]:
    raise ValueError("result too large")
  column = columns.pack(value)
  if column is not None:
    _enter(parts, budget, depth, b"p" + tag, len(value))
    _add_column(parts, budget, column, len(value))
    return True
  kinds = set(map(type, value))
  if kinds != {list} and kinds != {tuple}:
    return False
  lengths = list(map(len, value))
  total = sum(lengths)
  if total > budget[1]:
    raise ValueError("result too large")
  column = columns.pack(list(itertools.chain.from_iterable(value)))
  if column is None or depth + 1 >= MAX_DEPTH:
    return False
  inner = _SEQUENCES[kinds.pop()]
  _enter(parts, budget, depth, b"r" + tag + inner, len(value))
  data = struct.pack(f"<{len(value)}I", *lengths)
  _add_column(parts, budget, data + column, len(value) + total)
  return True


def _add_column(parts, budget: list[int], data: bytes, items: int) -> None:
  budget[0] -= len(data)
  budget[1] -= items
  if budget[0] < 0 or budget[1] < 0:
    raise ValueError("result too large")
  parts.append(data)


def _sized(tag: bytes, data: bytes) -> bytes:
  return tag + struct.pack("<I", len(data)) + data


def _enter(
  parts: list[bytes], budget: list[int], depth: int, tag: bytes, count: int
) -> None:
  """Opens a container; its length alone may already be too much."""
  if depth >= MAX_DEPTH:
    raise ValueError(f"result nested deeper than {MAX_DEPTH}")
  if count > budget[1]:
    raise ValueError("result too large")
  _spend(budget, 5)
  parts.append(tag + struct.pack("<I", count))


def decode(data: bytes, max_items: int):
  """Reads one claim into nested lists, tuples, scalars and nodes.

  Raises:
    ValueError: `data` is not one whole encoded value within the bounds.
  """
  value, end, _ = _decode(data, 0, max_items, 0)
  if end != len(data):
    raise ValueError("bytes after the value")
  return value


_KEYWORDS = {78: None, 84: True, 70: False}  # N, T, F
_SCALARS = {105: "i", 117: "u", 98: "b"}


def _decode(data: bytes, at: int, items: int, depth: int):
  """Returns the value at `at`, where it ends, and the items still allowed."""
  if at >= len(data) or items <= 0:
    raise ValueError("claim cut short" if items > 0 else "too many items")
  tag, items = data[at], items - 1
  if tag in _KEYWORDS:
    return _KEYWORDS[tag], at + 1, items
  if tag == 102:  # f
    return (
      struct.unpack_from("<d", columns.take(data, at + 1, 8))[0],
      at + 9,
      items,
    )
  if tag == 99:  # c
    pair = struct.unpack_from("<dd", columns.take(data, at + 1, 16))
    return complex(*pair), at + 17, items
  if tag in (112, 114):  # p, r
    return (_packed if tag == 112 else _rows)(data, at, items, depth)
  size = int.from_bytes(columns.take(data, at + 1, 4), "little")
  if tag in _SCALARS:
    text = columns.take(data, at + 5, size)
    return _scalar(tag, text), at + 5 + size, items
  return _container(data, at, items, depth, size)


def _scalar(tag: int, data: bytes):
  if tag == 105:
    return int.from_bytes(data, "little", signed=True)
  # An undecodable string raises UnicodeDecodeError, which is a ValueError.
  return data.decode("utf-8", "surrogatepass") if tag == 117 else bytes(data)


def _container(data: bytes, at: int, items: int, depth: int, count: int):
  tag, at = data[at : at + 1], at + 5
  if depth >= MAX_DEPTH or tag not in b"ltszd":
    raise ValueError(f"bad claim: tag {tag!r} at depth {depth}")
  children = []
  for _ in range(count * (2 if tag == b"d" else 1)):
    child, at, items = _decode(data, at, items, depth + 1)
    children.append(child)
  if tag == b"d":
    pairs = list(zip(children[::2], children[1::2]))
    return DictNode(pairs), at, items
  return _sequence(tag, children), at, items


def _sequence(tag: bytes, children: list):
  if tag == b"l":
    return children
  if tag == b"t":
    return tuple(children)
  if tag not in (b"s", b"z"):
    raise ValueError(f"bad claim: tag {tag!r}")
  return SetNode(children, frozen=tag == b"z")


def _packed(data: bytes, at: int, items: int, depth: int):
  """A container of scalars in one piece."""
  if depth >= MAX_DEPTH:
    raise ValueError(f"bad claim: depth {depth}")
  count = int.from_bytes(columns.take(data, at + 2, 4), "little")
  if count > items:
    raise ValueError("too many items")
  children, end = columns.unpack(data, at + 6, count)
  return _sequence(data[at + 1 : at + 2], children), end, items - count


def _rows(data: bytes, at: int, items: int, depth: int):
  """A container of lists or tuples of scalars in one piece."""
  outer, inner = data[at + 1 : at + 2], data[at + 2 : at + 3]
  if depth + 1 >= MAX_DEPTH or inner not in (b"l", b"t"):
    raise ValueError(f"bad claim: rows {inner!r} at depth {depth}")
  count = int.from_bytes(columns.take(data, at + 3, 4), "little")
  if count > items:
    raise ValueError("too many items")
  lengths = struct.unpack(f"<{count}I", columns.take(data, at + 7, 4 * count))
  total = sum(lengths)
  if count + total > items:
    raise ValueError("too many items")
  values, end = columns.unpack(data, at + 7 + 4 * count, total)
  kind = list if inner == b"l" else tuple
  rest = iter(values)
  rows = [kind(itertools.islice(rest, length)) for length in lengths]
  return _sequence(outer, rows), end, items - count - total


_CONTAINERS = frozenset((list, tuple, SetNode, DictNode))


def build(value):
  """The Python value of a decoded claim: real sets and dicts.

  Chosen keys make this slow, so it is for processes with a CPU limit only.

  Raises:
    ValueError: a set's element or a dict's key is not hashable.
  """
  kind = type(value)
  if kind is list or kind is tuple:
    if _CONTAINERS.isdisjoint(map(type, value)):
      return value  # most are flat
    return kind(map(build, value))
  try:
    if kind is SetNode:
      return (frozenset if value.frozen else set)(map(build, value.items))
    if kind is DictNode:
      return {build(name): build(item) for name, item in value.items}
  except TypeError as error:
    raise ValueError(f"bad claim: {error}") from None
  return value
