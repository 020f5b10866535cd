"""What of an answer BigCodeBench's own programs hand to its tests.

Its published scores are those of sanitized answers, so the same rules hold
here, also where they lose code: decorated functions, and top-level statements
but imports, definitions and assignments, are left out.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from codea1_jax import parsing

_ERROR_LINE = re.compile(r"line (\d+)\)$")
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def sanitize(text: str, entry_point: str) -> str:
  """The imports of the program in a text, and what its function needs.

  Args:
    text: an answer, with or without prose around its program.
    entry_point: the function's name.

  Returns:
    A program; where nothing is left of it, the longest one in the text.
  """
  return _needed(text, entry_point) or longest_program(text)


def _needed(text: str, entry_point: str) -> str:
  source = longest_program(text.strip())
  tree, _ = parsing.parse_source(source)
  if tree is None:
    return ""
  imports = [node for node in tree.body if _is_import(node)]
  named = list(_first_of_each_name(tree))
  needed = _reachable(entry_point, dict(named))
  kept = imports + [node for name, node in named if name in needed]
  texts = [ast.get_source_segment(source, node) or "" for node in kept]
  return _without_last_uses("\n".join(texts), entry_point).strip()


def longest_program(text: str) -> str:
  """The run of two lines or more that parses and has the most that are not
  blank; the first of equals. Without any it is the first line.

  Where Python sees a mistake it sees it whatever follows, so that only few runs
  have to be tried. Of what is too deep or too long for it, the halves are.
  """
  lines = text.split("\n")
  filled = list(itertools.accumulate((bool(x.strip()) for x in lines),
                                     initial=0))  # fmt: skip
  best, most = (0, 1), 0
  for start in range(len(lines)):
    end = len(lines)
    while end >= start + 2 and filled[end] - filled[start] > most:
      tree, error = parsing.parse_source("\n".join(lines[start:end]))
      if tree is not None:
        best, most = (start, end), filled[end] - filled[start]
        break
      found = _ERROR_LINE.search(error)
      wrong = int(found[1]) - 1 if found else (end - start) // 2
      end = min(end - 1, start + wrong)
  return "\n".join(lines[slice(*best)])


def _is_import(node: ast.stmt) -> bool:
  if isinstance(node, ast.ImportFrom):
    return node.module != "__future__"  # it would have to stand first
  return isinstance(node, ast.Import)


def _first_of_each_name(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
  """Definitions and assignments at top level; of a name the first one."""
  seen = set()
  for node in tree.body:
    name = _name(node)
    if name and name not in seen:
      seen.add(name)
      yield name, node


def _name(node: ast.stmt) -> str:
  """What a statement defines, as far as that is one plain name."""
  if isinstance(node, _DEFINITIONS):
    return "" if node.decorator_list else node.name
  match node:
    case ast.Assign(targets=[ast.Name(id=name), *_]):
      return name
    case ast.AnnAssign(target=ast.Name(id=name)):
      return name
  return ""


def _reachable(start: str, nodes: dict[str, ast.stmt]) -> set[str]:
  """The names that a definition mentions, and those that these mention."""
  seen, waiting = {start}, [start]
  while waiting:
    node = nodes.get(waiting.pop())
    found = set(_identifiers(node)) - seen if node else set()
    seen |= found
    waiting += found
  return seen


def _identifiers(node: ast.AST) -> Iterator[str]:
  """All names in a statement: variables, attributes, parameters, keywords."""
  for part in ast.walk(node):
    for field, value in ast.iter_fields(part):
      if field in ("id", "attr", "arg", "name", "names", "module", "asname"):
        values: Sequence = value if isinstance(value, list) else [value]
        for text in values:
          if isinstance(text, str):
            yield from text.split(".")


def _without_last_uses(source: str, name: str) -> str:
  """Cuts off the lines after the last indented one, from where one of them
  has the function's name: calls that show it."""
  lines = source.splitlines()
  last = max((k for k, x in enumerate(lines) if x.startswith(" ")), default=-1)
  for place in range(last + 1, len(lines)):
    if name in lines[place]:
      return "\n".join(lines[:place])
  return source
