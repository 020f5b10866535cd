"""LiveCodeBench: contest problems with public and private tests."""

import base64
import binascii
import functools
import pickletools
import zlib
from collections.abc import Mapping, Set
from typing import Any

from codea1_jax.datasets import fields, json_calls, whole_test
from codea1_jax.datasets.draft import Draft, blank

NAME = "livecodebench"
Test = tuple[str, json_calls.Case]  # its kind, and what it wants
_MOST_BYTES = 1 << 30  # of a row's private tests, inflated
# All that the pickle of one string needs. None of it can name a class, call
# anything or refer to what is elsewhere.
_OF_TEXT = frozenset(
  ["PROTO", "FRAME", "STOP", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"]
)
_TEXTS = frozenset(["SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"])


def recognizes(names: Set[str]) -> bool:
  """Whether a row with these fields is of this format."""
  return {"question_content", "public_test_cases"} <= names


def draft(where: str, row: Mapping[str, Any]) -> Draft:
  """A row -> Draft. Fields: question_id, question_content (strings),
  starter_code (a string, maybe empty), metadata (JSON with func_name),
  public_test_cases (JSON) and private_test_cases (JSON, or base64 of a
  compressed pickle of it); each test has input, output and testtype.

  The benchmark has no reference solutions. A row becomes a problem where it has
  `code_list`, as the benchmark's own files of results do.

  Raises:
    ValueError: "FILE:ROW: field 'x': problem".
  """
  name = fields.text(where, row, "question_id")
  question = fields.text(where, row, "question_content")
  metadata = {"metadata": fields.decoded(where, row, "metadata")}
  fields.mapping(where, metadata, "metadata")
  public = fields.decoded(where, row, "public_test_cases")
  tests = [*_tests(where, public, "public_test_cases"), *_private(where, row)]
  if {kind for kind, _ in tests} != {"functional"}:
    reason = "reads standard input: no function" if tests else "no tests"
    return Draft(where, blank(name, question, ""), reason=reason)
  function = fields.text(where, metadata, "metadata.func_name")
  cases = [case for _, case in tests]
  starter = fields.text(where, row, "starter_code", may_be_empty=True)
  signature = json_calls.method_signature(starter, function)
  has_answers = fields.has(row, "code_list")
  programs = fields.texts(where, row, "code_list") if has_answers else []
  programs = [json_calls.as_function(p, function) for p in programs]
  found = json_calls.find_calls(function, cases)
  return Draft(
    where,
    blank(name, question, function, signature),
    tuple(filter(None, programs)),
    found,
    functools.partial(
      whole_test.job,
      [json_calls.test_source(function, cases)],
      json_calls.CPU_S,
    ),
    left_out=json_calls.left_out(cases, found),
  )


def _private(where: str, row: Mapping[str, Any]) -> list[Test]:
  """The private tests, whichever way they are packed."""
  name = "private_test_cases"
  packed = fields.text(where, row, name)
  if not packed.lstrip().startswith("["):
    try:
      packed = plain_text(_inflated(base64.b64decode(packed, validate=True)))
    except (binascii.Error, zlib.error, ValueError) as error:
      raise ValueError(f"{where}: field {name!r}: {error}") from error
  return _tests(where, fields.from_json(where, name, packed), name)


def _inflated(data: bytes) -> bytes:
  inflater = zlib.decompressobj()
  inflated = inflater.decompress(data, _MOST_BYTES)
  if not inflater.eof:
    raise ValueError(f"no zlib data, or of more than {_MOST_BYTES} bytes")
  return inflated


def plain_text(pickled: bytes) -> str:
  """The string that a pickle holds; nothing is run to read it.

  Raises:
    ValueError: the pickle holds anything but one string.
  """
  texts = []
  try:
    for code, argument, _ in pickletools.genops(pickled):
      if code.name in _TEXTS:
        texts.append(argument)
      elif code.name not in _OF_TEXT:
        raise ValueError(f"refused: the pickle has {code.name}, no plain text")
  except (ValueError, IndexError, OverflowError) as error:
    if str(error).startswith("refused"):
      raise
    raise ValueError(f"no pickle: {error}") from error
  if len(texts) != 1:
    raise ValueError(f"refused: the pickle has {len(texts)} strings, not one")
  return texts[0]


def _tests(where: str, tests: Any, name: str) -> list[Test]:
  """The tests in a field; those of a function decoded."""
  found = []
  for place, test in enumerate(fields.items(where, {name: tests}, name)):
    here = f"{where}: field '{name}[{place}]'"
    kind = fields.text(here, test, "testtype")
    given, answer = (fields.found(here, test, f) for f in ("input", "output"))
    if not isinstance(given, str) or not isinstance(answer, str):
      raise ValueError(f"{here}: input and output must be strings")
    if kind != "functional":
      found.append((kind, ([], [])))
      continue
    lines = given.split("\n")
    arguments = [fields.from_json(here, "input", line) for line in lines]
    answers = [fields.from_json(here, "output", answer)]
    found.append((kind, (arguments, answers)))
  return found
