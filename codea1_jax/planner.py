"""Whether a config fits its devices, and what a step computes, before a run.

Everything is counted at its longest: prompts and completions of the lengths
that the config allows, the decode batch full. memory.py says what its numbers
are worth.
"""

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from codea1_jax import (
  adapters,
  assembly,
  catalog,
  devices,
  flops,
  inputs,
  programs,
)
from codea1_jax.memory import Cut
from codea1_jax.models.config import QwenConfig
from codea1_jax.programs import Program, Role

_ROOM = 0.9  # of a device's memory: the rest is the runtime's, and our error
# Fields that are halved to save memory, and how far down.
_HALVED = {"rollout.max_rows": 8, "grpo.micro_batch_size": 1}
_GIB = 2**30
_SHORTEST = 512  # tokens
_RANK = 32  # of the adapters that are advised


@dataclasses.dataclass(frozen=True)
class Plan:
  """One config on one kind of device; bytes a device."""

  device: catalog.Device
  held: Mapping[str, int]  # from step to step, by what it is
  programs: tuple[Program, ...]
  flops: Mapping[str, int]  # of a step on all devices, by stage
  split: bool = False  # each role on half of the devices

  def held_beside(self, program: Program) -> int:
    """What is held on the devices that a program runs on."""
    role = program.name.split()[0]
    return sum(
      size
      for name, size in self.held.items()
      if not self.split or name.split()[0] == role
    )

  def peak(self, program: Program) -> int:
    """What is on the device while a program runs."""
    return self.held_beside(program) + program.own

  @property
  def worst(self) -> Program:
    return max(self.programs, key=self.peak)

  @property
  def highest(self) -> int:
    return self.peak(self.worst)

  @property
  def fits(self) -> bool:
    return self.highest <= _ROOM * self.device.memory

  @property
  def seconds(self) -> float:
    """Of a step, if all devices computed at their peak all the time."""
    total = sum(self.flops.values())
    return total / (self.device.count * self.device.flops)


def model_shapes(config: Any) -> dict[str, QwenConfig]:
  """Of both roles' models, without their weights.

  Raises:
    ValueError, FileNotFoundError: a model whose shape cannot be known.
  """
  names = {role: config[role].model for role in adapters.ROLES}
  if config.method == "self_play":
    names = dict.fromkeys(names, config.self_play_model)
  return {
    role: dataclasses.replace(
      catalog.model_shape(name, inputs.resolve(name)), **config.compute
    )
    for role, name in names.items()
  }


def make_plan(
  config: Any, device: catalog.Device, models: Mapping[str, QwenConfig]
) -> Plan:
  """Counts a config on devices.

  Args:
    config: see configs/tiny.py, checked.
    device: what it runs on.
    models: from `model_shapes`.

  Raises:
    ValueError: a mesh that the devices or the models do not divide into.
  """
  cut = cut_of(config, device.count)
  roles = [Role(config, name, model, cut) for name, model in models.items()]
  found = [p for role in roles for p in programs.sampling(role)]
  for role in roles:
    found += programs.learning(role, device.widens)
  return Plan(
    device,
    _held(config, roles),
    tuple(found),
    _flops(config, roles),
    config.placement == "split",
  )


def cut_of(config: Any, count: int) -> Cut:
  """How devices share what a config asks of them.

  Raises:
    ValueError: a mesh, or two halves, that there are not devices for.
  """
  if config.placement == "split":
    if count % 2:
      raise ValueError(f"placement is split: {count} devices are no two halves")
    count //= 2
  if config.parallel == "pmap":
    return Cut(count)
  data, fsdp, tensor = devices.mesh_shape(count, **config.mesh)
  return Cut(data * fsdp, fsdp, tensor, mesh=True)


def _held(config, roles) -> dict[str, int]:
  """Bytes from step to step, by what they are; "role ..." is one role's."""
  held = {}
  for role in roles:
    held[f"{role.name} params"] = role.params
    held[f"{role.name} optimizer"] = role.moments
  return held | _still(config, roles)


def _still(config, roles) -> dict[str, int]:
  """What never changes: bases and references, and the parameters as they were
  read, which are the base or the reference where a mesh holds them."""
  same = config.reference.dtype == "same"
  device = config.reference.placement == "device"
  wanted = assembly.roles_with_reference(config)
  still = {}
  for role in _distinct(config, roles):
    name, read = role.name, role.whole
    if role.adapted:
      still[f"{name} base"] = role.whole
    elif role.name in wanted and device:
      still[f"{name} reference"] = role.reference
    if role.cut.mesh and (role.adapted or (same and device)):
      read = 0
    where = "" if role.cut.mesh else ", first device"
    still[f"{name} as read{where}"] = read
  return {name: size for name, size in still.items() if size}


def _distinct(config, roles):
  """The roles whose parameters as read are their own."""
  shared = config.lora.rank or config.method == "self_play"
  return roles[:1] if shared and config.placement == "colocated" else roles


def _flops(config, roles) -> dict[str, int]:
  """Of a step, by stage, both roles together."""
  works = [_work(config, role) for role in roles]
  return {
    "rollout": sum(map(flops.rollout, works)),
    "scoring": sum(map(flops.scoring, works)),
    "update": sum(map(flops.update, works)),
  }


def _work(config, role: Role) -> flops.Work:
  plays = role.name in assembly.REWARDED[config.method]
  learns = plays or role.name in assembly.TRAINED[config.method]
  return flops.Work(
    model=role.model,
    prompts=role.prompts * plays,
    samples=role.samples,
    trained=role.trained_rows * learns,
    prompt_length=role.prompt_length,
    length=role.length,
    scorings=plays * (1 + (role.name in assembly.roles_with_reference(config))),
    epochs=config.grpo.epochs,
    trains_weights=not config.lora.rank,
  )


def advise(
  config: Any, device: catalog.Device, models: Mapping[str, QwenConfig]
) -> tuple[dict[str, Any], Plan]:
  """Fields to change until the config fits, least harmful first.

  Returns:
    The changes, none of which can be left out, and the plan with them; it may
    still not fit. No changes where it fits as it is.
  """

  def plan(changes):
    """None where the devices or the model do not divide."""
    changed = _changed(config, changes)
    shapes = {
      role: dataclasses.replace(model, **changed.compute)
      for role, model in models.items()
    }
    try:
      return make_plan(changed, device, shapes)
    except ValueError:
      return None

  def lower(changes):
    """With one more remedy that helps; None: none does."""
    worst = plan(changes).highest
    for more in _remedies(_changed(config, changes), device.count):
      tried = _unlike(config, changes | more)
      found = plan(tried)
      if found and found.highest < worst:
        return tried
    return None

  changes = {}
  while not plan(changes).fits:
    more = lower(changes)
    if more is None:
      return changes, plan(changes)
    changes = more
  for field in list(changes):
    for milder in _milder(config, changes, field):
      if plan(milder).fits:
        changes = milder
        break
  return changes, plan(changes)


def _changed(config, changes):
  changed = copy.deepcopy(config)
  changed.update_from_flattened_dict(changes)
  return changed


def _unlike(config, changes):
  """Those that change something."""
  flat = {k: _value(config, k) for k in changes}
  return {k: v for k, v in changes.items() if flat[k] != v}


def _value(config, field):
  for part in field.split("."):
    config = config[part]
  return config


def _milder(config, changes, field) -> Iterator[dict[str, Any]]:
  """The changes without one of them, then with less of it."""
  yield {k: v for k, v in changes.items() if k != field}
  if field in _HALVED:
    value = _value(config, field) // 2
    while value > changes[field]:
      yield changes | {field: value}
      value //= 2


def _remedies(config, count) -> Iterator[dict[str, Any]]:
  """What may be changed, from what costs nothing to what changes the run."""
  if config.parallel == "pmap" and count > 1:
    yield {"parallel": "mesh"}
  for field, least in _HALVED.items():
    if _value(config, field) >= 2 * least:
      yield {field: _value(config, field) // 2}
  yield {"compute.scan_layers": True, "compute.remat": "full"}
  if config.parallel == "mesh":
    yield {"mesh.tensor": 2 * max(config.mesh.tensor, 1)}
  moments = {f"{r}.optimizer.moment_dtype": "bfloat16" for r in adapters.ROLES}
  yield moments
  default = {"reference.dtype": "same", "reference.placement": "device"}
  if config.lora.rank:  # the base is not trained: no step is too small for it
    yield {"compute.param_dtype": "bfloat16"}
  else:
    yield {"reference.dtype": "bfloat16"}
    yield {"reference.placement": "host"}
    if config.code.model == config.test.model or config.method == "self_play":
      yield {"lora.rank": _RANK} | default
  for field in ("max_prompt_tokens", "max_new_tokens"):
    halves = {f"{r}.{field}": config[r][field] // 2 for r in adapters.ROLES}
    if min(halves.values()) >= _SHORTEST:
      yield halves


def verdict(plan: Plan, changes: Mapping[str, Any], better: Plan) -> str:
  """Whether it fits, and what `advise` found, as it is typed.

  Args:
    plan: of the config as it is.
    changes: from `advise`.
    better: the plan with them.
  """
  text = f"{'fits' if plan.fits else 'DOES NOT FIT'}: {_most(plan)}"
  if plan.fits:
    return text
  flags = "".join(f"\n  --config.{k}={v}" for k, v in changes.items())
  if better.fits:
    return f"{text}\nit does with{flags}\nwhere {_most(better)}"
  if not changes:
    return f"{text}\nnothing known here would lower that"
  return f"{text}\nnor does it with{flags}\nwhere {_most(better)}"


def _most(plan: Plan) -> str:
  device, worst = plan.device, plan.worst
  return (
    f"{worst.name} takes {plan.highest / _GIB:.1f} GiB of"
    f" {device.memory / _GIB:.1f} (a tenth is to be left free)"
  )
