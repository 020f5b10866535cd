"""LoRA by config: what adapters a run starts with, and how they are used."""

import functools
from typing import Any

import jax

from codea1_jax.models import lora, peft
from codea1_jax.models.config import QwenConfig
from codea1_jax.update import Bind

ROLES = ("code", "test")


def settings(config: Any) -> lora.LoraConfig:
  """The run's rank, alpha and targets.

  Raises:
    ValueError: a target that is no projection, or a rank below 1.
  """
  fields = config.lora
  return lora.LoraConfig(fields.rank, fields.alpha, tuple(fields.targets))


def start(config: Any, role: str, model_config: QwenConfig) -> lora.Adapters:
  """One role's adapters: new ones, which change nothing, or those of a PEFT
  directory.

  Raises:
    FileNotFoundError, ValueError: the directory's adapters are not there, are
      broken, or have another rank, alpha or other targets than the config.
  """
  wanted = settings(config)
  directory = config[role].adapter
  if not directory:
    key = jax.random.fold_in(jax.random.key(config.seed), ROLES.index(role))
    return lora.init_adapters(model_config, wanted, key)
  found, adapters = peft.load_adapters(directory, model_config)
  for name in ("rank", "alpha", "targets"):
    theirs, ours = getattr(found, name), getattr(wanted, name)
    if name == "targets":
      theirs, ours = sorted(theirs), sorted(ours)
    if theirs != ours:
      raise ValueError(
        f"{directory}: {name} is {theirs}, but config.lora.{name} is {ours}"
      )
  return adapters


def binder(config: Any) -> Bind:
  """(base, adapters) -> parameters of both; the base is not copied."""
  return functools.partial(lora.attach, lora=settings(config))
