"""A candidate in one child, called by a test in another, over a socket.

The test's end pickles arguments: the child that reads them is nobody's friend.
What comes back is a claim in the encoding of encoding.py, for the test's child
must stay what its author wrote. A candidate can thus answer wrongly, or not at
all; it cannot reach the test's values or its verdict.
"""

import builtins
import os
import pickle
import struct

from codea1_jax.sandbox.encoding import build, decode, encode

PEER_FD = 5
MAX_BYTES, MAX_ITEMS = 1 << 28, 1 << 28  # of one answer
_HEAD = struct.Struct("<I")


class Gone(BaseException):
  """The candidate's process is no more; no `except Exception` hides it."""


class Opaque:
  """Stands for a result that is not plain data: true, and equal to nothing."""

  __slots__ = ("kind",)
  __hash__ = None

  def __init__(self, kind: str):
    self.kind = kind

  def __eq__(self, other) -> bool:
    return False

  def __repr__(self) -> str:
    return f"<{self.kind}>"


def _send(*pieces: bytes) -> None:
  data = b"".join((_HEAD.pack(sum(map(len, pieces))), *pieces))
  view = memoryview(data)
  while view:
    view = view[os.write(PEER_FD, view) :]


def _receive(size: int) -> bytes:
  """That many bytes; fewer where the other end has hung up."""
  data = bytearray()
  while len(data) < size:
    piece = os.read(PEER_FD, min(size - len(data), 1 << 20))
    if not piece:
      break
    data += piece
  return bytes(data)


def serve(function, failure) -> None:
  """The candidate's end: answers calls until the test hangs up.

  Args:
    function: the candidate.
    failure: makes the claim of an exception.
  """
  dumps, loads = pickle.dumps, pickle.loads  # a program may patch the module
  while len(head := _receive(_HEAD.size)) == _HEAD.size:
    arguments = loads(_receive(*_HEAD.unpack(head)))
    before = dumps(arguments, 5)
    try:
      value = function(*arguments[0], **arguments[1])
    except BaseException as error:
      _send(failure(error))
      continue
    try:
      changed = dumps(arguments, 5) != before
    except BaseException:  # it put something into them
      changed = True
    _send(*_claim(value, arguments if changed else None, failure))


def _claim(value, arguments, failure) -> tuple[bytes, ...]:
  """The value, then the arguments where the call changed them."""
  try:
    return b"V", encode((value, arguments), MAX_BYTES, MAX_ITEMS)
  except ValueError:
    return b"O", type(value).__name__.encode("utf-8", "replace")[:99]
  except BaseException as error:
    return (failure(error),)


class Candidate:
  """The test's end: a function whose body runs elsewhere."""

  def __init__(self, name: str):
    self.__name__ = self.__qualname__ = name
    self.gone = False
    self.failure: BaseException | None = None  # the last that it raised
    self.failure_claim = b""

  def __call__(self, *positional, **keywords):
    try:
      _send(pickle.dumps((positional, keywords), 5))
      claim = self._answer()
    except OSError:
      claim = b""
    kind, body = claim[:1], claim[1:]
    if kind == b"V":
      value, changed = build(decode(body, MAX_ITEMS))
      if changed is not None:
        _restore(positional, changed[0])
        _restore(keywords.values(), changed[1].values())
      return value
    if kind == b"O":
      return Opaque(body.decode("utf-8", "replace"))
    if kind in (b"E", b"M"):
      self.failure = _exception(body.decode("utf-8", "replace"))
      self.failure_claim = claim
      raise self.failure
    self.gone = True
    raise Gone

  def _answer(self) -> bytes:
    head = _receive(_HEAD.size)
    size = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else 0
    return _receive(size) if size <= MAX_BYTES + _HEAD.size else b""


def _restore(ours, theirs) -> None:
  """Gives the test's own arguments the contents that a call left in them."""
  for mine, left in zip(ours, theirs):
    if type(mine) is list and type(left) is list:
      mine[:] = left
    elif type(mine) in (dict, set) and type(left) is type(mine):
      mine.clear()
      mine.update(left)


def _exception(text: str) -> Exception:
  """A built-in exception of the name that was claimed, else RuntimeError."""
  name, _, message = text.partition(": ")
  kind = getattr(builtins, name, None)
  if isinstance(kind, type) and issubclass(kind, Exception):
    try:
      return kind(message)
    except TypeError:  # UnicodeDecodeError and such want more
      pass
  return RuntimeError(text)
