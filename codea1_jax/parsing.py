"""Completion text -> a program, or the tests of a suite.

A failure is a value here, never an exception: whatever a policy writes comes
back as a `ParsedCode` with an error or as a `ParsedSuite` with its unparsed
statements counted. The rules are those of ALGORITHM.md, "Parsing".
"""

import ast
import re
import symtable
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from codea1_jax.types import ParsedCode, ParsedSuite, TestCase

MAX_SOURCE = 65_536  # characters given to the parser at once
MAX_BRACKETS = 100  # open at once; CPython itself stops at 200
MAX_DEPTH = 64  # brackets of one literal, after substitution
MAX_RETRIES = 4 * MAX_SOURCE  # characters of broken statements tried again

# What ast.parse, ast.unparse and ast.literal_eval raise on hostile text: NUL
# bytes, lone surrogates, huge integers, deep nesting, unhashable keys.
PARSER_ERRORS = (
  SyntaxError, ValueError, TypeError, OverflowError, MemoryError, RecursionError
)  # fmt: skip
_ASSERT = re.compile(r"[ \t]*assert\b")
# An opening fence ends its line; only ```python may have prose before it. A
# closing fence begins its line; an unclosed block runs to the end.
_BLOCK = re.compile(
  r"(?:^[ \t]*```(?P<language>[^`\n]*)|```(?P<python>python)[ \t]*)\n"
  r"(?P<body>.*?)(?:^[ \t]*```[^\n]*|\Z)",
  re.MULTILINE | re.DOTALL,
)
# Skips strings, comments and escapes (so also continued lines) to find what
# decides where a statement ends. Possessive, hence linear on hostile text.
_TOKEN = re.compile(
  r"""\'\'\'(?:[^'\\]++|\\.|'(?!''))*+(?:\'\'\'|\Z)"""
  r"""|\"\"\"(?:[^"\\]++|\\.|"(?!""))*+(?:\"\"\"|\Z)"""
  r"""|'(?:[^'\\\n]++|\\.)*+'|"(?:[^"\\\n]++|\\.)*+"|\#[^\n]*|\\."""
  r"""|(?P<open>[(\[{])|(?P<close>[)\]}])"""
  r"""|(?P<before_assert>\n(?=[ \t]*assert\b))|(?P<newline>\n)""",
  re.DOTALL,
)
_INDENTED_LINES = re.compile(r"(?:[ \t]+[^\n]*(?:\n|\Z)|\n)*")
_UNARY_CHAIN = re.compile(rf"(?:[-+~]\s*+|\bnot\s++){{{MAX_BRACKETS},}}")


def extract_code(
  completion: str, entry_point: str, *, bare_fence: bool = True
) -> ParsedCode:
  """The program of a completion, with an error where it is not one."""
  source = extract_code_text(completion, bare_fence=bare_fence)
  return ParsedCode(source, code_error(source, entry_point))


def extract_code_text(completion: str, *, bare_fence: bool = True) -> str:
  """The first ```python block, else the first ``` block, else everything.

  Args:
    completion: what the Code LLM wrote.
    bare_fence: whether a ``` block without a language counts. The paper's
      published program does not see it and takes the fences as code.

  Returns:
    The block without its fences and without white space around it.
  """
  found = blocks(completion)
  languages = ("python", "") if bare_fence else ("python",)
  for wanted in languages:
    for language, text in found:
      if language == wanted:
        return text.strip()
  return completion.strip()


def code_error(source: str, entry_point: str) -> str:
  """Why `source` is not a program that defines `entry_point`; "" if it is."""
  _, error = parse_source(source)
  if error:
    return error
  scope, error = _attempt(_module_scope, source)
  if error:
    return error
  try:
    name = scope.lookup(entry_point)
  except KeyError:
    name = None
  if name is None or not name.is_assigned():  # an import assigns nothing
    return f"does not define {entry_point!r} at top level"
  return ""


def parse_suite(
  completion: str, entry_point: str, max_tests: int | None
) -> ParsedSuite:
  """The tests of a completion, in order.

  Reading stops once `max_tests` tests have parsed: later statements neither
  count as tests nor as unparsed ones. Repeats are kept (validity counts them).

  Args:
    completion: what the Test LLM wrote.
    entry_point: name of the function that every test must call.
    max_tests: K, tests a suite; None reads everything.

  Returns:
    The suite, whose `num_unparsed` counts the assert statements among those
    read, whole or broken, at top level or nested, that are not tests.
  """
  return _read_suite(completion, entry_point, max_tests)


def parse_test(source: str, entry_point: str) -> TestCase | None:
  """The one test that `source` consists of, or None."""
  tree, _ = parse_source(source)
  if tree is None or len(tree.body) != 1:
    return None
  return _test_case(tree.body[0], entry_point, {})


def extract_asserts(completion: str) -> list[str]:
  """Normalized tests of a completion, whichever function they call."""
  return [test.source for test in _read_suite(completion, None, None).tests]


def nonprintable_share(text: str) -> float:
  """Share of characters that are neither printable nor plain white space.

  U+FFFD counts as non-printable: it is what broken bytes decode to.
  """
  if not text:
    return 0.0
  bad = sum(
    c == "\ufffd" or not (c.isprintable() or c in "\n\t\r") for c in text
  )
  return bad / len(text)


def blocks(text: str) -> list[tuple[str, str]]:
  """(language, body) of every fenced block."""
  return [
    (
      (block["language"] or block["python"] or "").strip().lower(),
      block["body"],
    )
    for block in _BLOCK.finditer(text.replace("\r\n", "\n"))
  ]


def _nesting(source: str) -> int:
  """The most brackets that are open at once."""
  depth = peak = 0
  for token in _TOKEN.finditer(source):
    depth += token.lastgroup == "open"
    depth -= token.lastgroup == "close"
    peak = max(peak, depth)
  return peak


def parse_source(source: str) -> tuple[ast.Module | None, str]:
  """(tree, "") or (None, why not); bounded before CPython's parser sees it."""
  if len(source) > MAX_SOURCE:
    return None, f"longer than {MAX_SOURCE} characters: {len(source)}"
  if _nesting(source) > MAX_BRACKETS or _UNARY_CHAIN.search(source):
    return None, f"nested deeper than {MAX_BRACKETS}"
  return _attempt(ast.parse, source)


def _module_scope(source: str) -> symtable.SymbolTable:
  """Names at module scope, of a source that compiles."""
  compile(source, "<code>", "exec", dont_inherit=True)
  return symtable.symtable(source, "<code>", "exec")


def _attempt(
  function: Callable[[str], Any], source: str
) -> tuple[Any | None, str]:
  """(function(source), "") or (None, what it raised), without warnings."""
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      return function(source), ""
  except PARSER_ERRORS as e:
    return None, f"does not compile: {type(e).__name__}: {e}"


def _read_suite(
  completion: str, entry_point: str | None, max_tests: int | None
) -> ParsedSuite:
  """`parse_suite`; `entry_point` None takes calls of any plain name."""
  tests: list[TestCase] = []
  num_unparsed = 0
  names: dict[str, str] = {}
  for statement in _statements(completion[:MAX_SOURCE]):
    if max_tests is not None and len(tests) >= max_tests:
      break
    if isinstance(statement, str):
      num_unparsed += bool(_ASSERT.match(statement))
    elif isinstance(statement, ast.Assert):
      test = _test_case(statement, entry_point, names)
      if test is None:
        num_unparsed += 1
      else:
        tests.append(test)
    else:
      num_unparsed += sum(
        isinstance(node, ast.Assert) for node in ast.walk(statement)
      )
      _rebind(names, statement)
  return ParsedSuite(tuple(tests), num_unparsed)


def _statements(completion: str) -> Iterator[ast.stmt | str]:
  """Statements of the ```python blocks, or broken lines as text.

  Without such a block: the statements at lines that start with `assert`.
  """
  bodies = [
    body for language, body in blocks(completion) if language == "python"
  ]
  source = "\n".join(bodies) if bodies else completion
  tree, _ = parse_source(source) if bodies else (None, "")
  if tree is not None:
    yield from tree.body
    return
  start, budget = 0, MAX_RETRIES
  while start < len(source):
    next_line = source.find("\n", start) + 1 or len(source)
    if not bodies and not _ASSERT.match(source, start):
      start = next_line
      continue
    end = _statement_end(source, start, budget) if budget > 0 else next_line
    tree, _ = parse_source(source[start:end].lstrip())
    if tree is None:
      yield source[start:next_line]
      budget -= end - start
      start = next_line
    else:
      yield from tree.body
      start = end


def _statement_end(source: str, start: int, limit: int) -> int:
  """Where the statement that begins at `start` ends, a body included."""
  depth, end = 0, min(len(source), start + limit)
  for token in _TOKEN.finditer(source, start, end):
    depth += token.lastgroup == "open"
    depth -= token.lastgroup == "close"
    # `assert` cannot continue a statement: a bracket above it is broken.
    if token.lastgroup == "before_assert" or (
      token.lastgroup == "newline" and depth <= 0
    ):
      end = token.end()
      break
  if source[start:end].rstrip().endswith(":"):
    end = _INDENTED_LINES.match(source, end).end()
  return end


def _rebind(names: dict[str, str], statement: ast.stmt) -> None:
  """Keeps `names` to what is surely still a literal after `statement`."""
  if isinstance(statement, ast.FunctionDef | ast.ClassDef):
    names.pop(statement.name, None)
    return
  value, touched = None, [statement]
  if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
    value = _literal(statement.value, names)
    touched = getattr(statement, "targets", None) or [statement.target]
  for part in touched:
    if value is not None and isinstance(part, ast.Name):
      names[part.id] = value
      continue
    # Anything else may change the objects it mentions: `x.append(1)`.
    for node in ast.walk(part):
      if isinstance(node, ast.Name):
        names.pop(node.id, None)


def _test_case(
  statement: ast.stmt, entry_point: str | None, names: Mapping[str, str]
) -> TestCase | None:
  """The test that an assert statement is, or None."""
  match statement:
    case ast.Assert(
      test=ast.Compare(left=ast.Call() as call, ops=[op], comparators=[value])
    ):
      pass
    case _:
      return None
  is_singleton = isinstance(value, ast.Constant) and (
    value.value is None or isinstance(value.value, bool)
  )
  if not (isinstance(op, ast.Eq) or (isinstance(op, ast.Is) and is_singleton)):
    return None
  call_text = _call(call, entry_point, names)
  expected = _literal(value, {})
  if call_text is None or expected is None:
    return None
  return TestCase(call_text, expected)


def _call(
  call: ast.Call, entry_point: str | None, names: Mapping[str, str]
) -> str | None:
  """Normalized source of a call with literal arguments, or None."""
  if not isinstance(call.func, ast.Name):
    return None
  if entry_point is not None and call.func.id != entry_point:
    return None
  keywords = [keyword.arg for keyword in call.keywords]
  if None in keywords or len(set(keywords)) < len(keywords):
    return None
  values = [_literal(a, names) for a in call.args]
  values += [_literal(keyword.value, names) for keyword in call.keywords]
  if None in values or sum(map(len, values)) > MAX_SOURCE:
    return None
  prefixes = [""] * len(call.args) + [f"{name}=" for name in keywords]
  arguments = ", ".join(p + v for p, v in zip(prefixes, values))
  return f"{call.func.id}({arguments})"


def _literal(node: ast.expr, names: Mapping[str, str]) -> str | None:
  """A literal with `names` substituted, normalized; None where it is none.

  `+1` and `...` are refused: the one is a second spelling, the other no data.
  Bounded before anything is written out: substitution can grow a text
  exponentially. Changes `node`, which nothing reads after this.
  """
  room = MAX_SOURCE
  for part in ast.walk(node):
    if isinstance(part, ast.Name) and part.id in names:
      part.id = names[part.id]  # ast.unparse writes an id as it stands
      room -= len(part.id)
    elif isinstance(part, ast.Constant):
      part.kind = None  # else u"a" would differ from "a"
    refused = isinstance(part, ast.Constant) and part.value is Ellipsis
    if room < 0 or refused or isinstance(part, ast.UAdd):
      return None
  try:
    text = ast.unparse(node)
    ast.literal_eval(text)
  except PARSER_ERRORS:
    return None
  return text if _nesting(text) <= MAX_DEPTH else None
