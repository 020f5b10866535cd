"""A program without its hints: names replaced, comments and docstrings gone.

For the Test LLM's prompt, so that it reads the logic (ALGORITHM.md, Prompts).
The program does the same as before, except where it reaches names as text:
exec, eval, locals, globals, `__name__`, `__doc__` and repr of its own
functions and classes. A caller from outside that passes arguments by keyword
no longer finds them.
"""

import ast
import builtins
import itertools
import re
import symtable
import warnings
from collections.abc import Iterator, Mapping

from codea1_jax import parsing

Nodes = tuple[ast.AST, ...]  # of a whole program, the module first

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# Where nodes hold an identifier: Name, definitions and `except ... as`, arg,
# and the rest of a mapping pattern. `attr` is no such field: attributes stay.
_NAME_FIELDS = ("id", "name", "arg", "rest")
_WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")


def anonymize(source: str, entry_point: str) -> str:
  """The program with v0, v1, ... for the names that it binds.

  A name is replaced throughout or not at all, whichever scopes bind it, in the
  order of first appearance in the syntax tree. These stay: the entry point,
  imported names, what class bodies bind (it is reached as an attribute),
  attributes, names that begin with two underscores, a builtin's name that some
  scope takes for a global (the builtin may be meant), and parameters that may
  be passed by keyword other than in a call of a function of the program by its
  plain name. Strings that stand as statements go wherever they are, strings in
  annotations take part in the renaming, all others stay.

  Args:
    source: a program.
    entry_point: name of the function or class whose name stays.

  Returns:
    The new program, ast-normalized; `source` itself where it does not compile
    within the bounds of `parsing`. A second pass changes nothing.
  """
  tree, _ = parsing.parse_source(source)
  if tree is None:
    return source
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      scopes = symtable.symtable(source, "<code>", "exec")
    _drop_bare_strings(tree)
    nodes = tuple(_walk(tree))
    own_keywords = _own_keywords(nodes)
    kept = _kept(nodes, scopes, own_keywords) | {entry_point}
    _rename(nodes, _new_names(nodes, kept), own_keywords)
    return ast.unparse(tree)
  except parsing.PARSER_ERRORS:
    return source


def _drop_bare_strings(tree: ast.Module) -> None:
  """Removes docstrings and other strings that stand as statements."""
  # All of them: a second one would be the docstring once the first is gone.
  for node in _walk(tree):
    for field in ("body", "orelse", "finalbody"):
      body = getattr(node, field, None)
      if isinstance(body, list):
        rest = [statement for statement in body if not _is_string(statement)]
        if body and not rest and node is not tree:
          rest = [ast.Pass()]
        setattr(node, field, rest)


def _is_string(statement: ast.stmt) -> bool:
  match statement:
    case ast.Expr(value=ast.Constant(value=str())):
      return True
  return False


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
  """All nodes, parents first, children in order."""
  stack = [tree]
  while stack:
    node = stack.pop()
    yield node
    stack += reversed(list(ast.iter_child_nodes(node)))


def _names(node: ast.AST) -> list[str]:
  """Identifiers that a node itself holds, where they may be renamed."""
  if isinstance(node, ast.alias | ast.keyword):
    return []
  found = (getattr(node, field, None) for field in _NAME_FIELDS)
  return [name for name in found if isinstance(name, str)]


def _bound(node: ast.AST) -> list[str]:
  """Names that a node binds."""
  is_load = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
  return [] if is_load else _names(node)


def _imported(nodes: Nodes) -> set[str]:
  """Names that imports bind; "*" stands for itself."""
  return {
    (node.asname or node.name).split(".")[0]
    for node in nodes
    if isinstance(node, ast.alias)
  }


def _kept(
  nodes: Nodes,
  scopes: symtable.SymbolTable,
  own_keywords: set[ast.keyword],
) -> set[str]:
  """Names that must not be replaced, the entry point aside."""
  imported = _imported(nodes)
  in_classes, in_globals, bound_globals = _symbols(scopes)
  kept = imported | in_classes | (in_globals & set(dir(builtins)))
  if "*" in imported:
    kept |= in_globals - bound_globals
  return kept | (_foreign_keywords(nodes, own_keywords) & _parameters(nodes))


def _symbols(scopes: symtable.SymbolTable) -> tuple[set[str], ...]:
  """Names that class bodies bind, all global names, and the bound ones."""
  in_classes, in_globals, bound_globals = set(), set(), set()
  tables = [scopes]
  while tables:
    table = tables.pop()
    tables += table.get_children()
    for symbol in table.get_symbols():
      name, is_bound = symbol.get_name(), symbol.is_assigned()
      if table.get_type() == "class" and is_bound:
        in_classes.add(name)
      if symbol.is_global():
        in_globals.add(name)
        if is_bound:
          bound_globals.add(name)
  return in_classes, in_globals, bound_globals


def _parameters(nodes: Nodes) -> set[str]:
  return {node.arg for node in nodes if isinstance(node, ast.arg)}


def _foreign_keywords(nodes: Nodes, own_keywords: set[ast.keyword]) -> set[str]:
  """Names that may be passed by keyword and cannot be followed."""
  keywords = [node for node in nodes if isinstance(node, ast.keyword)]
  foreign = {k.arg for k in keywords if k.arg and k not in own_keywords}
  if any(k.arg is None for k in keywords):  # f(**{"name": 1})
    foreign |= {
      node.value
      for node in nodes
      if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
  return foreign


def _own_keywords(nodes: Nodes) -> set[ast.keyword]:
  """Keywords of calls that surely go to a parameter of the program's own."""
  functions = _own_functions(nodes)
  return {
    keyword
    for node in nodes
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    for keyword in node.keywords
    if keyword.arg in functions.get(node.func.id, ())
  }


def _own_functions(nodes: Nodes) -> dict[str, set[str]]:
  """Names that only ever stand for functions -> their parameters."""
  bodies = {
    target: node.value
    for node in nodes
    if isinstance(getattr(node, "value", None), ast.Lambda)
    for target in getattr(node, "targets", [getattr(node, "target", None)])
    if isinstance(target, ast.Name)
  }
  functions: dict[str, set[str]] = {}
  others = _imported(nodes)
  for node in nodes:
    function = node if isinstance(node, _FUNCTIONS) else bodies.get(node)
    if function is not None:
      name = _names(node)[0]
      arguments = function.args.args + function.args.kwonlyargs
      functions.setdefault(name, set()).update(a.arg for a in arguments)
    else:
      others.update(_bound(node))
  return {name: functions[name] for name in functions.keys() - others}


def _new_names(nodes: Nodes, kept: set[str]) -> dict[str, str]:
  """Old name -> new name, in the order of first appearance."""
  bound = {name for node in nodes for name in _bound(node)} - kept
  bound = {name for name in bound if not name.startswith("__")}
  in_order = dict.fromkeys(
    name for node in nodes for name in _names(node) if name in bound
  )
  # No keyword and no builtin looks like a new name; names that stay may.
  taken = set(re.findall(r"\bv\d+\b", ast.unparse(nodes[0]))) - bound
  free = (f"v{i}" for i in itertools.count() if f"v{i}" not in taken)
  return dict(zip(in_order, free))


def _rename(
  nodes: Nodes, names: Mapping[str, str], own_keywords: set[ast.keyword]
) -> None:
  """Replaces names in the tree, in place."""
  for node in nodes:
    if isinstance(node, ast.Global | ast.Nonlocal):
      node.names = [names.get(name, name) for name in node.names]
    elif not isinstance(node, ast.alias | ast.keyword) or node in own_keywords:
      for field in _NAME_FIELDS:
        name = getattr(node, field, None)
        if isinstance(name, str):
          setattr(node, field, names.get(name, name))
    for field in ("annotation", "returns"):
      if (annotation := getattr(node, field, None)) is not None:
        _rename_strings(annotation, names)


def _rename_strings(annotation: ast.expr, names: Mapping[str, str]) -> None:
  """Replaces names in the strings of an annotation: "list[Node]"."""
  for node in _walk(annotation):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      node.value = _WORD.sub(lambda m: names.get(m[0], m[0]), node.value)
