"""Where a model is: a local directory, or `hub:ORG/NAME[@revision]`."""

import pathlib
import re

_PREFIX = "hub:"
_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_ID = re.compile(rf"({_REPO.pattern})(?:@([\w./-]+))?")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", "merges.txt"]
_UNWANTED = ["*/*", "consolidated*"]  # copies in other formats


def _fetch(name: str, repo: str, revision: str | None) -> pathlib.Path:
  """Downloads what is not in huggingface_hub's cache yet; offline, nothing."""
  try:
    import huggingface_hub  # slow to import, and only needed here

    directory = huggingface_hub.snapshot_download(
      repo,
      revision=revision,
      allow_patterns=_WANTED,
      ignore_patterns=_UNWANTED,
    )
  except Exception as error:  # its own errors, those of http, of the disk
    reason = next(iter(str(error).strip().splitlines()), repr(error))
    raise ValueError(
      f"cannot fetch {name} from the Hugging Face Hub:"
      f" {type(error).__name__}: {reason}"
    ) from error
  return pathlib.Path(directory)


def resolve_model(name: str) -> pathlib.Path:
  """The directory of a model; only `hub:` ids may touch the network.

  Args:
    name: a local directory, or `hub:ORG/NAME[@revision]`, which comes from the
      Hugging Face Hub or, offline, from the cache of an earlier download.

  Raises:
    FileNotFoundError: no such directory.
    ValueError: a malformed id, or one that cannot be fetched.
  """
  if name.startswith(_PREFIX):
    match = _ID.fullmatch(name.removeprefix(_PREFIX))
    if not match:
      raise ValueError(f"model {name!r}, expected hub:ORG/NAME[@revision]")
    return _fetch(name, *match.groups())
  path = pathlib.Path(name)
  if not path.is_dir():
    hint = ""
    if _REPO.fullmatch(name):
      hint = f"; for the one on the Hugging Face Hub write {_PREFIX}{name}"
    raise FileNotFoundError(f"model directory {path} does not exist{hint}")
  return path
