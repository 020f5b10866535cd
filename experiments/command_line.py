"""Command lines whose mistakes end in one line and exit code 2."""

import re
import sys
from typing import NoReturn

from absl import flags, logging


def parse(arguments: list[str]) -> list[str]:
  """absl's parser; a bad flag, config file, field or value is one line."""
  logging.set_verbosity(logging.WARNING)  # libraries report every file saved
  try:
    return flags.FLAGS(arguments)
  except FileNotFoundError as error:
    fail(f"no such file: {error.filename or error}")
  except (AttributeError, KeyError) as error:  # a field that is not there
    hint = str(error.args[0]).replace("\\n", ". ")
    hint = re.sub(r"[\\']", "", hint)  # quotes of quotes
    named = [a for a in arguments if a.startswith("--") and _leaf(a) in hint]
    fail(" ".join(["unknown field:", *named, hint]))
  except (
    flags.Error,
    ImportError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
  ) as error:
    text = str(error).strip()
    # A config file's own error arrives with its traceback: the end says it.
    fail(text.splitlines()[-1] if "Traceback" in text else text)


def _leaf(argument: str) -> str:
  """ "question" of "--config.rollout.question=3"."""
  return argument.split("=")[0].split(".")[-1]


def fail(error: object, code: int = 2) -> NoReturn:
  """Prints one line and exits."""
  print("error: " + " ".join(str(error).split()), file=sys.stderr)
  sys.exit(code)
