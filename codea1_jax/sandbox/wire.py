"""Length-prefixed frames, for the trainer's socket and the children's pipes."""

import json
import struct
from collections.abc import Iterator

MAX_MESSAGE = 1 << 30  # bytes of one frame between trainer and manager


def pack(payload: bytes) -> bytes:
  """One frame: four bytes of length, then the payload."""
  return struct.pack("<I", len(payload)) + payload


def pack_json(message) -> bytes:
  """A frame that holds JSON; ASCII, so that lone surrogates survive."""
  return pack(json.dumps(message, separators=(",", ":")).encode("ascii"))


class FrameReader:
  """Collects bytes and gives back whole frames, none larger than the bound."""

  def __init__(self, max_bytes: int):
    self._max_bytes = max_bytes
    self._buffer = bytearray()

  def feed(self, data: bytes) -> Iterator[bytes]:
    """Yields the frames that `data` completes, before it complains of one.

    Raises:
      ValueError: a frame announces more than `max_bytes`.
    """
    self._buffer += data
    while len(self._buffer) >= 4:
      size = int.from_bytes(self._buffer[:4], "little")
      if size > self._max_bytes:
        raise ValueError(f"frame of {size} bytes, at most {self._max_bytes}")
      if len(self._buffer) < 4 + size:
        return
      frame = bytes(self._buffer[4 : 4 + size])
      del self._buffer[: 4 + size]
      yield frame
