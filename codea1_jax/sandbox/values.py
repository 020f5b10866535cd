"""Plain data in the judge: literals in, canonical forms, equality, source out.

A value is a tree of scalars, lists, tuples, `SetNode` and `DictNode` (see
encoding.py). Two values are equal in Python's sense exactly where their
canonical keys are the same bytes: numbers of one value share a key whatever
their type (1 == 1.0 == True), sets and dicts are sorted, NaN has no key.
"""

import ast
import itertools
import json
import math
import re
from collections.abc import Iterable

from codea1_jax.sandbox.encoding import MAX_DEPTH, DictNode, SetNode

# Escapes and dicts differ between the two, JSON's names are not Python's, and
# lone surrogates are no Python source.
_NOT_ALIKE = re.compile(r"[\\{\ud800-\udfff]|true|false|null|NaN|Infinity")
_SIGN_BETWEEN = re.compile(r"(?<=[^e])([+-])")  # of two parts, no exponent's
TOO_LARGE = "result too large"
_MAX_DIGITS = 4000  # beyond about 4300 digits Python refuses decimal integers


def parse_literal(source: str, max_chars: int):
  """Reads a Python literal ("[1, 2]", "set()") into a value.

  Raises:
    ValueError: `source` is too long or is not a literal.
  """
  found, value = simple_literal(source, max_chars)
  return (
    value if found else literal_value(parse_expression(source, max_chars), 0)
  )


def simple_literal(source: str, max_chars: int) -> tuple[bool, object]:
  """Reads what JSON and Python write alike, ten times as fast as a parser.

  Returns:
    Whether `source` is so simple (numbers, strings without escapes and lists
    of them), and its value.
  """
  if len(source) > max_chars or source.count("[") >= MAX_DEPTH:
    return False, None
  if _NOT_ALIKE.search(source):
    return False, None
  if "'" in source:
    if '"' in source:
      return False, None
    source = source.replace("'", '"')
  try:
    return True, json.loads(source)
  except ValueError:
    return False, None


def check_literal(value) -> None:
  """Refuses what `parse_literal` reads but ast.literal_eval or repr does not.

  Raises:
    ValueError: `value` holds a frozenset or an integer of too many digits.
  """
  if isinstance(value, SetNode) and value.frozen:
    raise ValueError("a frozenset")
  if type(value) is int and not _is_decimal(value):
    raise ValueError(f"an integer of more than {_MAX_DIGITS} digits")
  if isinstance(value, (list, tuple)):
    items = value
  elif isinstance(value, SetNode):
    items = value.items
  else:
    items = []
    if isinstance(value, DictNode):
      items = [part for pair in value.items for part in pair]
  for item in items:
    check_literal(item)


def parse_expression(source: str, max_chars: int) -> ast.expr:
  """Parses one expression of hostile text, never raising but ValueError."""
  if len(source) > max_chars:
    raise ValueError(f"{len(source)} characters, at most {max_chars}")
  try:
    return ast.parse(source.strip(), mode="eval").body
  except (SyntaxError, MemoryError, RecursionError, OverflowError) as error:
    raise ValueError(f"does not parse: {type(error).__name__}") from None


def literal_value(node: ast.expr, depth: int):
  """The value of a literal's syntax tree.

  Raises:
    ValueError: the tree is not a literal, or is nested too deeply.
  """
  if depth > MAX_DEPTH:
    raise ValueError(f"nested deeper than {MAX_DEPTH}")
  if isinstance(node, ast.Constant) and node.value is not Ellipsis:
    return node.value
  if isinstance(node, ast.List):
    return [literal_value(item, depth + 1) for item in node.elts]
  if isinstance(node, ast.Tuple):
    return tuple(literal_value(item, depth + 1) for item in node.elts)
  if isinstance(node, ast.Set):
    return SetNode([_hashable(item, depth) for item in node.elts])
  if isinstance(node, ast.Dict):
    if None in node.keys:
      raise ValueError("** in a dict is not a literal")
    return DictNode(
      [
        (_hashable(key, depth), literal_value(item, depth + 1))
        for key, item in zip(node.keys, node.values)
      ]
    )
  if isinstance(node, ast.Call):
    return _set_call(node, depth)
  return _number(node)


def _hashable(node: ast.expr, depth: int):
  """A set's element or a dict's key: anything a real one could hold."""
  value = literal_value(node, depth + 1)
  if not _is_hashable(value):
    raise ValueError("unhashable element of a set or dict")
  return value


def _is_hashable(value) -> bool:
  if isinstance(value, tuple):
    return all(map(_is_hashable, value))
  if isinstance(value, SetNode):
    return value.frozen
  return not isinstance(value, (list, DictNode))


def _set_call(node: ast.Call, depth: int) -> SetNode:
  """`set()`, `frozenset()` and `frozenset({...})`, which are no real calls."""
  name = node.func.id if isinstance(node.func, ast.Name) else ""
  if name not in ("set", "frozenset") or node.keywords or len(node.args) > 1:
    raise ValueError("a call is not a literal")
  if not node.args:
    return SetNode([], frozen=name == "frozenset")
  items = literal_value(node.args[0], depth + 1)
  if name != "frozenset" or not isinstance(items, SetNode) or items.frozen:
    raise ValueError("a call is not a literal")
  return SetNode(items.items, frozen=True)


def _number(node: ast.expr):
  """Signed numbers and complex sums: -1, 1 + 2j."""
  if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
    real, imag = _signed(node.left), _signed(node.right)
    if type(real) is not complex and type(imag) is complex:
      try:
        return real + imag if isinstance(node.op, ast.Add) else real - imag
      except OverflowError:
        raise ValueError("an integer beyond the floats in a sum") from None
  return _signed(node)


def _signed(node: ast.expr):
  sign = 1
  if isinstance(node, ast.UnaryOp):
    if not isinstance(node.op, (ast.USub, ast.UAdd)):
      raise ValueError("not a literal")
    sign = -1 if isinstance(node.op, ast.USub) else 1
    node = node.operand
  value = node.value if isinstance(node, ast.Constant) else None
  if type(value) not in (int, float, complex):
    raise ValueError(f"{type(node).__name__} is not a literal")
  return -value if sign < 0 else value


def key(value) -> bytes | None:
  """Canonical bytes: equal keys are equal values; None where NaN is inside."""
  kind = type(value)
  if kind is int or kind is bool:
    return b"n%x;" % value
  if kind is str:
    data = value.encode("utf-8", "surrogatepass")
    return b"u%d:%s" % (len(data), data)
  if kind is float:
    return _float_key(value)
  if kind is list or kind is tuple:
    return _join(b"l" if kind is list else b"t", map(key, value))
  if value is None:
    return b"N"
  if kind is bytes:
    return b"b%d:%s" % (len(value), value)
  if kind is complex:
    return _complex_key(value)
  if kind is SetNode:
    keys = [key(item) for item in value.items]
    return None if None in keys else _join(b"s", sorted(set(keys)))
  pairs = {key(name): key(item) for name, item in value.items}
  if None in pairs or None in pairs.values():
    return None
  return _join(b"d", (name + pairs[name] for name in sorted(pairs)))


def _join(tag: bytes, keys) -> bytes | None:
  keys = list(keys)
  if None in keys:
    return None
  return b"%s%d[%s]" % (tag, len(keys), b"".join(keys))


def _float_key(value: float) -> bytes | None:
  if math.isnan(value):
    return None
  if value.is_integer():
    return b"n%x;" % int(value)
  return b"f%s;" % value.hex().encode()


def _complex_key(value: complex) -> bytes | None:
  real, imag = _float_key(value.real), _float_key(value.imag)
  if real is None or imag is None:
    return None
  return real if value.imag == 0 else b"c%s%s" % (real, imag)


def close(left, right, tolerance: float) -> bool:
  """Equality in which floats may differ by `tolerance`, relative or absolute.

  Elements of sets and keys of dicts are compared exactly.
  """
  kinds = type(left), type(right)
  if float in kinds and all(k in (int, float, bool) for k in kinds):
    return _close_numbers(left, right, tolerance)
  if kinds[0] is not kinds[1] or kinds[0] not in (list, tuple, DictNode):
    left = key(left)
    return left is not None and left == key(right)
  if kinds[0] is not DictNode:
    return len(left) == len(right) and all(
      close(a, b, tolerance) for a, b in zip(left, right)
    )
  ours = {key(name): item for name, item in left.items}
  theirs = {key(name): item for name, item in right.items}
  return (
    None not in ours
    and ours.keys() == theirs.keys()
    and all(close(ours[name], theirs[name], tolerance) for name in ours)
  )


def _close_numbers(left, right, tolerance: float) -> bool:
  if left == right:
    return True
  try:
    return math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
  except OverflowError:  # an integer beyond the floats
    return False


def source(value, max_chars: float = math.inf) -> str:
  """Canonical literal source, as ast.unparse(ast.parse(repr(value))) writes.

  Infinity is written 1e309, integers beyond Python's decimal limit in hex, set
  elements in sorted order; NaN, which no literal writes, is "nan".

  Raises:
    ValueError: it is longer than `max_chars`. A claim of 50 KB may be written
      as 16 MB, so writing stops where that is known.
  """
  text = _source(value, max_chars)
  if len(text) > max_chars:
    raise ValueError(TOO_LARGE)
  return text


def _source(value, room: float) -> str:
  kind = type(value)
  if kind is int:
    return _int_source(value)
  if kind is float:
    return repr(value).replace("inf", "1e309")
  if kind is complex:
    text = repr(value).strip("()").replace("inf", "1e309")
    return _SIGN_BETWEEN.sub(r" \1 ", text)
  if kind is list:
    return f"[{', '.join(_sources(value, room))}]"
  if kind is tuple:
    comma = "," if len(value) == 1 else ""
    return f"({', '.join(_sources(value, room))}{comma})"
  if kind is DictNode:
    pairs = (
      f"{_source(name, room)}: {_source(item, room)}"
      for name, item in value.items
    )
    return f"{{{', '.join(_within(pairs, room))}}}"
  if kind is SetNode:
    return _set_source(value, room)
  return repr(value)  # None, bool, str, bytes


def _sources(items, room: float) -> list[str]:
  return _within(map(_source, items, itertools.repeat(room)), room)


def _within(texts: Iterable[str], room: float) -> list[str]:
  """The texts, for a container: each takes two characters more than it has."""
  found = []
  for text in texts:
    room -= len(text) + 2
    if room < 0:
      raise ValueError(TOO_LARGE)
    found.append(text)
  return found


def _int_source(value: int) -> str:
  return repr(value) if _is_decimal(value) else hex(value)


def _is_decimal(value: int) -> bool:
  """Whether Python is sure to write and read it in decimal."""
  return value.bit_length() < 3.3 * _MAX_DIGITS


def _set_source(value: SetNode, room: float) -> str:
  name = "frozenset" if value.frozen else "set"
  if not value.items:
    return f"{name}()"
  body = f"{{{', '.join(_ordered_sources(value.items, room))}}}"
  return f"frozenset({body})" if value.frozen else body


def _ordered_sources(items: list, room: float) -> list[str]:
  """Elements in their own order where they have one, else by source.

  Each is written once: twice a level would be 2**100 times for the innermost
  of nested frozensets.
  """
  kinds = {type(item) for item in items}
  if kinds <= {int, bool} or kinds == {str} or kinds == {float}:
    return _sources(sorted(items), room)
  return sorted(_sources(items, room))
