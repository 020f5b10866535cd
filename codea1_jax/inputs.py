"""What a config names: devices, problems and policies, each checked as read."""

import pathlib
from typing import Any

from codea1_jax import checks, devices, rollout
from codea1_jax import problems as problem_files
from codea1_jax.devices import Parallel
from codea1_jax.hosts import Hosts
from codea1_jax.models import hub
from codea1_jax.tiny import DATA

_SHIPPED = "shipped:"


def make_parallel(config) -> dict[str, Parallel]:
  """Both roles' devices: the same ones, or a half for each."""
  if config.placement == "colocated":
    both = devices.make_parallel(config.parallel, **config.mesh)
    return {"code": both, "test": both}
  halves = devices.halves()
  return {
    role: devices.make_parallel(config.parallel, half, **config.mesh)
    for role, half in zip(("code", "test"), halves)
  }


def check_hosts(config, hosts: Hosts, resume: bool) -> None:
  """All hosts have the same config and see the same workdir."""
  seen = hosts.gather((config.to_json(), resume))
  for index, (text, resumes) in enumerate(seen):
    if text != seen[0][0]:
      raise ValueError(f"host {index} has another config than host 0")
    if resumes != seen[0][1]:
      raise ValueError(f"host {index} sees another workdir than host 0")


def load_problem_sets(config):
  """The training problems that the run may use, and the held-out ones."""
  problems, heldout = (
    problem_files.load_problems(resolve(path, ".jsonl"))
    for path in (config.train_problems, config.heldout_problems)
  )
  if config.max_train_problems:
    problems = problem_files.subset(
      problems, config.max_train_problems, config.seed
    )
  checks.check_problems(config, problems, heldout)
  return problems, heldout


def load_policies(
  config, parallel: dict[str, Parallel]
) -> dict[str, tuple[rollout.Policy, Any]]:
  """Both roles' policies with their parameters; in self-play, and as the base
  of adapters, one for both."""

  def load(role, model):
    shardings = None
    if config.parallel == "mesh":  # no device could hold all of it
      shardings = parallel[role].shardings
    return rollout.load_policy(
      resolve_model(model), shardings=shardings, **config.compute
    )

  shared = config.code.model if config.lora.rank else None
  if config.method == "self_play":
    shared = config.self_play_model
  if shared:
    both = load("code", shared)
    policies = {"code": both, "test": both}
  else:
    policies = {r: load(r, config[r].model) for r in ("code", "test")}
  for role, (policy, _) in policies.items():
    checks.check_context(config, role, policy.model_config.context_length)
  return policies


def resolve(path: str, suffix: str = "") -> pathlib.Path:
  """A user's path, or the file or directory that the package ships."""
  if path.startswith(_SHIPPED):
    return DATA / (path.removeprefix(_SHIPPED) + suffix)
  return pathlib.Path(path)


def resolve_model(name: str) -> pathlib.Path:
  """A model's directory: the package's, a user's, or from the Hub."""
  return resolve(name) if name.startswith(_SHIPPED) else hub.resolve_model(name)
