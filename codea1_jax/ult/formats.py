"""An answer of a Test LLM -> the test that counts, by two readings.

Failure is a value: an answer without a test is None, or for the published
program a test that fails.
"""

import ast
import re
import textwrap

from codea1_jax import parsing

_WRONG = "def {name}():\n    assert 1 == 0"
_CODE = re.compile(
  r"^(?:import \w|from [\w.]+ import |def test|class Test|assert |@)",
  re.MULTILINE,
)
_LANGUAGES = ("python", "py", "python3", "")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ATTEMPTS = 50  # lines that a text that breaks off may lose


def published(answer: str, name: str, index: int) -> str:
  """The test that the published program keeps.

  Its rules, faults included. Where a line starts with "def test", the lines
  from the first such up to the first "assert NAME..." (else the first
  "assert ") of the whole answer are kept: helpers above are lost, and so is
  what an assert has on further lines. Otherwise it is all ```python blocks.
  Of that, what comes before the first function that has an assert among its
  own statements, and that function up to the assert; or everything up to the
  first assert outside of functions, as a function. Asserts in loops and with
  blocks are not found. The first function becomes the test.

  Args:
    answer: what the model wrote.
    name: of the function under test.
    index: of the test among the function's own.

  Returns:
    A program with a function of its own name; one that fails where the rules
    leave no test.
  """
  new_name = f"test_{name}_{index}"
  text = _published_lines(answer.split("\n"), name)
  if text is None:
    text = "\n".join(re.findall(r"```python(.*?)```", answer, re.DOTALL))
  tree, _ = parsing.parse_source(textwrap.dedent(text))
  body = _up_to_assert(tree.body if tree else [])
  if body is None:
    return _WRONG.format(name=new_name)
  module = ast.Module(body, [])
  for node in ast.walk(module):  # breadth first
    if isinstance(node, ast.FunctionDef):
      node.name = new_name
      break
  try:
    return ast.unparse(ast.fix_missing_locations(module))
  except parsing.PARSER_ERRORS:
    return _WRONG.format(name=new_name)


def _published_lines(lines: list[str], name: str) -> str | None:
  """From the first "def test" to the assert that ends the test."""
  bare = [line.strip() for line in lines]
  start = _first(bare, "def test")
  if start == len(bare):
    return None
  end = _first(bare, f"assert {name}")
  if end + 1 >= len(bare):
    end = _first(bare, "assert ")
  return "\n".join(lines[start : end + 1])


def _first(lines: list[str], prefix: str) -> int:
  """The first line that starts so; their number where none does."""
  for at, line in enumerate(lines):
    if line.startswith(prefix):
      return at
  return len(lines)


def _up_to_assert(body: list[ast.stmt]) -> list[ast.stmt] | None:
  """The statements that are kept, the last of them a function."""
  for at, node in enumerate(body):
    if isinstance(node, ast.Assert):
      (function,) = ast.parse("def test(): pass").body
      function.body = body[: at + 1]
      return [function]
    if isinstance(node, ast.FunctionDef):
      asserts = [isinstance(inner, ast.Assert) for inner in node.body]
      if any(asserts):
        node.body = node.body[: asserts.index(True) + 1]
        return body[: at + 1]
  return None


def complete(answer: str, name: str) -> str | None:
  """The first complete test of an answer, with all that it needs.

  A test is a function, or a method of a class, named as pytest wants it, or a
  program; it ends with its first statement that checks something: an assert,
  over several lines or in a loop or block too, or an expected exception. Such
  an answer may hold many tests; one counts. Imports and helpers stay; other
  tests go, and so does a copy of the function itself. Of a text that breaks
  off, the complete statements count.

  Args:
    answer: what the model wrote, with fences or without.
    name: of the function under test, which the test must mention.

  Returns:
    A program, or None.
  """
  found = [b for lang, b in parsing.blocks(answer) if lang in _LANGUAGES]
  # The last line of a block that nothing closes may be half a line.
  bodies = [b.rpartition("\n")[0] if answer.endswith(b) else b for b in found]
  if not found:
    start = _CODE.search(answer)
    bodies = [answer[start.start() :]] if start else []
  for body in bodies:
    test = _one_test(_longest_program(textwrap.dedent(body)), name)
    if test is not None:
      return test
  return None


def _longest_program(text: str) -> list[ast.stmt]:
  """The statements of the longest start of a text that is a program."""
  lines = text.split("\n")
  for left_out in range(min(_ATTEMPTS, len(lines))):
    tree, _ = parsing.parse_source("\n".join(lines[: len(lines) - left_out]))
    if tree is not None:
      return tree.body
  return []


def _one_test(body: list[ast.stmt], name: str) -> str | None:
  body = [node for node in body if getattr(node, "name", "") != name]
  tests = [node for node in body if _is_named_test(node)]
  if tests:
    test = next((node for node in tests if _checks(node)), None)
    if test is None or not _shorten(test, name):
      return None
    # Bare expressions call other tests, or start them: unittest.main().
    body = [
      node
      for node in body
      if node is test
      or not (node in tests or isinstance(node, ast.Expr | ast.If))
    ]
  else:
    body = _up_to_check(body, name, _checking_helpers(body))
  module = ast.Module(body, [])
  if name not in _names(module):
    return None
  try:
    return ast.unparse(module)
  except parsing.PARSER_ERRORS:
    return None


def _shorten(test: ast.FunctionDef | ast.ClassDef, name: str) -> bool:
  """Leaves one check in a test; whether there is any."""
  if isinstance(test, ast.FunctionDef):
    test.body = _up_to_check(test.body, name)
    return bool(test.body)
  methods = [node for node in test.body if _is_named_test(node)]
  first = next((node for node in methods if _checks(node)), None)
  test.body = [n for n in test.body if n is first or n not in methods]
  return first is not None and _shorten(first, name)


def _up_to_check(
  body: list[ast.stmt], name: str, helpers: frozenset[str] = frozenset()
) -> list[ast.stmt]:
  """Statements up to the first that checks what the function does.

  Where none has mentioned it by then, the first that checks anything.
  """
  ends = [
    at + 1
    for at, node in enumerate(body)
    if not isinstance(node, _DEFINITIONS)
    and (_checks(node) or helpers & _names(node))
  ]
  for end in ends:
    if name in _names(ast.Module(body[:end], [])):
      return body[:end]
  return body[: ends[0]] if ends else []


def _is_named_test(node: ast.stmt) -> bool:
  if isinstance(node, ast.ClassDef):
    bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
    return node.name.startswith("Test") or "TestCase" in bases
  return isinstance(node, ast.FunctionDef) and node.name.startswith("test")


def _checks(node: ast.AST) -> bool:
  """Whether something in it can fail: assert, pytest.raises, assertEqual."""
  for inner in ast.walk(node):
    if isinstance(inner, ast.Assert):
      return True
    if isinstance(inner, ast.Call):
      called = ast.unparse(inner.func).split(".")[-1]
      if called in ("raises", "fail") or called.startswith("assert"):
        return True
  return False


def _checking_helpers(body: list[ast.stmt]) -> frozenset[str]:
  """Names of functions that check something when they are called."""
  return frozenset(
    node.name
    for node in body
    if isinstance(node, ast.FunctionDef) and _checks(node)
  )


def _names(node: ast.AST) -> set[str]:
  """Names, and attributes as in `solution.f`, that it mentions."""
  found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
  return found | {
    n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
  }
