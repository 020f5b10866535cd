"""Call texts of tests, checked and turned into plain argument data."""

import ast

from codea1_jax.sandbox.encoding import DictNode
from codea1_jax.sandbox.values import (
  literal_value,
  parse_expression,
  simple_literal,
  source,
)


def arguments_source(call: str, entry_point: str, max_chars: int) -> str:
  """The literal "((positional, ...), {'keyword': ...})" of a call's text.

  The child evaluates this text, so nothing in it may be more than a literal.

  Raises:
    ValueError: the call is not one of `entry_point` with literal arguments.
  """
  call = call.strip()
  if call.startswith(f"{entry_point}(") and call.endswith(")"):
    inner = f"[{call[len(entry_point) + 1 : -1]}]"
    found, positional = simple_literal(inner, max_chars)
    if found:
      return f"({source(tuple(positional))}, {{}})"
  node = parse_expression(call, max_chars)
  if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
    raise ValueError(f"not a call of {entry_point}")
  if node.func.id != entry_point:
    raise ValueError(f"calls {node.func.id[:40]}, not {entry_point}")
  names = [keyword.arg for keyword in node.keywords]
  if None in names or len(set(names)) != len(names):
    raise ValueError("** or a repeated keyword in the arguments")
  positional = tuple(literal_value(item, 1) for item in node.args)
  keywords = [
    (name, literal_value(keyword.value, 1))
    for name, keyword in zip(names, node.keywords)
  ]
  return f"({source(positional)}, {source(DictNode(keywords))})"
