"""Many scalars in one piece of bytes: what makes large claims cheap.

A column is a letter for its kind, then its body. `unpack` runs in the judge on
whatever bytes arrive: it builds no more than `count` values and the bytes that
are there.
"""

import itertools
import struct

_FEW = 255  # distinct strings that a byte can number
_SHORT = 32  # characters that a byte may stand for: small claims stay small
_SIZE = struct.Struct("<I")


def pack(values) -> bytes | None:
  """A column of exact ints, floats or strings, or None where it is none."""
  kinds = set(map(type, values))
  if kinds == {str}:
    return _pack_strings(values)
  try:
    if kinds == {int}:
      return b"q" + struct.pack(f"<{len(values)}q", *values)
    if kinds == {float}:
      return b"d" + struct.pack(f"<{len(values)}d", *values)
    if kinds == {int, float}:
      return _pack_numbers(values)
  except struct.error:  # an integer of more than 64 bits
    pass
  return None


def _pack_numbers(values) -> bytes:
  """Which are floats, then all integers, then all floats."""
  is_float = bytes(type(value) is float for value in values)
  floats = list(itertools.compress(values, is_float))
  ints = [value for value in values if type(value) is int]
  body = struct.pack(f"<{len(ints)}q{len(floats)}d", *ints, *floats)
  return b"m" + is_float + body


def _pack_strings(values) -> bytes:
  """Lengths and one text, or a table of a few strings and their numbers."""
  table = dict.fromkeys(values)
  few = len(table) <= _FEW and len(table) * 4 <= len(values)
  if few and max(map(len, table)) <= _SHORT:
    numbers = {text: number for number, text in enumerate(table)}
    body = bytes(map(numbers.__getitem__, values))
    return b"v" + _SIZE.pack(len(table)) + _texts(table) + body
  return b"u" + _texts(values)


def _texts(values) -> bytes:
  text = "".join(values).encode("utf-8", "surrogatepass")
  lengths = struct.pack(f"<{len(values)}I", *map(len, values))
  return lengths + _SIZE.pack(len(text)) + text


def unpack(data: bytes, at: int, count: int) -> tuple[list, int]:
  """The `count` values of the column at `at`, and where it ends.

  Raises:
    ValueError: there is no such column.
  """
  kind, at = data[at : at + 1], at + 1
  if kind in (b"q", b"d"):
    body = take(data, at, 8 * count)
    return list(struct.unpack(f"<{count}{kind.decode()}", body)), at + 8 * count
  if kind == b"m":
    return _unpack_numbers(data, at, count)
  if kind == b"u":
    return _unpack_texts(data, at, count)
  if kind != b"v":
    raise ValueError(f"bad claim: column of kind {kind!r}")
  size = _SIZE.unpack(take(data, at, 4))[0]
  if size > _FEW:
    raise ValueError(f"bad claim: table of {size} strings")
  table, at = _unpack_texts(data, at + 4, size)
  if max(map(len, table), default=0) > _SHORT:
    raise ValueError("bad claim: a long string in a table")
  numbers = take(data, at, count)
  if numbers and max(numbers) >= size:
    raise ValueError("bad claim: a number beyond the table")
  return list(map(table.__getitem__, numbers)), at + count


def _unpack_numbers(data: bytes, at: int, count: int) -> tuple[list, int]:
  is_float = take(data, at, count)
  floats = sum(is_float)
  if is_float.translate(None, b"\0\1"):
    raise ValueError("bad claim: neither integer nor float")
  body = take(data, at + count, 8 * count)
  numbers = struct.unpack(f"<{count - floats}q{floats}d", body)
  sources = iter(numbers), iter(numbers[count - floats :])
  return [next(sources[kind]) for kind in is_float], at + 9 * count


def _unpack_texts(data: bytes, at: int, count: int) -> tuple[list[str], int]:
  lengths = struct.unpack(f"<{count}I", take(data, at, 4 * count))
  at += 4 * count
  size = _SIZE.unpack(take(data, at, 4))[0]
  text = take(data, at + 4, size).decode("utf-8", "surrogatepass")
  if sum(lengths) != len(text):
    raise ValueError("bad claim: strings of another length")
  ends = list(itertools.accumulate(lengths))
  values = [text[start:end] for start, end in zip([0, *ends], ends)]
  return values, at + 4 + size


def take(data: bytes, at: int, size: int) -> bytes:
  """Bytes that must be there."""
  piece = data[at : at + size]
  if len(piece) != size:
    raise ValueError("claim cut short")
  return piece
