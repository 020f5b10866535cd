"""A policy that is evaluated: a model's directory, or a run's checkpoint."""

import dataclasses
import json
import pathlib
import re
from typing import Any

import numpy as np
from ml_collections import config_dict

from codea1_jax import adapters, checkpoint, devices, inputs, rollout
from codea1_jax.devices import Parallel
from codea1_jax.models import lora
from codea1_jax.rollout import Policy
from codea1_jax.train_state import PolicyState


@dataclasses.dataclass(frozen=True)
class Subject:
  """A policy with its parameters on devices."""

  name: str  # for tables: what it was opened by, with the checkpoint's step
  policy: Policy
  params: Any
  parallel: Parallel
  config: Any = None  # of the run

  def setting(self, field: str, otherwise: Any) -> Any:
    """A field of the run's config, such as "prompts.preset"."""
    if self.config is None:
      return otherwise
    value = self.config
    for part in field.split("."):
      value = value[part]
    return value

  def sampler(self, settings: rollout.SamplingConfig):
    """rollout.make_sampler's function, without its first argument."""
    sample = rollout.make_sampler(self.policy, settings, self.parallel)
    return lambda *args, **kwargs: sample(self.params, *args, **kwargs)


def open_subject(
  name: str,
  role: str = "code",
  *,
  dtype: str = "float32",
  param_dtype: str = "float32",
) -> Subject:
  """Loads what `name` says, on all devices of this host.

  Args:
    name: a directory or hub:ORG/NAME as for config.code.model, shipped:NAME, or
      WORKDIR[:STEP], a run's checkpoint, the newest where no step is given.
    role: whose policy of a run.
    dtype: of the computation.
    param_dtype: of the parameters.

  Raises:
    ValueError, OSError: no such model or checkpoint, or a broken one; a line.
  """
  parallel = devices.make_parallel("pmap")
  compute = {"dtype": dtype, "param_dtype": param_dtype}
  if is_run(name):
    return _open_run(name, role, parallel, compute)
  policy, params = rollout.load_policy(inputs.resolve_model(name), **compute)
  return Subject(name, policy, parallel.place(params), parallel)


def is_run(name: str) -> bool:
  """Whether a name is WORKDIR[:STEP]."""
  workdir = re.fullmatch(r"(.*?)(:\d+)?", name)[1]
  return (pathlib.Path(workdir) / "checkpoints").is_dir()


def heldout_problems(name: str) -> str:
  """The file of held-out problems that a run's config names.

  Raises:
    ValueError, OSError: no such run, or a broken one; a line.
  """
  return _read_config(checkpoint.find(name), lambda c: c.heldout_problems)


def _read_config(source: checkpoint.Source, read):
  """What `read` takes of a run's config."""
  path = source.workdir / "config.json"
  try:
    return read(config_dict.ConfigDict(json.loads(path.read_text())))
  except (ValueError, KeyError, AttributeError) as error:
    raise ValueError(f"{path} is no run's config: {error}") from error


def _open_run(name, role, parallel, compute) -> Subject:
  source = checkpoint.find(name)

  def read(config):
    if config.method == "self_play":
      return config, "code", config.self_play_model
    return config, role, config[role].model

  config, role, model = _read_config(source, read)
  policy, params = rollout.load_policy(inputs.resolve_model(model), **compute)
  start = params
  if config.lora.rank:
    start = adapters.start(config, role, policy.model_config)
  like = parallel.place(PolicyState(np.zeros((), np.int32), start, ()))
  state = checkpoint.read_policy(source, role, like, parallel, params_only=True)
  params_placed = state.params
  if config.lora.rank:
    merged = lora.merge(
      params,
      policy.model_config,
      parallel.fetch(state.params),
      adapters.settings(config),
    )
    params_placed = parallel.place(merged)
  label = f"{source.workdir.name}:{source.step}:{role}"
  return Subject(label, policy, params_placed, parallel, config)
