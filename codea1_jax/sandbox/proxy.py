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
import threading

from codea1_jax.sandbox.encoding import build, decode, encode

PEER_FD = 5
MAX_BYTES, MAX_ITEMS = 1 << 28, 1 << 28  # of one answer
_MAX_TEXT = 240  # bytes of an exception's name and message
_HEAD = struct.Struct("<I")
# Raised by a function, they end a test's map() or zip() as if all were checked.
_ENDS_OF_LOOPS = (StopIteration, StopAsyncIteration)


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
    self._lock = threading.RLock()  # a test may call from several threads
    self._waiting = False

  def __call__(self, *positional, **keywords):
    claim = self._ask(pickle.dumps((positional, keywords), 5))
    kind, body = claim[:1], claim[1:]
    if kind == b"V":
      try:
        return _value(body, positional, keywords)
      except ValueError as error:
        kind, body = b"E", f"RuntimeError: {error}".encode()
    if kind == b"O":
      return Opaque(body.decode("utf-8", "replace"))
    if kind in (b"E", b"M"):
      body = body[:_MAX_TEXT]
      self.failure = _exception(body.decode("utf-8", "replace"))
      self.failure_claim = kind + body
      raise self.failure
    self.gone = True
    raise Gone

  def _ask(self, call: bytes) -> bytes:
    """The claim that answers a call; empty where there will be none.

    A test's own time limit may cut the wait short. The late answer must not be
    taken for that to the next call, so there is none any more.
    """
    with self._lock:
      if self._waiting:
        return b""
      self._waiting = True
      try:
        _send(call)
        claim = self._answer()
      except ConnectionError:
        claim = b""
      self._waiting = False
    return claim

  def _answer(self) -> bytes:
    head = _receive(_HEAD.size)
    size = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else 0
    claim = _receive(size) if size <= MAX_BYTES + _HEAD.size else b""
    return claim if len(claim) == size else b""  # it died while it answered


def _value(body: bytes, positional: tuple, keywords: dict):
  """The value of a claim; gives the arguments what the call left in them.

  Raises:
    ValueError: it is no claim that an honest child makes.
  """
  match build(decode(body, MAX_ITEMS)):
    case value, None:
      return value
    case value, (tuple(left), dict(named)):
      _restore(positional, left)
      _restore(keywords.values(), named.values())
      return value
  raise ValueError("bad claim: not a value and arguments")


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
  if isinstance(kind, type) and issubclass(kind, _ENDS_OF_LOOPS):
    return RuntimeError(text)
  if isinstance(kind, type) and issubclass(kind, Exception):
    try:
      return kind(message)
    except TypeError:  # UnicodeDecodeError and such want more
      pass
  return RuntimeError(text)
