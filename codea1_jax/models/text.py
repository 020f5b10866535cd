"""The tokenizer of a model directory, its end tokens, its files."""

import os
import pathlib
import shutil
from typing import Any

from codea1_jax.models import files

_TOKENIZER_FILES = (
  "tokenizer.json",
  "tokenizer.model",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.json",
  "merges.txt",
  "chat_template.jinja",
  "chat_template.json",
)
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def load_tokenizer(directory: str | pathlib.Path):
  """The tokenizer of a model directory, with its chat template.

  Raises:
    FileNotFoundError: no such directory, or no tokenizer.json in it.
    ValueError: it does not load, or has no chat template.
  """
  directory = pathlib.Path(directory)
  if not directory.is_dir():
    raise FileNotFoundError(f"model directory {directory} does not exist")
  if not (directory / "tokenizer.json").is_file():
    raise FileNotFoundError(f"{directory} has no tokenizer.json")
  # Without torch it advises to install it; nothing here wants its models.
  os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
  import transformers  # slow to import, and only needed here

  try:
    tokenizer = transformers.AutoTokenizer.from_pretrained(
      directory, local_files_only=True
    )
  except Exception as error:  # the tokenizers library raises bare Exception
    line = str(error).splitlines()[0] if str(error) else repr(error)
    message = f"cannot load the tokenizer of {directory}: {line}"
    raise ValueError(message) from error
  if not tokenizer.chat_template:
    raise ValueError(
      f"the tokenizer of {directory} has no chat template (chat_template in"
      " tokenizer_config.json, or chat_template.jinja)"
    )
  return tokenizer


def eos_token_ids(directory: str | pathlib.Path, tokenizer) -> tuple[int, ...]:
  """Ids that end a completion: the generation config's, the tokenizer's."""
  path = pathlib.Path(directory) / "generation_config.json"
  ids = files.read_json(path).get("eos_token_id") if path.is_file() else None
  ids = [ids] if isinstance(ids, int) else list(ids or ())
  if tokenizer.eos_token_id is not None:
    ids.append(tokenizer.eos_token_id)
  if not ids:
    raise ValueError(
      f"no end token: {path} has no eos_token_id, nor has the tokenizer"
    )
  return tuple(sorted(set(ids)))


def special_token_ids(directory: pathlib.Path) -> dict[str, Any]:
  """Special ids of a model, from its generation config or its tokenizer."""
  path = directory / "generation_config.json"
  if path.is_file():
    raw = files.read_json(path)
    return {name: raw[name] for name in _TOKEN_IDS if name in raw}
  tokenizer = load_tokenizer(directory)
  ids = {name: getattr(tokenizer, name) for name in _TOKEN_IDS}
  return {name: value for name, value in ids.items() if value is not None}


def copy_files(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies the tokenizer and generation_config.json, sampling defaults too.

  Without a generation_config.json there, one of the special ids is written.
  """
  if not (source / "generation_config.json").is_file():
    ids = special_token_ids(source)
    files.write_json(target / "generation_config.json", ids)
  if source.resolve() == target.resolve():
    return
  for name in (*_TOKENIZER_FILES, "generation_config.json"):
    if (source / name).is_file():
      shutil.copyfile(source / name, target / name)
