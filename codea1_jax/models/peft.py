"""LoRA adapters as the PEFT library keeps them on disk.

A directory with adapter_config.json and adapter_model.safetensors, whose
matrices are [out, in]: `lora_A` [R, in] and `lora_B` [out, R].
"""

import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from codea1_jax.models import files, lora
from codea1_jax.models.config import QwenConfig

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Fields that would change what the adapters compute, where they are not this.
_PLAIN = {
  "peft_type": ("LORA",),
  "bias": ("none", None),
  "use_dora": (False, None),
  "use_rslora": (False, None),
  "use_qalora": (False, None),
  "lora_bias": (False, None),
  "init_lora_weights": (True, False, None, "gaussian"),  # others change W
  "alora_invocation_tokens": (None, []),
  "loftq_config": ({}, None),
  "fan_in_fan_out": (False, None),
  "modules_to_save": (None, []),
  "rank_pattern": ({}, None),
  "alpha_pattern": ({}, None),
  "layers_to_transform": (None, []),
  "layers_pattern": (None, []),
  "exclude_modules": (None, []),
  "megatron_config": (None,),
  "layer_replication": (None, []),
  "target_parameters": (None, []),
}


def load_adapters(
  directory: str | pathlib.Path, config: QwenConfig, dtype: str = "float32"
) -> tuple[lora.LoraConfig, lora.Adapters]:
  """Adapters of a PEFT directory, checked against the base's config.

  Raises:
    FileNotFoundError: no such directory or file.
    ValueError: a setting that we do not compute, by its name; tensors that are
      missing, unknown or misshapen, all in one line; a broken file.
  """
  directory = pathlib.Path(directory)
  raw = files.read_json(directory / _CONFIG)
  found = _lora_config(raw, directory / _CONFIG)
  path = directory / _WEIGHTS
  if not path.is_file():
    raise FileNotFoundError(f"{path} does not exist")
  headers = files.read_headers([path])
  shapes = lora.adapter_shapes(config, found)
  wanted = {
    _tensor_name(layer, name, kind): (name, kind, layer)
    for name in shapes
    for kind in ("a", "b")
    for layer in range(config.num_layers)
  }
  _check(headers, wanted, shapes, path)
  adapters = {
    name: {kind: np.empty(shape, np.float32) for kind, shape in part.items()}
    for name, part in shapes.items()
  }
  for tensor, (name, kind, layer) in wanted.items():
    rows = headers[tensor][1][0]
    value = files.read_rows(path, tensor, 0, rows)
    adapters[name][kind][layer] = value.astype(np.float32).T
  return found, {
    name: {kind: jnp.asarray(x, dtype) for kind, x in part.items()}
    for name, part in adapters.items()
  }


def save_adapters(
  directory: str | pathlib.Path,
  config: QwenConfig,
  settings: lora.LoraConfig,
  adapters: lora.Adapters,
  *,
  base_model: str,
) -> None:
  """Writes a directory that PEFT and `load_adapters` read, in float32.

  Args:
    directory: made if it does not exist.
    config: of the base.
    settings: rank, alpha and targets.
    adapters: as `lora.init_adapters` lays them out.
    base_model: directory or hub id of the base, for PEFT to find it.
  """
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  tensors = {
    _tensor_name(layer, name, kind): np.ascontiguousarray(
      np.asarray(value[layer], np.float32).T
    )
    for name, part in adapters.items()
    for kind, value in part.items()
    for layer in range(config.num_layers)
  }
  safetensors.numpy.save_file(
    tensors, directory / _WEIGHTS, metadata={"format": "pt"}
  )
  files.write_json(
    directory / _CONFIG,
    {
      "peft_type": "LORA",
      "task_type": "CAUSAL_LM",
      "base_model_name_or_path": base_model,
      "r": settings.rank,
      "lora_alpha": settings.alpha,
      "lora_dropout": 0.0,
      "target_modules": list(settings.targets),
      "bias": "none",
      "fan_in_fan_out": False,
      "inference_mode": True,
    },
  )


def _lora_config(raw: dict[str, Any], where: pathlib.Path) -> lora.LoraConfig:
  for field, plain in _PLAIN.items():
    if field in raw and raw[field] not in plain:
      raise ValueError(f"{where}: {field} is {raw[field]!r}: not supported")
  try:
    rank, alpha, targets = (
      raw[field] for field in ("r", "lora_alpha", "target_modules")
    )
  except KeyError as error:
    raise ValueError(f"{where}: field {error} is missing") from None
  if targets == "all-linear":
    targets = lora.TARGETS
  if not isinstance(targets, list | tuple) or not isinstance(rank, int):
    raise ValueError(
      f"{where}: target_modules {targets!r} with r {rank!r}: expected a list"
      " of projections and a number"
    )
  try:
    return lora.LoraConfig(rank, float(alpha), tuple(sorted(targets)))
  except (TypeError, ValueError) as error:
    raise ValueError(f"{where}: {error}") from None


def _tensor_name(layer: int, name: str, kind: str) -> str:
  block = "self_attn" if name in lora.ATTENTION else "mlp"
  return (
    f"base_model.model.model.layers.{layer}.{block}.{name}"
    f".lora_{kind.upper()}.weight"
  )


def _check(headers, wanted, shapes, path) -> None:
  """One report of all that is missing, unknown or misshapen."""
  missing = sorted(wanted.keys() - headers.keys())
  extra = sorted(headers.keys() - wanted.keys())
  problems = [f"missing {', '.join(missing)}"] if missing else []
  problems += [f"unexpected {', '.join(extra)}"] if extra else []
  for tensor in sorted(wanted.keys() & headers.keys()):
    name, kind, _ = wanted[tensor]
    expected = shapes[name][kind][:0:-1]
    if headers[tensor][1] != expected:
      problems.append(
        f"{tensor} has shape {headers[tensor][1]}, expected {expected}"
      )
  if problems:
    raise ValueError(f"adapters in {path}: {'; '.join(problems)}")
