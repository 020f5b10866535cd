"""Rollout dumps: JSON lines in zstd frames, a frame a step.

Any zstd program reads such a file (`zstdcat rollouts.jsonl.zst`). A step is in
it as a whole or not at all. A frame's end is found from the sizes of its blocks
(RFC 8878, 3.1.1) without decompressing it, so that a reader goes to any step,
and a writer cuts the last ones off, past all that lies before.
"""

import io
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import zstandard

from codea1_jax import jsonl

FILE = "rollouts.jsonl.zst"  # in a workdir
_LEVEL = 9  # a quarter smaller than at level 3, at 40 MB of text a second
_MAGIC = zstandard.FRAME_HEADER
_MAX_HEADER = 18  # bytes, and less than any frame with a line in it
_MAX_BLOCK = 1 << 17
_RLE, _RESERVED = 1, 3  # types of blocks


class Frame(NamedTuple):
  """Where a step's records lie in the file, in bytes."""

  start: int
  end: int


class DumpWriter:
  """Appends one frame a step to `path`; every frame reaches the disk.

  The file is opened for each frame, as JsonlWriter does for each line. A frame
  that an earlier run was killed in the middle of is cut off when the writer is
  made.

  Raises:
    ValueError: the file is broken elsewhere than at its end.
  """

  def __init__(self, path: str | os.PathLike, writes: bool = True):
    self.path = pathlib.Path(path)
    self._writes = writes  # of several hosts one does
    if not writes:
      return
    self.path.parent.mkdir(parents=True, exist_ok=True)
    if self.path.exists():
      whole = frames(self.path)
      _cut(self.path, whole[-1].end if whole else 0)

  def write(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
    """Appends the records of a step, as {"step": step, **record} each."""
    if not (self._writes and records):
      return
    packer = zstandard.ZstdCompressor(
      level=_LEVEL, write_checksum=True
    ).compressobj()
    # Line by line: a step's text may be large, its frame is not.
    parts = [packer.compress(jsonl.line(step, r).encode()) for r in records]
    frame = b"".join([*parts, packer.flush()])
    with open(self.path, "ab") as f:
      f.write(frame)

  def truncate_after(self, step: int) -> None:
    """Drops the frames of later steps: what a resumed run does once more."""
    if not self._writes or not self.path.exists():
      return
    end = 0
    for frame in reversed(frames(self.path)):
      if step_of(self.path, frame) <= step:
        end = frame.end
        break
    _cut(self.path, end)


def read_dump(path: str | os.PathLike) -> Iterator[dict]:
  """The records of a dump in their order; one at a time is in memory.

  A last frame cut short by a kill is left out.

  Raises:
    OSError, ValueError: no such file, or "file: place: what is wrong".
  """
  for frame in frames(path):
    yield from rows(path, frame)


def frames(path: str | os.PathLike) -> list[Frame]:
  """The whole frames of a dump; nothing is decompressed.

  Raises:
    OSError, ValueError: no such file; a frame before the end is broken.
  """
  found, start = [], 0
  with open(path, "rb") as f:
    size = os.fstat(f.fileno()).st_size
    while start < size:
      end = _frame_end(f, start, size)
      if end is None:
        _check_is_last(f, start, size)
        break
      found.append(Frame(start, end))
      start = end
  return found


def rows(path: str | os.PathLike, frame: Frame) -> Iterator[dict]:
  """The records of one frame."""
  for number, line in enumerate(lines(path, frame), 1):
    yield jsonl.parse(line, f"{path}: byte {frame.start}, line {number}")


def lines(path: str | os.PathLike, frame: Frame) -> Iterator[bytes]:
  """The records of one frame as lines of JSON."""
  with open(path, "rb") as f:
    f.seek(frame.start)
    packed = f.read(frame.end - frame.start)
  # The frame's own bytes only: a stream reader goes on into the next one.
  text = zstandard.ZstdDecompressor().stream_reader(packed)
  try:
    yield from io.BufferedReader(text)
  except zstandard.ZstdError as error:
    raise ValueError(f"{path}: byte {frame.start}: {error}") from error


def step_of(path: str | os.PathLike, frame: Frame) -> int:
  """The step of a frame; only its beginning is decompressed."""
  step = next(rows(path, frame), {}).get("step")
  if not isinstance(step, int):
    raise ValueError(f"{path}: byte {frame.start}: a record without a step")
  return step


def _frame_end(f: BinaryIO, start: int, size: int) -> int | None:
  """Where the frame at `start` ends; None where the file does before it."""
  f.seek(start)
  header = f.read(_MAX_HEADER)
  magic = header[: len(_MAGIC)]
  if magic != _MAGIC[: len(magic)]:
    raise ValueError(f"{f.name}: byte {start}: no zstd frame begins here")
  if len(header) < _MAX_HEADER:
    return None
  try:
    position = start + zstandard.frame_header_size(header)
    checksum = zstandard.get_frame_parameters(header).has_checksum
  except zstandard.ZstdError as error:
    raise ValueError(f"{f.name}: byte {start}: {error}") from error
  last = False
  while not last:
    f.seek(position)
    block = f.read(3)
    if len(block) < 3:
      return None
    bits = int.from_bytes(block, "little")
    last, kind, length = bits & 1, bits >> 1 & 3, bits >> 3
    if kind == _RESERVED or length > _MAX_BLOCK:
      raise ValueError(
        f"{f.name}: byte {start}: a zstd frame with a broken block at byte"
        f" {position}"
      )
    position += 3 + (1 if kind == _RLE else length)
  end = position + (4 if checksum else 0)
  return end if end <= size else None


def _check_is_last(f: BinaryIO, start: int, size: int) -> None:
  """Raises where whole frames follow one that seems to be cut short."""
  f.seek(start)
  tail = f.read()
  place = tail.find(_MAGIC, 1)
  while place >= 0:
    try:
      whole = _frame_end(f, start + place, size)
    except ValueError:  # the four bytes by chance
      whole = None
    if whole:
      raise ValueError(
        f"{f.name}: byte {start}: a broken zstd frame, and another one follows"
        f" at byte {start + place}"
      )
    place = tail.find(_MAGIC, place + 1)


def _cut(path: pathlib.Path, end: int) -> None:
  if path.stat().st_size > end:
    os.truncate(path, end)
