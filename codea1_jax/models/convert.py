"""Hugging Face directories <-> parameters, names and shapes checked.

Letters as in `qwen.py`. A file's matrices are [out, in], ours [in, out]; its
query head n is ours (k, g) with n = k * G + g.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from codea1_jax.models import qwen
from codea1_jax.models.config import QwenConfig, config_from_hf, config_to_hf

_TOKENIZER_FILES = (
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.json",
  "merges.txt",
  "chat_template.jinja",
)
_FLOATS = ("F64", "F32", "F16", "BF16")
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclasses.dataclass(frozen=True)
class _Slot:
  """Where a file's tensor lives: params path, index into it, and its shape."""

  path: tuple[str, ...]
  index: tuple[Any, ...]  # of the leaf
  shape: tuple[int, ...]  # in the file


def _layer_slots(config: QwenConfig, layer: int) -> dict[str, _Slot]:
  """The tensors of one layer, by their name after `model.layers.N.`."""
  width, inner = config.hidden_size, config.intermediate_size
  heads = config.num_heads * config.head_dim
  kv_heads = config.num_kv_heads * config.head_dim
  group = config.num_heads // config.num_kv_heads
  everything = slice(None)
  # Which of the G + 2 heads of a key/value head's bundle, and how many rows.
  parts = {
    "q": (slice(0, group), heads),
    "k": (group, kv_heads),
    "v": (group + 1, kv_heads),
  }
  slots = {
    "input_layernorm": ("attention_norm", (), (width,)),
    "post_attention_layernorm": ("mlp_norm", (), (width,)),
    "self_attn.o_proj": ("out", (), (width, heads)),
    "mlp.gate_proj": ("gate_up", (everything, 0), (inner, width)),
    "mlp.up_proj": ("gate_up", (everything, 1), (inner, width)),
    "mlp.down_proj": ("down", (), (width, inner)),
  }
  for name, (part, rows) in parts.items():
    bundle = (everything, everything, part)
    slots[f"self_attn.{name}_proj"] = ("qkv", bundle, (rows, width))
  if config.qk_norm:
    for name in ("q_norm", "k_norm"):
      slots[f"self_attn.{name}"] = (name, (), (config.head_dim,))
  found = {
    f"{name}.weight": _Slot(("layers", leaf), (layer, *index), shape)
    for name, (leaf, index, shape) in slots.items()
  }
  if config.qkv_bias:
    for name, (part, rows) in parts.items():
      index = (layer, everything, part)
      path = ("layers", "qkv_bias")
      found[f"self_attn.{name}_proj.bias"] = _Slot(path, index, (rows,))
  return found


def _slots(config: QwenConfig) -> dict[str, _Slot]:
  """Every tensor of the file of such a model, by name."""
  table = (config.vocab_size, config.hidden_size)
  slots = {
    "model.embed_tokens.weight": _Slot(("embedding",), (), table),
    "model.norm.weight": _Slot(("final_norm",), (), table[1:]),
  }
  if not config.tie_word_embeddings:
    slots["lm_head.weight"] = _Slot(("head",), (), table)
  for layer in range(config.num_layers):
    for name, slot in _layer_slots(config, layer).items():
      slots[f"model.layers.{layer}.{name}"] = slot
  return slots


def _is_table(slot: _Slot) -> bool:
  """Whether the matrix is kept as [out, in]: embedding and head."""
  return slot.path[0] in ("embedding", "head")


def _lookup(tree: dict[str, Any], path: tuple[str, ...]) -> Any:
  for name in path:
    tree = tree[name]
  return tree


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  if not path.is_file():
    raise FileNotFoundError(f"{path} does not exist")
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise ValueError(f"{path} is not valid JSON: {error}") from None
  if not isinstance(value, dict):
    raise ValueError(f"{path} holds {type(value).__name__}, expected an object")
  return value


def _weight_files(directory: pathlib.Path) -> list[pathlib.Path]:
  """The one file, or the shards that the index lists."""
  single = directory / "model.safetensors"
  index = directory / "model.safetensors.index.json"
  if single.is_file():
    return [single]
  if not index.is_file():
    raise FileNotFoundError(
      f"{directory} has neither {single.name} nor {index.name}"
    )
  names = sorted(set(_read_json(index).get("weight_map", {}).values()))
  lost = [name for name in names if not (directory / name).is_file()]
  if lost or not names:
    raise FileNotFoundError(
      f"{index} lists files that are not there: {', '.join(lost) or 'none'}"
    )
  return [directory / name for name in names]


def _open(path: pathlib.Path):
  """Opens a safetensors file; a broken or truncated one is a ValueError."""
  try:
    return safetensors.safe_open(path, framework="numpy")
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(f"cannot read {path}: {error}") from None


def _check_tensors(handles, slots: dict[str, _Slot], where) -> None:
  """One report of all that is missing, unknown, misshapen or not a float."""
  shapes, dtypes = {}, {}
  for handle in handles:
    for name in handle.keys():  # noqa: SIM118 - not a mapping
      piece = handle.get_slice(name)
      shapes[name], dtypes[name] = tuple(piece.get_shape()), piece.get_dtype()
  # A tied model's copy of the head, and rope's table in old Llama files.
  harmless = {"lm_head.weight"} | {n for n in shapes if "rotary_emb" in n}
  missing = sorted(slots.keys() - shapes.keys())
  extra = sorted(shapes.keys() - slots.keys() - harmless)
  both = sorted(slots.keys() & shapes.keys())
  problems = [f"missing {', '.join(missing)}"] if missing else []
  problems += [f"unexpected {', '.join(extra)}"] if extra else []
  problems += [
    f"{name} has shape {shapes[name]}, expected {slots[name].shape}"
    for name in both
    if shapes[name] != slots[name].shape
  ]
  problems += [
    f"{name} is {dtypes[name]}, expected one of {', '.join(_FLOATS)}"
    for name in both
    if dtypes[name] not in _FLOATS
  ]
  if problems:
    raise ValueError(f"weights in {where}: {'; '.join(problems)}")


def _store(params: dict[str, Any], slot: _Slot, value: np.ndarray) -> None:
  """Writes a file's tensor into its place."""
  if value.ndim == 2 and not _is_table(slot):
    value = value.T
  leaf = _lookup(params, slot.path)
  leaf[slot.index] = value.reshape(leaf[slot.index].shape)


def _fetch(params: dict[str, Any], slot: _Slot, dtype) -> np.ndarray:
  """The inverse of `_store`, contiguous."""
  value = np.asarray(_lookup(params, slot.path)[slot.index])
  if len(slot.shape) == 2 and not _is_table(slot):
    value = value.reshape(slot.shape[::-1]).T
  return np.ascontiguousarray(value.reshape(slot.shape).astype(dtype))


def load_pretrained(
  directory: str | pathlib.Path,
  *,
  dtype: str = "float32",
  param_dtype: str = "float32",
) -> tuple[QwenConfig, qwen.Params]:
  """Loads config.json and the safetensors file(s) next to it.

  Tensors are read one by one straight into their place, so the peak is one copy
  of the parameters and one tensor.

  Args:
    directory: as Hugging Face lays it out.
    dtype: of the computation.
    param_dtype: of the returned parameters, whatever the file's.

  Returns:
    The config and the parameters.

  Raises:
    FileNotFoundError: no such directory, config or weights.
    ValueError: an unsupported config; a broken file; tensors that are missing,
      unknown or misshapen, all in one line.
  """
  directory = pathlib.Path(directory)
  if not directory.is_dir():
    raise FileNotFoundError(f"model directory {directory} does not exist")
  raw = _read_json(directory / "config.json")
  try:
    config = config_from_hf(raw)
  except ValueError as error:
    raise ValueError(f"{directory / 'config.json'}: {error}") from None
  config = dataclasses.replace(config, dtype=dtype, param_dtype=param_dtype)
  handles = [_open(path) for path in _weight_files(directory)]
  slots = _slots(config)
  _check_tensors(handles, slots, directory)
  params = jax.tree.map(
    lambda shape: np.empty(shape, jnp.dtype(param_dtype)),
    qwen.param_shapes(config),
    is_leaf=lambda node: isinstance(node, tuple),
  )
  for handle in handles:
    for name in handle.keys():  # noqa: SIM118 - not a mapping
      if name in slots:
        _store(params, slots[name], handle.get_tensor(name))
  return config, jax.tree.map(jnp.asarray, params)


def _check_params(config: QwenConfig, params: qwen.Params) -> None:
  expected = qwen.param_shapes(config)
  shapes = jax.tree.map(jnp.shape, params)
  if shapes != expected:
    raise ValueError(
      f"params do not fit the config: have {shapes}, expected {expected}"
    )


def _write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
  text = json.dumps(value, indent=2, sort_keys=True)
  path.write_text(text + "\n", encoding="utf-8")


def _token_ids(tokenizer_from: pathlib.Path | None) -> dict[str, Any]:
  """Special ids for generation_config.json, from the model it came from."""
  if tokenizer_from is None:
    return {}
  path = tokenizer_from / "generation_config.json"
  if path.is_file():
    raw = _read_json(path)
    return {name: raw[name] for name in _TOKEN_IDS if name in raw}
  tokenizer = load_tokenizer(tokenizer_from)
  ids = {name: getattr(tokenizer, name) for name in _TOKEN_IDS}
  return {name: value for name, value in ids.items() if value is not None}


def save_pretrained(
  directory: str | pathlib.Path,
  config: QwenConfig,
  params: qwen.Params,
  *,
  dtype: str = "bfloat16",
  tokenizer_from: str | pathlib.Path | None = None,
) -> None:
  """Writes a directory that `load_pretrained` and transformers load.

  The same parameters give the same bytes.

  Args:
    directory: made if it does not exist.
    config: the decoder's shape.
    params: its parameters.
    dtype: of the file's tensors.
    tokenizer_from: directory to copy the tokenizer's files from.
  """
  _check_params(config, params)
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  source = pathlib.Path(tokenizer_from) if tokenizer_from else None
  token_ids = _token_ids(source)
  raw = config_to_hf(config) | {"torch_dtype": dtype} | token_ids
  _write_json(directory / "config.json", raw)
  _write_json(directory / "generation_config.json", token_ids)
  host = jax.tree.map(np.asarray, params)
  tensors = {
    name: _fetch(host, slot, jnp.dtype(dtype))
    for name, slot in sorted(_slots(config).items())
  }
  safetensors.numpy.save_file(
    tensors, directory / "model.safetensors", metadata={"format": "pt"}
  )
  if source and source.resolve() != directory.resolve():
    for name in _TOKENIZER_FILES:
      if (source / name).is_file():
        shutil.copyfile(source / name, directory / name)


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
  ids = _read_json(path).get("eos_token_id") if path.is_file() else None
  ids = [ids] if isinstance(ids, int) else list(ids or ())
  if tokenizer.eos_token_id is not None:
    ids.append(tokenizer.eos_token_id)
  if not ids:
    raise ValueError(
      f"no end token: {path} has no eos_token_id, nor has the tokenizer"
    )
  return tuple(sorted(set(ids)))
