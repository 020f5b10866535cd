"""One role's compiled programs, and the bytes of each on a device."""

import dataclasses
from typing import Any

from codea1_jax import adapters, assembly, memory
from codea1_jax.generation import PREFILL_TOKENS
from codea1_jax.memory import Cut
from codea1_jax.models.config import QwenConfig
from codea1_jax.rollout import bucket_length


@dataclasses.dataclass(frozen=True)
class Program:
  """One compiled program on a device, in bytes."""

  name: str
  held: int  # of its arguments: what lies on the device all the time
  arguments: int  # its other arguments
  temporary: int
  results: int = 0  # that take no argument's memory
  beside: int = 0  # what waits meanwhile, neither held nor an argument

  @property
  def compiled(self) -> int:
    """As XLA counts: arguments, temporaries, results."""
    return self.held + self.arguments + self.temporary + self.results

  @property
  def own(self) -> int:
    """What it adds to everything that is held."""
    return self.arguments + self.temporary + self.results + self.beside


@dataclasses.dataclass(frozen=True)
class Role:
  """What a config asks of one role, and the sizes that follow."""

  config: Any
  name: str
  model: QwenConfig
  cut: Cut

  @property
  def adapted(self) -> bool:
    """Whether adapters are trained beside a base."""
    return bool(self.config.lora.rank)

  @property
  def samples(self) -> int:
    """Completions of a prompt."""
    play = self.config.rollout
    return play.codes if self.name == "code" else play.suites

  @property
  def prompts(self) -> int:
    """Of a step."""
    play = self.config.rollout
    return play.questions * (1 if self.name == "code" else play.codes)

  @property
  def trained_rows(self) -> int:
    """Completions of a step that are scored and trained on."""
    return assembly.groups_a_step(self.config, self.name) * self.samples

  @property
  def prompt_length(self) -> int:
    return self._bucketed("max_prompt_tokens")

  @property
  def length(self) -> int:
    return self._bucketed("max_new_tokens")

  def _bucketed(self, field: str) -> int:
    longest = self.config[self.name][field]
    return bucket_length(longest, self.config.rollout.bucket)

  @property
  def whole(self) -> int:
    """Bytes of all parameters of the model."""
    return self.elements * memory.size_of(self.model.param_dtype)

  @property
  def elements(self) -> int:
    return sum(memory.parameters(self.model, self.cut).values())

  @property
  def trained(self) -> int:
    """Elements that are trained: all, or the adapters."""
    if not self.adapted:
      return self.elements
    settings = adapters.settings(self.config)
    return memory.adapters(self.model, settings, self.cut)

  @property
  def base(self) -> int:
    """Bytes of the parameters beside adapters."""
    return self.whole if self.adapted else 0

  @property
  def params(self) -> int:
    """Bytes of what is trained; adapters are float32."""
    return 4 * self.trained if self.adapted else self.whole

  @property
  def moments(self) -> int:
    """Bytes of both."""
    dtype = self.config[self.name].optimizer.moment_dtype
    return 2 * self.trained * memory.size_of(dtype)

  @property
  def reference(self) -> int:
    """Bytes of a copy for the KL term."""
    half = self.config.reference.dtype == "bfloat16"
    return self.elements * 2 if half else self.whole


def learning(role: Role, widens: bool = False) -> list[Program]:
  """Scoring and the update, at the longest rows; `widens` as a device does."""
  config, groups = role.config, role.cut.groups
  length = role.prompt_length + role.length
  state = role.base + role.params
  placed = 0
  if config.reference.placement == "host":
    placed = role.reference
  slots, rows, row = (), _pass_rows(role, role.trained_rows), length
  if config.grpo.share_prompts:
    slots = role.prompt_length, role.length
    rows, row = config.grpo.micro_batch_size, _shared_row(role)
  forward = memory.forward(role.model, rows, row, role.cut, role.adapted, slots)
  gathered = memory.gathered(role.model, role.cut)
  if widens and role.model.scan_layers and role.model.param_dtype == "bfloat16":
    gathered += 4 * role.elements
  batch = min(config[role.name].minibatch_size, role.trained_rows)
  if not slots:
    rows, row = _pass_rows(role, batch), max(length, config.grpo.pack_length)
  backward = memory.backward(
    role.model, rows, row, role.cut, role.adapted, slots
  )
  # Gradients of what is gathered are as large, before each device has its part.
  backward += gathered * (1 if role.adapted else 2)
  update = memory.updating(role.params, role.moments, role.trained, backward)
  rows_bytes = -(-batch // groups) * (5 * length + 16 * role.length)
  return [
    Program(
      f"{role.name} scoring", state, 0, forward + gathered, beside=placed
    ),
    Program(f"{role.name} update", state + role.moments, rows_bytes, update),
  ]


def _shared_row(role: Role) -> int:
  """Tokens of a row of a prompt and as many slots as packing.py would take of
  completions that are all as long as they may be."""
  slots = min(role.config.grpo.share_prompts, role.samples)
  return role.prompt_length + 2 ** (slots.bit_length() - 1) * role.length


def _pass_rows(role: Role, rows: int) -> int:
  """Rows of one pass on a device: even micro-batches, as update.py cuts."""
  each = -(-rows // role.cut.groups)
  passes = -(-each // role.config.grpo.micro_batch_size)
  return -(-each // passes)


def sampling(role: Role) -> list[Program]:
  """Prompts into caches, caches into the decode batch, and decoding."""
  play, model, cut = role.config.rollout, role.model, role.cut
  each = -(-role.prompts // cut.groups)
  width = min(play.slot_samples, role.samples, play.max_rows)
  slots = max(1, play.max_rows // width)
  slots = min(each * -(-role.samples // width), slots)
  prompts = max(1, min(each, play.max_rows // role.samples))
  ring = role.config[role.name].max_new_tokens
  token = memory.cached_token(model, cut)
  shared = slots * role.prompt_length * token
  chosen = 0 if cut.mesh else shared  # what is new, beside what is old
  # A token's id and its log-prob lie beside its keys and values.
  cache = shared + slots * width * ring * (token + 8)
  filled = prompts * role.prompt_length * token
  held, copied = _decode_params(role)
  decode = memory.decoding(
    model, slots, slots * width, role.prompt_length, ring, cut
  )
  prefill = _prefill(role, prompts)
  again = filled + cache if each > prompts else 0  # to go on with the next ones
  name = role.name
  return [
    Program(f"{name} prefill", held, copied, prefill, filled, beside=again),
    Program(f"{name} admit", 0, filled + cache, chosen, beside=copied),
    Program(f"{name} decode", held, copied + cache, decode, beside=filled),
  ]


def _prefill(role: Role, prompts: int) -> int:
  """Temporary bytes, the layers not being scanned."""
  model = dataclasses.replace(role.model, scan_layers=False)
  rows = min(max(1, PREFILL_TOKENS // role.prompt_length), prompts)
  needed = memory.forward(
    model, rows, role.prompt_length, role.cut, role.adapted
  )
  if prompts % rows:
    # The last pass is filled up and cut off again: a second copy, half of which
    # XLA finds room for.
    padded = -(-prompts // rows) * rows
    cut_off = (2 * padded - prompts) * role.prompt_length // 2
    needed += cut_off * memory.cached_token(model, role.cut)
  return needed


def _decode_params(role: Role) -> tuple[int, int]:
  """Bytes that decoding takes as they are held, and those of its own copy."""
  model, cut = role.model, role.cut.gathered
  leaves = memory.parameters(model, cut)
  size, whole = memory.size_of(model.dtype), sum(leaves.values())
  if role.adapted:
    settings = adapters.settings(role.config)
    whole += memory.adapters(model, settings, cut)
  if role.cut.mesh or model.param_dtype != model.dtype:
    return 0, whole * size
  tables = sum(leaves.get(name, 0) for name in ("embedding", "head"))
  return tables * size, (whole - tables) * size
