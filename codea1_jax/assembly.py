"""Config -> the parts of a run, every input checked before long work starts."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from codea1_jax import (
  evaluation,
  losses,
  prompts,
  rewards,
  rollout,
  train_state,
)
from codea1_jax import optimizer as optimizers
from codea1_jax import problems as problem_files
from codea1_jax import update as updates
from codea1_jax.mistake_book import SAMPLERS, MistakeBook
from codea1_jax.player import Player
from codea1_jax.sandbox import Limits, SandboxPool
from codea1_jax.tiny import DATA
from codea1_jax.types import Problem
from codea1_jax.update import Parallel

METHODS = ("code_a1", "golden_tests", "self_play")
_SHIPPED = "shipped:"


class InputError(ValueError):
  """Something the user gave is wrong; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Run:
  """Everything that stays the same while a run trains."""

  config: Any
  workdir: pathlib.Path
  problems: tuple[Problem, ...]
  heldout: tuple[Problem, ...]
  parallel: Parallel
  pool: SandboxPool
  code: Player
  test: Player
  evaluators: dict[str, Any]  # samplers for evaluation, by name
  initial: train_state.RunState
  resume: bool  # the workdir already holds this config's run


@contextlib.contextmanager
def open_run(config: Any, workdir: str | pathlib.Path) -> Iterator[Run]:
  """Builds a run and opens its sandbox; closes it again at the end.

  Args:
    config: see configs/tiny.py.
    workdir: where the run lives; made if need be.

  Raises:
    InputError: a bad value, file or directory, in one line.
  """
  workdir = pathlib.Path(workdir)
  with contextlib.ExitStack() as stack:
    try:
      run = _build(config, workdir, stack)
    except (ValueError, TypeError, OSError) as error:
      line = " ".join(str(error).split())
      raise InputError(line or repr(error)) from error
    yield run


def _build(config, workdir, stack) -> Run:
  _check_values(config)
  resume = _claim(workdir, config)
  problems, heldout = (
    problem_files.load_problems(resolve(path, ".jsonl"))
    for path in (config.train_problems, config.heldout_problems)
  )
  if config.rollout.questions > len(problems):
    raise ValueError(
      f"rollout.questions is {config.rollout.questions}, but"
      f" {config.train_problems} has {len(problems)} problems"
    )
  if config.method == "self_play":  # one policy in both roles
    both = rollout.load_policy(resolve(config.self_play_model))
    policies = {"code": both, "test": both}
  else:
    policies = {
      role: rollout.load_policy(resolve(config[role].model))
      for role in ("code", "test")
    }
  pool = stack.enter_context(_open_pool(config.sandbox))
  check_ground_truths((*problems, *heldout), pool)
  parallel = updates.make_parallel(config.parallel)
  states, players, evaluators = {}, {}, {}
  for role, (policy, params) in policies.items():
    players[role], states[role] = _make_player(
      config, role, policy, params, parallel
    )
    evaluators |= _make_evaluators(config, role, policy, parallel)
  book = MistakeBook(config.book.max_per_question, config.book.max_total)
  initial = train_state.RunState(states["code"], states["test"], book)
  return Run(
    config,
    workdir,
    problems,
    heldout,
    parallel,
    pool,
    players["code"],
    players["test"],
    evaluators,
    initial,
    resume,
  )


def resolve(path: str, suffix: str = "") -> pathlib.Path:
  """A user's path, or the file or directory that the package ships."""
  if path.startswith(_SHIPPED):
    return DATA / (path.removeprefix(_SHIPPED) + suffix)
  return pathlib.Path(path)


def _check_values(config: Any) -> None:
  """Names and ranges that would otherwise fail in the middle of a run."""
  for field, value, known in (
    ("method", config.method, METHODS),
    ("rewards.preset", config.rewards.preset, rewards.PRESETS),
    ("prompts.preset", config.prompts.preset, prompts.PRESETS),
    (
      "prompts.test_visibility",
      config.prompts.test_visibility,
      prompts.VISIBILITIES,
    ),
    ("book.sampler", config.book.sampler, SAMPLERS),
  ):
    if value not in known:
      raise ValueError(
        f"config.{field} is {value!r}, must be one of {', '.join(known)}"
      )
  positive = [(f"rollout.{k}", config.rollout[k]) for k in config.rollout]
  positive += [("num_steps", config.num_steps)]
  positive += [("evaluation.every", config.evaluation.every)]
  positive += [("checkpoint.every", config.checkpoint.every)]
  for field, value in positive:
    if value <= 0:
      raise ValueError(f"config.{field} is {value}, must be above 0")
  if not 0.0 <= config.rewards.alpha <= 1.0:
    raise ValueError(
      f"config.rewards.alpha is {config.rewards.alpha}, must be in [0, 1]"
    )
  if not 1 <= config.selection.top_k <= config.rollout.codes:
    raise ValueError(
      f"config.selection.top_k is {config.selection.top_k}, must be in"
      f" [1, rollout.codes = {config.rollout.codes}]"
    )


def _claim(workdir: pathlib.Path, config: Any) -> bool:
  """Writes config.json, or checks that the run there is this config's.

  Returns:
    Whether a run was there already.
  """
  path = workdir / "config.json"
  mine = json.loads(config.to_json())
  if not path.exists():
    workdir.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(mine, indent=2) + "\n")
    return False
  try:
    theirs = json.loads(path.read_text())
  except json.JSONDecodeError as error:
    raise ValueError(f"{path} is not JSON: {error}") from error
  differing = _differences(theirs, mine)
  if differing:
    raise ValueError(
      f"{workdir} holds another config's run ({'; '.join(differing)}): choose"
      " another --workdir"
    )
  return True


def _differences(theirs: Any, mine: Any, name: str = "") -> list[str]:
  """ "field: theirs there, mine here" of every leaf that differs."""
  if isinstance(theirs, dict) and isinstance(mine, dict):
    return [
      line
      for key in sorted(theirs.keys() | mine.keys())
      for line in _differences(
        theirs.get(key), mine.get(key), f"{name}.{key}".lstrip(".")
      )
    ]
  return [] if theirs == mine else [f"{name}: {theirs} there, {mine} here"]


def _open_pool(config: Any) -> SandboxPool:
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
  except RuntimeError as error:  # this machine lacks what the sandbox needs
    raise ValueError(str(error)) from error


def check_ground_truths(problems: Sequence[Problem], pool: SandboxPool) -> None:
  """Runs every ground truth on its golden tests.

  Raises:
    ValueError: names the first problem, test and outcome that fail.
  """
  jobs = [evaluation.golden_job(p, p.ground_truth) for p in problems]
  for problem, result in zip(problems, pool.run(jobs)):
    if not result.load.passed:
      raise ValueError(
        f"problem {problem.id}: ground truth does not load:"
        f" {result.load.status} {result.load.detail}"
      )
    for test, verdict in zip(problem.golden_tests, result.calls):
      if not verdict.passed:
        outcome = verdict.value or verdict.detail
        raise ValueError(
          f"problem {problem.id}: ground truth fails its own test"
          f" `{test.source}`: {verdict.status} {outcome}"
        )


def _make_player(config, role, policy, params, parallel):
  """One role's compiled functions and its state before the first update."""
  settings, grpo = config[role], config.grpo
  samples = config.rollout.codes if role == "code" else config.rollout.suites
  per_update = settings.minibatch_size
  rows = config.rollout.questions * samples
  if role == "test":
    rows *= config.selection.top_k
  updates_a_step = -(-rows // per_update) * grpo.epochs
  arguments = dict(
    settings.optimizer, total_steps=config.num_steps * updates_a_step
  )
  optimizer = optimizers.make_optimizer(**arguments)
  schedule = {
    k: arguments[k]
    for k in ("learning_rate", "warmup_steps", "total_steps", "schedule")
  }
  loss = losses.grpo_loss(
    losses.GrpoLossConfig(
      clip_eps_low=grpo.clip_eps_low,
      clip_eps_high=grpo.clip_eps_high,
      dual_clip=grpo.dual_clip,
      kl_coef=grpo.kl_coef,
      kl_estimator=grpo.kl_estimator,
      entropy_coef=grpo.entropy_coef,
      aggregation=grpo.aggregation,
      temperature=config.rollout.temperature,
    ),
    policy.model_config,
  )
  player = Player(
    role=role,
    policy=policy,
    draw=rollout.make_sampler(
      policy, _sampling(config, role, samples), parallel
    ),
    score=updates.make_score(
      policy.model_config,
      parallel,
      micro_batch_size=grpo.micro_batch_size,
      temperature=config.rollout.temperature,
    ),
    update=updates.make_update(
      loss, optimizer, parallel, micro_batch_size=grpo.micro_batch_size
    ),
    learning_rate=optimizers.make_schedule(**schedule),
    reference=parallel.replicate(params) if grpo.kl_coef else None,
    max_prompt_tokens=settings.max_prompt_tokens,
    minibatch_size=per_update,
    epochs=grpo.epochs,
    mask_cut=grpo.mask_cut,
    bucket=config.rollout.bucket,
  )
  state = train_state.create_policy_state(params, optimizer)
  return player, parallel.replicate(state)


def _sampling(config, role, num_samples, temperature=None):
  if temperature is None:
    temperature = config.rollout.temperature
  return rollout.SamplingConfig(
    num_samples=num_samples,
    max_new_tokens=config[role].max_new_tokens,
    temperature=temperature,
    bucket=config.rollout.bucket,
    max_rows=config.rollout.max_rows,
  )


def _make_evaluators(config, role, policy, parallel):
  """Samplers of the evaluation, at temperature 1 or greedy."""
  settings = {"test": _sampling(config, role, 1, 1.0)}
  if role == "code":
    settings = {
      "greedy": _sampling(config, role, 1, 0.0),
      "sampled": _sampling(config, role, config.evaluation.samples, 1.0),
    }
  return {
    name: rollout.make_sampler(policy, value, parallel)
    for name, value in settings.items()
  }
