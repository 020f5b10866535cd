"""Config -> the parts of a run, every input checked before long work starts."""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from codea1_jax import (
  adapters,
  boards,
  checks,
  inputs,
  judging,
  losses,
  reference,
  rollout,
  train_state,
)
from codea1_jax import optimizer as optimizers
from codea1_jax import update as updates
from codea1_jax.devices import Parallel
from codea1_jax.hosts import HostError, Hosts, SharedPool
from codea1_jax.player import Player
from codea1_jax.sandbox import Limits, SandboxPool
from codea1_jax.types import Problem

# Whose parameters a method trains; self-play's one policy is the coder's.
TRAINED = {
  "code_a1": ("code", "test"),
  "golden_tests": ("code",),
  "self_play": ("code",),
  "sft": ("test",),
}


# Whose samples get rewards and advantages.
REWARDED = {
  "code_a1": ("code", "test"),
  "golden_tests": ("code",),
  "self_play": ("code", "test"),
  "sft": (),
}


class InputError(ValueError):
  """Something the user gave is wrong; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Run:
  """Everything that stays the same while a run trains."""

  config: Any
  workdir: pathlib.Path
  problems: tuple[Problem, ...]
  heldout: tuple[Problem, ...]
  hosts: Hosts
  parallel: dict[str, Parallel]  # a role's devices
  pool: SandboxPool | SharedPool
  code: Player
  test: Player
  evaluators: dict[str, Any]  # samplers for evaluation, by name
  initial_state: Callable[[], train_state.RunState]  # on the devices
  resume: bool  # the workdir already holds this config's run

  @property
  def split(self) -> bool:
    """Whether each policy has devices of its own."""
    return self.config.placement == "split"


@contextlib.contextmanager
def open_run(
  config: Any,
  workdir: str | pathlib.Path,
  allow_config_change: Sequence[str] = (),
) -> Iterator[Run]:
  """Builds a run and opens its sandbox; closes it again at the end.

  Args:
    config: see configs/tiny.py.
    workdir: where the run lives; made if need be.
    allow_config_change: fields, or groups of them, in which the config may
      differ from the workdir's run.

  Raises:
    InputError: a bad value, file or directory, in one line.
  """
  workdir = pathlib.Path(workdir)
  with contextlib.ExitStack() as stack:
    hosts = Hosts()
    try:
      run = _build(config, workdir, hosts, stack, allow_config_change)
    except HostError as error:
      raise InputError(str(error)) from error
    except (ValueError, TypeError, OSError) as error:
      line = " ".join(str(error).split()) or repr(error)
      hosts.fail(line)
      raise InputError(line) from error
    yield run


def _build(config, workdir, hosts: Hosts, stack, allowed) -> Run:
  checks.check_values(config)
  if hosts.writes:
    boards.require(config.logging)
  parallel = inputs.make_parallel(config)
  resume = checks.holds_this_run(workdir, config, allowed)
  problems, heldout = inputs.load_problem_sets(config)
  policies = inputs.load_policies(config, parallel)
  pool = hosts.share(stack.enter_context(open_pool(config.sandbox)))
  inputs.check_hosts(config, hosts, resume)
  checks.check_ground_truths((*problems, *heldout), pool)
  players, make_states, evaluators = {}, {}, {}
  frozen, references = reference.still_parameters(
    config, policies, roles_with_reference(config), parallel
  )
  for role, (policy, params) in policies.items():
    trained = params
    if config.lora.rank:
      trained = adapters.start(config, role, policy.model_config)
    players[role], make_states[role] = _make_player(
      config,
      role,
      policy,
      trained,
      frozen[role],
      references[role],
      parallel[role],
    )
    evaluators |= _make_evaluators(config, role, policy, parallel[role])

  def initial_state() -> train_state.RunState:
    return train_state.RunState(
      make_states["code"](), make_states["test"](), judging.empty_book(config)
    )

  if hosts.writes:
    # Last: a mistake above must not claim the workdir.
    _write_config(config, workdir)
  return Run(
    config,
    workdir,
    problems,
    heldout,
    hosts,
    parallel,
    pool,
    players["code"],
    players["test"],
    evaluators,
    initial_state,
    resume,
  )


def _write_config(config: Any, workdir: pathlib.Path) -> None:
  """Puts the config there at once, so that a kill leaves none cut short."""
  workdir.mkdir(parents=True, exist_ok=True)
  text = json.dumps(json.loads(config.to_json()), indent=2) + "\n"
  path = workdir / "config.json"
  if path.exists() and path.read_text() == text:
    return
  part = path.with_name("config.json.part")
  part.write_text(text)
  part.replace(path)


def open_pool(config: Any) -> SandboxPool:
  """The sandbox of a config's `sandbox` fields.

  Raises:
    ValueError: this machine lacks what the sandbox needs.
  """
  limits = Limits(
    call_cpu_s=config.call_cpu_s,
    load_cpu_s=config.load_cpu_s,
    memory_mb=config.memory_mb,
  )
  try:
    return SandboxPool(
      workers=config.workers or None,
      limits=limits,
      allow_weak_isolation=config.allow_weak_isolation,
    )
  except RuntimeError as error:
    raise ValueError(str(error)) from error


def _updates_a_step(config: Any, role: str) -> int:
  """Optimizer steps that one training step takes with one role's rows."""
  samples = config.rollout.codes if role == "code" else config.rollout.suites
  rows = groups_a_step(config, role) * samples
  return -(-rows // config[role].minibatch_size) * config.grpo.epochs


def groups_a_step(config: Any, role: str) -> int:
  """Groups of one role that one training step trains on."""
  chosen = config.selection.top_k
  if config.selection.kind == "all":
    chosen = config.rollout.codes
  if role == "code" or config.method == "sft":
    chosen = 1
  return config.rollout.questions * chosen


def _loss_config(config: Any, role: str) -> losses.GrpoLossConfig:
  fields = (
    "clip_eps_low",
    "clip_eps_high",
    "dual_clip",
    "kl_coef",
    "kl_estimator",
    "ratio",
    "entropy_coef",
    "aggregation",
  )
  return losses.GrpoLossConfig(
    **{field: config.grpo[field] for field in fields},
    horizon=config[role].max_new_tokens,
    temperature=config.rollout.temperature,
  )


def roles_with_reference(config: Any) -> tuple[str, ...]:
  """The roles whose rows are scored by a reference too."""
  return tuple(
    role
    for role in REWARDED[config.method]
    if _loss_config(config, role).needs_reference
  )


def _make_optimizer(config, role):
  """The optimizer of one role, and its learning rate by update."""
  updates_a_step = _updates_a_step(config, role)
  if config.method == "self_play":  # both roles' rows update one policy
    updates_a_step = sum(_updates_a_step(config, r) for r in ("code", "test"))
  arguments = dict(
    config[role].optimizer, total_steps=config.num_steps * updates_a_step
  )
  schedule = {
    k: arguments[k]
    for k in ("learning_rate", "warmup_steps", "total_steps", "schedule")
  }
  optimizer = optimizers.make_optimizer(**arguments)
  return optimizer, optimizers.make_schedule(**schedule)


def _make_player(config, role, policy, params, frozen, still, parallel):
  """One role's compiled functions, and what makes its state on the devices of
  the parameters that are trained."""
  settings, grpo = config[role], config.grpo
  optimizer, learning_rate = _make_optimizer(config, role)
  samples = config.rollout.codes if role == "code" else config.rollout.suites
  cut = {"micro_batch_size": grpo.micro_batch_size}
  bind = adapters.binder(config) if frozen is not None else None
  loss = losses.grpo_loss(_loss_config(config, role), policy.model_config)
  if config.method == "sft":
    loss = losses.sft_loss(policy.model_config)
  player = Player(
    role=role,
    parallel=parallel,
    policy=policy,
    draw=rollout.make_sampler(
      policy, _sampling(config, role, samples), parallel
    ),
    score=updates.make_score(
      policy.model_config,
      parallel,
      temperature=config.rollout.temperature,
      **cut,
    ),
    update=updates.make_update(loss, optimizer, parallel, bind=bind, **cut),
    learning_rate=learning_rate,
    reference=still,
    frozen=frozen,
    bind=bind,
    temperature=config.rollout.temperature,
    max_prompt_tokens=settings.max_prompt_tokens,
    minibatch_size=settings.minibatch_size,
    epochs=grpo.epochs,
    mask_cut=grpo.mask_cut,
    bucket=config.rollout.bucket,
    groups_a_step=groups_a_step(config, role),
    behavior=grpo.behavior,
    importance_cap=grpo.importance_cap,
    pack_length=grpo.pack_length,
    max_slots=grpo.share_prompts,
    rows_multiple=parallel.num_groups * grpo.micro_batch_size,
  )

  create = parallel.map(
    functools.partial(train_state.create_policy_state, optimizer=optimizer),
    gives="params",
  )
  return player, lambda: create(parallel.place(params))


def _sampling(config, role, num_samples, temperature=None, top_p=1.0):
  if temperature is None:
    temperature = config.rollout.temperature
  return rollout.SamplingConfig(
    num_samples=num_samples,
    max_new_tokens=config[role].max_new_tokens,
    temperature=temperature,
    top_p=top_p,
    bucket=config.rollout.bucket,
    max_rows=config.rollout.max_rows,
    slot_samples=config.rollout.slot_samples,
  )


def _make_evaluators(config, role, policy, parallel):
  """Samplers of the evaluation, by name."""
  evaluation = config.evaluation
  drawn = evaluation.temperature, evaluation.top_p
  settings = {"test": _sampling(config, role, 1, *drawn)}
  if evaluation.collaboration:
    settings["choosing"] = _sampling(
      config, role, evaluation.collaboration, *drawn
    )
  if role == "code":
    settings = {
      "greedy": _sampling(config, role, 1, 0.0),
      "sampled": _sampling(config, role, evaluation.samples, *drawn),
    }
  return {
    name: rollout.make_sampler(policy, value, parallel)
    for name, value in settings.items()
  }
