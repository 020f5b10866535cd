"""Text for a terminal: safe to print, no wider than it, coloured if it can.

What a model wrote may hold escape codes, which move the cursor, set the title
or hide what follows. `safe` leaves none; colours are added after it.
"""

import dataclasses
import itertools
import keyword
import os
import re
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

_MIN_WIDTH = 40
_MIN_COLUMN = 4
_GAP = 2  # between columns
_RESET = "\x1b[0m"
_STYLES = {
  "": "",
  "bold": "\x1b[1m",
  "dim": "\x1b[2m",
  "good": "\x1b[32m",
  "bad": "\x1b[31m",
  "broken": "\x1b[35m",
  "slow": "\x1b[33m",
  "keyword": "\x1b[34m",
  "string": "\x1b[32m",
  "number": "\x1b[36m",
  "comment": "\x1b[2m",
}
_PYTHON = re.compile(
  r"(?P<comment>\#[^\n]*)"
  r"""|(?P<string>\"\"\"(?:[^\\]|\\.?)*?(?:\"\"\"|\Z)"""
  r"""|'''(?:[^\\]|\\.?)*?(?:'''|\Z)"""
  r"""|"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?)"""
  r"|(?P<number>\d[\w.]*)|(?P<word>[^\W\d]\w*)",
  re.DOTALL,
)
_KEYWORDS = frozenset(keyword.kwlist)

Cell = str | tuple[str, str]  # a text, or (text, style)


@dataclasses.dataclass(frozen=True)
class Terminal:
  """Where lines go: their width, and whether colours are understood."""

  width: int = 80
  color: bool = False

  def paint(self, text: str, style: str) -> str:
    if not (self.color and style and text):
      return text
    return f"{_STYLES[style]}{text}{_RESET}"

  def paragraph(self, text: str, indent: int = 0, style: str = "") -> list[str]:
    """The lines of a text, long ones cut into several."""
    room = max(self.width - indent, 1)
    return [
      " " * indent + self.paint(piece, style)
      for line in text.split("\n")
      for piece in _pieces(line, room)
    ]

  def program(self, source: str, indent: int = 0) -> list[str]:
    """A Python program with line numbers."""
    styles = _python_styles(source) if self.color else [""] * len(source)
    digits = len(str(source.count("\n") + 1))
    room = max(self.width - indent - digits - 2, 1)
    lines, start = [], 0
    for number, line in enumerate(source.split("\n"), 1):
      gutter = f"{number:>{digits}}"
      for piece in _pieces(line, room):
        painted = self._painted(piece, styles[start : start + len(piece)])
        lines.append(f"{' ' * indent}{self.paint(gutter, 'dim')}  {painted}")
        start += len(piece)
        gutter = " " * digits
      start += 1  # the line's end
    return lines

  def table(
    self, header: Sequence[str], rows: Sequence[Sequence[Cell]], indent: int = 0
  ) -> list[str]:
    """Aligned columns; where they do not fit, cells go on in further lines."""
    cells = [[(h, "bold") for h in header]]
    cells += [[c if isinstance(c, tuple) else (c, "") for c in r] for r in rows]
    widths = [max(_cells(t) for t, _ in column) for column in zip(*cells)]
    _shrink(widths, self.width - indent - _GAP * (len(widths) - 1))
    return [line for row in cells for line in self._row(row, widths, indent)]

  def _row(self, row, widths: Sequence[int], indent: int) -> Iterator[str]:
    columns = [_pieces(text, width) for (text, _), width in zip(row, widths)]
    for parts in itertools.zip_longest(*columns, fillvalue=""):
      padded = [
        self.paint(part, style) + " " * (width - _cells(part))
        for part, (_, style), width in zip(parts, row, widths)
      ]
      yield (" " * indent + (" " * _GAP).join(padded)).rstrip()

  def _painted(self, text: str, styles: Sequence[str]) -> str:
    runs = itertools.groupby(zip(text, styles), lambda pair: pair[1])
    return "".join(
      self.paint("".join(char for char, _ in run), style) for style, run in runs
    )


def of(stream: TextIO) -> Terminal:
  """What is known of a stream; NO_COLOR and COLUMNS have the say."""
  color = (
    stream.isatty()
    and not os.environ.get("NO_COLOR")
    and os.environ.get("TERM") != "dumb"
  )
  return Terminal(max(shutil.get_terminal_size().columns, _MIN_WIDTH), color)


def safe(value: Any) -> Any:
  r"""JSON data with its texts' unprintable characters as escapes.

  Line ends stay. "\x1b" and its like, characters without a width, those that
  turn the direction of writing, and halves of surrogate pairs become what
  stands for them in a Python literal.
  """
  if isinstance(value, dict):
    return {safe(k): safe(v) for k, v in value.items()}
  if isinstance(value, list):
    return [safe(v) for v in value]
  if not isinstance(value, str) or value.isprintable():
    return value
  return "".join(
    c if c.isprintable() or c == "\n" else _escaped(c)
    for c in value.expandtabs(4)
  )


def one_line(text: str) -> str:
  return text.replace("\n", "\\n")


def cut(text: str, width: int) -> str:
  """At most `width` cells of the text's first line that says something."""
  text = " ".join(text.split())
  if _cells(text) <= width:
    return text
  return _pieces(text, max(width - 3, 1))[0] + "..."


def _escaped(char: str) -> str:
  return char.encode("unicode_escape").decode()


def _cells(text: str) -> int:
  """How many cells of a terminal a text takes."""
  return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(char: str) -> int:
  if unicodedata.combining(char):
    return 0
  return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _pieces(text: str, width: int) -> list[str]:
  """The text in pieces of at most `width` cells, at least one; the last space
  in a piece's second half ends it."""
  pieces, start = [], 0
  while (end := _end(text, start, width)) < len(text):
    space = text.rfind(" ", (start + end) // 2, end)
    end = space + 1 if space > 0 else end
    pieces.append(text[start:end])
    start = end
  return [*pieces, text[start:]]


def _end(text: str, start: int, width: int) -> int:
  """Where `width` cells from `start` on end; after one character at least."""
  used = 0
  for i in range(start, len(text)):
    used += _cell(text[i])
    if used > width:
      return max(i, start + 1)
  return len(text)


def _shrink(widths: list[int], room: int) -> None:
  """Takes from the widest columns, in place, until all fit or are small."""
  while sum(widths) > room and max(widths) > _MIN_COLUMN:
    widths[widths.index(max(widths))] -= 1


def _python_styles(source: str) -> list[str]:
  """A style for each character; a program need not be whole for it."""
  styles = [""] * len(source)
  for found in _PYTHON.finditer(source):
    kind = found.lastgroup
    if kind == "word":
      kind = "keyword" if found[0] in _KEYWORDS else ""
    styles[found.start() : found.end()] = [kind] * len(found[0])
  return styles
