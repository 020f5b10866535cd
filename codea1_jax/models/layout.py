"""Where each tensor of a Hugging Face file lies in the parameters.

Letters as in `qwen.py`. A file's matrices are [out, in], ours [in, out]; its
query head n is ours (k, g) with n = k * G + g. So every tensor, transposed if
it is a matrix of a layer, fills one rectangular block of one leaf.
"""

import dataclasses
from collections.abc import Iterator

from codea1_jax.models.config import QwenConfig


@dataclasses.dataclass(frozen=True)
class Slot:
  """A file's tensor, and its block in a leaf of the parameters."""

  path: tuple[str, ...]  # of the leaf
  start: tuple[int, ...]  # of the block in the leaf
  block: tuple[int, ...]  # shape of the block
  shape: tuple[int, ...]  # shape in the file
  transposed: bool


def _layer_slots(config: QwenConfig) -> dict[str, Slot]:
  """The tensors of layer 0, by their name after `model.layers.0.`."""
  width, inner = config.hidden_size, config.intermediate_size
  kv_heads, head_dim = config.num_kv_heads, config.head_dim
  group = config.num_heads // kv_heads
  # Which of the G + 2 heads of a key/value head's bundle: first, and how many.
  parts = {"q": (0, group), "k": (group, 1), "v": (group + 1, 1)}
  rows = {
    name: kv_heads * count * head_dim for name, (_, count) in parts.items()
  }

  def slot(leaf, start, block, shape):
    matrix = len(shape) == 2
    return Slot(("layers", leaf), (0, *start), (1, *block), shape, matrix)

  out = (kv_heads, group, head_dim, width)
  slots = {
    "input_layernorm": slot("attention_norm", (0,), (width,), (width,)),
    "post_attention_layernorm": slot("mlp_norm", (0,), (width,), (width,)),
    "self_attn.o_proj": slot("out", (0,) * 4, out, (width, rows["q"])),
    "mlp.down_proj": slot("down", (0, 0), (inner, width), (width, inner)),
  }
  for index, name in enumerate(("gate", "up")):
    slots[f"mlp.{name}_proj"] = slot(
      "gate_up", (0, index, 0), (width, 1, inner), (inner, width)
    )
  if config.qk_norm:
    for name in ("q_norm", "k_norm"):
      slots[f"self_attn.{name}"] = slot(name, (0,), (head_dim,), (head_dim,))
  found = {f"{name}.weight": value for name, value in slots.items()}
  for name, (first, count) in parts.items():
    block, shape = (kv_heads, count, head_dim), (rows[name], width)
    stem = f"self_attn.{name}_proj"
    found[f"{stem}.weight"] = slot(
      "qkv", (0, 0, first, 0), (width, *block), shape
    )
    if config.qkv_bias:
      found[f"{stem}.bias"] = slot("qkv_bias", (0, first, 0), block, shape[:1])
  return found


def slots(config: QwenConfig) -> dict[str, Slot]:
  """Every tensor of the file of such a model, by name."""
  table = (config.vocab_size, config.hidden_size)
  width = table[1:]
  found = {
    "model.embed_tokens.weight": Slot(
      ("embedding",), (0, 0), table, table, False
    ),
    "model.norm.weight": Slot(("final_norm",), (0,), width, width, False),
  }
  if not config.tie_word_embeddings:
    found["lm_head.weight"] = Slot(("head",), (0, 0), table, table, False)
  for name, slot in _layer_slots(config).items():
    for layer in range(config.num_layers):
      found[f"model.layers.{layer}.{name}"] = dataclasses.replace(
        slot, start=(layer, *slot.start[1:])
      )
  return found


def pieces(slot: Slot, max_values: int) -> Iterator[tuple[int, Slot]]:
  """First row and slot of each range of a table; the rest stays whole.

  An embedding may be a third of a small model: held twice for a moment, it
  would set the peak of memory.
  """
  if slot.transposed or len(slot.shape) < 2:
    yield 0, slot
    return
  rows, width = slot.shape
  step = max(1, max_values // width)
  for row in range(0, rows, step):
    part = (min(step, rows - row), width)
    yield row, Slot(slot.path, (row, 0), part, part, False)
