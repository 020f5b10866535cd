"""Flags whose mistakes end in one line and exit code 2."""

import sys
from typing import NoReturn

from absl import flags, logging


def parse(arguments: list[str]) -> list[str]:
  """absl's parser; a bad flag, field or value is one line."""
  logging.set_verbosity(logging.WARNING)  # libraries report every file saved
  try:
    return flags.FLAGS(arguments)
  except (
    flags.Error,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
  ) as error:
    fail(error)
  except FileNotFoundError as error:
    fail(f"no such config file: {error.filename or error}")


def fail(error: object) -> NoReturn:
  """Prints one line and exits with 2."""
  print("error: " + " ".join(str(error).split()), file=sys.stderr)
  sys.exit(2)
