"""What a plan looks up: devices, and the shapes of published models."""

import dataclasses
import os
import re

from codea1_jax.models import files
from codea1_jax.models.config import QwenConfig, config_from_hf

_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Device:
  """One chip, and how many of them there are."""

  name: str
  count: int
  memory: int  # bytes
  flops: float  # a second, dense bfloat16, the vendor's peak
  # Whether bfloat16 is multiplied as float32: XLA then widens all layers that
  # it scans before the first, as it does on CPUs.
  widens: bool = False


# GiB, TFLOP/s: the vendors' data sheets.
_DEVICES = {
  "v4": (32, 275),
  "v5e": (16, 197),
  "v5p": (95, 459),
  "v6e": (32, 918),
  "a100": (80, 312),
  "a100_40": (40, 312),
  "h100": (80, 989),
  "h200": (141, 989),
}
# As jax names them -> as they stand above.
_KINDS = {
  "TPU v4": "v4",
  "TPU v5 lite": "v5e",
  "TPU v5e": "v5e",
  "TPU v5": "v5p",
  "TPU v5p": "v5p",
  "TPU v6 lite": "v6e",
  "TPU v6e": "v6e",
  "NVIDIA A100-SXM4-40GB": "a100_40",
  "NVIDIA A100-PCIE-40GB": "a100_40",
  "NVIDIA A100-SXM4-80GB": "a100",
  "NVIDIA A100 80GB PCIe": "a100",
  "NVIDIA H100 80GB HBM3": "h100",
  "NVIDIA H200": "h200",
}
_CPU_TFLOPS = 0.2  # two cores, float32, measured


def device(text: str) -> Device:
  """Reads "v5e-16": 16 chips (TPU slices named by cores have half of them).

  "cpu" is this machine; N of it are virtual and share its memory and cores.

  Raises:
    ValueError: an unknown name, or a number that is none.
  """
  name, _, number = text.partition("-")
  known = ", ".join((*_DEVICES, "cpu"))
  if not re.fullmatch(r"[1-9]\d*", number or "1") or text.endswith("-"):
    raise ValueError(f"device {text!r}, expected NAME or NAME-NUMBER")
  count = int(number or 1)
  if name == "cpu":
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    flops = _CPU_TFLOPS * 1e12 / count
    return Device(name, count, memory // count, flops, widens=True)
  if name not in _DEVICES:
    raise ValueError(f"device {text!r} is not one of {known} with -NUMBER")
  memory, flops = _DEVICES[name]
  return Device(name, count, memory * _GIB, flops * 1e12)


def peak_flops(kind: str) -> float:
  """FLOP/s of a device by its kind in jax; 0 where that is not known here."""
  name = _KINDS.get(kind)
  return _DEVICES[name][1] * 1e12 if name else 0.0


def _coder(hidden, mlp, layers, heads, kv_heads, vocab=151936, tied=True):
  return QwenConfig(
    vocab_size=vocab,
    hidden_size=hidden,
    intermediate_size=mlp,
    num_layers=layers,
    num_heads=heads,
    num_kv_heads=kv_heads,
    head_dim=hidden // heads,
    tie_word_embeddings=tied,
  )


# As their config.json files have it: a plan needs no download.
_MODELS = {
  "hub:Qwen/Qwen2.5-Coder-0.5B-Instruct": _coder(896, 4864, 24, 14, 2),
  "hub:Qwen/Qwen2.5-Coder-1.5B-Instruct": _coder(1536, 8960, 28, 12, 2),
  "hub:Qwen/Qwen2.5-Coder-3B-Instruct": _coder(2048, 11008, 36, 16, 2),
  "hub:Qwen/Qwen2.5-Coder-7B-Instruct": _coder(
    3584, 18944, 28, 28, 4, vocab=152064, tied=False
  ),
}


def model_shape(name: str, directory) -> QwenConfig:
  """Of a model, without its weights.

  Args:
    name: as configs have it.
    directory: where it is if it is not one of the Hub's.

  Raises:
    ValueError: a model of the Hub that is not in the table.
    FileNotFoundError: no config.json in the directory.
  """
  if name in _MODELS:
    return _MODELS[name]
  if name.startswith("hub:"):
    raise ValueError(
      f"the shape of {name} is not known here: give a directory that has its"
      " config.json"
    )
  return config_from_hf(files.read_json(directory / "config.json"))
