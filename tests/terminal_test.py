"""Nothing hostile reaches a terminal, and nothing is lost or too wide."""

import re

import pytest

from codea1_jax import terminal
from codea1_jax.terminal import Terminal

PROGRAM = '''def f(xs):
  """Doc with a # and 日本語,
  over lines: def"""
  text = "it's" + 'a # b'  # comment with "quotes"
  return [x**2 for x in xs if x != 0x1F]'''
ESCAPE = re.compile(r"\x1b\[\d*m")


def plain(lines):
  return [ESCAPE.sub("", line) for line in lines]


def cells(line):
  return sum(
    2 if 0x2E80 <= ord(c) <= 0xFF60 else c != "\u0301" for c in line
  )  # the tests' own wide and combining characters


@pytest.mark.parametrize(
  "text, shown",
  [
    ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
    ("\x9b31m", r"\x9b31m"),  # the same in one byte of C1
    ("a\rb\x08c\x00\x7f", r"a\rb\x08c\x00\x7f"),
    ("\u202eabc\u2066", r"\u202eabc\u2066"),  # turn the direction
    ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
    ("\u2028line", r"\u2028line"),
    ("half \ud800", r"half \ud800"),
    ("two\nlines, é 日本", "two\nlines, é 日本"),
    ("\tx\n a\tb", "    x\n a  b"),
  ],
)
def test_what_is_not_printable_is_an_escape(text, shown):
  assert terminal.safe(text) == shown
  nested = {text: [{"a": text, "n": None, "f": 0.5, "b": True}]}
  assert terminal.safe(nested) == {
    shown: [{"a": shown, "n": None, "f": 0.5, "b": True}]
  }


@pytest.mark.parametrize("width", [12, 40, 200])
def test_a_program_keeps_its_text_and_its_width(width):
  shown = Terminal(width).program(PROGRAM, indent=2)
  assert all(cells(line) <= width for line in shown)
  assert "".join(line[5:] for line in shown) == PROGRAM.replace("\n", "")
  numbered = [int(line[2]) for line in shown if line[2] != " "]
  assert numbered == [1, 2, 3, 4, 5]
  assert plain(Terminal(width, color=True).program(PROGRAM, 2)) == shown


def test_colours_are_those_of_python():
  lines = Terminal(200, color=True).program(PROGRAM)
  blue, green, faint = "\x1b[34m", "\x1b[32m", "\x1b[2m"
  assert f"{blue}def\x1b[0m f(xs):" in lines[0]
  assert f"{green}  over lines: def" in lines[2]  # a string, no keyword
  assert f"{green}\"it's\"\x1b[0m + {green}'a # b'\x1b[0m" in lines[3]
  assert f'{faint}# comment with "quotes"' in lines[3]
  assert f"{blue}for\x1b[0m x {blue}in" in lines[4]


def test_broken_programs_are_shown_too():
  for source in ("'''open", '"""a\\', "x = 'open\ny", "", "\\", '"' * 5):
    shown = Terminal(60, color=True).program(source)
    assert "".join(line[3:] for line in plain(shown)) == source.replace(
      "\n", ""
    )


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_table_cuts_its_widest_columns_into_lines(width):
  call = "f(" + "日本" * 30 + "e\u0301" * 9 + ")"
  rows = [(("fail", "bad"), call, "1"), ("pass", "f()", "22")]
  shown = Terminal(width).table(("verdict", "call", "oracle"), rows, indent=4)
  assert all(cells(line) <= width for line in shown)
  assert "".join(re.findall(r"[日本fe\u0301()]+", "".join(
    line[13:] for line in shown[1:-1]
  ))) == call  # fmt: skip
  assert shown[0].split() == ["verdict", "call", "oracle"]
  assert shown[1].startswith("    fail") and shown[1].endswith("1")
  assert shown[-1].split() == ["pass", "f()", "22"]
  coloured = Terminal(width, color=True).table(("v", "c", "o"), rows, 4)
  assert "\x1b[31mfail\x1b[0m" in coloured[1]


def test_prose_is_cut_between_words():
  text = "Return the sum of the positive numbers of a list."
  shown = Terminal(24).paragraph(text, indent=2)
  assert shown == [
    "  Return the sum of the ",
    "  positive numbers of a ",
    "  list.",
  ]
  assert terminal.cut(f"  {text}\n next", 14) == "Return the ..."


class Stream:
  def __init__(self, tty):
    self.isatty = lambda: tty


@pytest.mark.parametrize(
  "tty, variables, color",
  [
    (True, {}, True),
    (False, {}, False),
    (True, {"NO_COLOR": "1"}, False),
    (True, {"NO_COLOR": ""}, True),  # set and not empty, says no-color.org
    (True, {"TERM": "dumb"}, False),
  ],
)
def test_colours_only_where_they_are_wanted(monkeypatch, tty, variables, color):
  for name, value in ({"TERM": "xterm", "COLUMNS": "97"} | variables).items():
    monkeypatch.setenv(name, value)
  if "NO_COLOR" not in variables:
    monkeypatch.delenv("NO_COLOR", raising=False)
  assert terminal.of(Stream(tty)) == Terminal(97, color)
  monkeypatch.setenv("COLUMNS", "5")
  assert terminal.of(Stream(tty)).width == 40
