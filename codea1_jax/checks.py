"""What a user can get wrong, checked before anything long starts."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from codea1_jax import (
  devices,
  evaluation,
  grpo,
  guards,
  judging,
  optimizer,
  prompts,
  quality,
  reference,
  rewards,
)
from codea1_jax.mistake_book import SAMPLERS
from codea1_jax.models import lora
from codea1_jax.models.config import REMAT
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Problem, Status

DTYPES = ("float32", "bfloat16")
BEHAVIORS = ("trainer", "sampler")
METHODS = ("code_a1", "golden_tests", "self_play", "sft")
_MANY = 10**9
_RANGES = (
  ("seed", 0, 2**32 - 1),
  ("num_steps", 1, _MANY),
  ("max_train_problems", 0, _MANY),
  *(
    (f"{role}.{field}", low, high)
    for role in ("code", "test")
    for field, low, high in (
      ("max_prompt_tokens", 1, _MANY),
      ("max_new_tokens", 1, _MANY),
      ("minibatch_size", 1, _MANY),
      ("optimizer.learning_rate", 0, 1),
      ("optimizer.warmup_steps", 0, _MANY),
      ("optimizer.weight_decay", 0, 1),
      ("optimizer.grad_clip", 0, _MANY),
      ("optimizer.b1", 0, 1),
      ("optimizer.b2", 0, 1),
    )
  ),
  *(
    (f"rollout.{field}", 1, _MANY)
    for field in (
      *("questions", "codes", "suites", "tests"),
      *("max_rows", "slot_samples", "bucket"),
    )
  ),
  *((f"mesh.{axis}", -1, _MANY) for axis in ("data", "fsdp", "tensor")),
  ("rollout.temperature", 0.01, 100),
  ("lora.rank", 0, _MANY),
  ("lora.alpha", 0, _MANY),
  ("rewards.alpha", 0, 1),
  ("book.replay", 0, _MANY),
  ("book.refresh", 0, _MANY),
  ("book.max_archive", 0, _MANY),
  ("book.max_per_question", 1, _MANY),
  ("book.max_total", 1, _MANY),
  ("quality.patience", 1, _MANY),
  ("selection.refill", 0, _MANY),
  ("curriculum.strength", 0, 100),
  ("curriculum.end_step", 1, _MANY),
  ("grpo.clip_eps_low", 0, 1),
  ("grpo.clip_eps_high", 0, _MANY),
  ("grpo.dual_clip", 1, _MANY),
  ("grpo.kl_coef", 0, _MANY),
  ("grpo.importance_cap", 0, _MANY),
  ("grpo.entropy_coef", -100, 100),
  ("sandbox.call_cpu_s", 0.001, _MANY),
  ("sandbox.load_cpu_s", 0.001, _MANY),
  ("sandbox.memory_mb", 16, _MANY),
  ("grpo.epochs", 1, _MANY),
  ("grpo.micro_batch_size", 1, _MANY),
  ("grpo.pack_length", 0, _MANY),
  ("grpo.share_prompts", 0, _MANY),
  ("sandbox.workers", 0, 4096),
  ("evaluation.every", 1, _MANY),
  ("evaluation.samples", 1, _MANY),
  ("evaluation.targets", 0, _MANY),
  ("evaluation.temperature", 0.01, 100),
  ("evaluation.top_p", 1e-6, 1),
  ("evaluation.collaboration", 0, _MANY),
  ("checkpoint.every", 1, _MANY),
  ("checkpoint.keep", 1, _MANY),
  ("checkpoint.keep_every", 0, _MANY),
  ("dump_every", 1, _MANY),
  ("guards.steps", 1, _MANY),
  ("guards.min_entropy", 0, _MANY),
  ("guards.min_validity", 0, 1),
  ("guards.max_zero_variance", 0, 1),
  ("logging.peak_tflops", 0, _MANY),
)


def check_values(config: Any) -> None:
  """Names and ranges that would otherwise fail in the middle of a run."""
  for field, value, known in (
    ("method", config.method, METHODS),
    ("parallel", config.parallel, devices.KINDS),
    ("placement", config.placement, ("colocated", "split")),
    ("rewards.preset", config.rewards.preset, rewards.PRESETS),
    ("prompts.preset", config.prompts.preset, prompts.PRESETS),
    (
      "prompts.test_visibility",
      config.prompts.test_visibility,
      prompts.VISIBILITIES,
    ),
    ("book.sampler", config.book.sampler, SAMPLERS),
    ("selection.kind", config.selection.kind, judging.SELECTIONS),
    ("guards.action", config.guards.action, guards.ACTIONS),
    ("grpo.kl_estimator", config.grpo.kl_estimator, tuple(grpo.KL_ESTIMATORS)),
    ("grpo.aggregation", config.grpo.aggregation, grpo.AGGREGATIONS),
    ("grpo.ratio", config.grpo.ratio, grpo.RATIOS),
    ("grpo.std", config.grpo.std, grpo.STDS),
    ("grpo.behavior", config.grpo.behavior, BEHAVIORS),
    *(("quality.rules", rule, quality.RULES) for rule in config.quality.rules),
    ("compute.dtype", config.compute.dtype, DTYPES),
    ("compute.param_dtype", config.compute.param_dtype, DTYPES),
    ("compute.remat", config.compute.remat, REMAT),
    ("reference.dtype", config.reference.dtype, reference.DTYPES),
    ("reference.placement", config.reference.placement, reference.PLACEMENTS),
    *(
      (
        f"{role}.optimizer.moment_dtype",
        config[role].optimizer.moment_dtype,
        optimizer.MOMENT_DTYPES,
      )
      for role in ("code", "test")
    ),
  ):
    if value not in known:
      raise ValueError(
        f"config.{field} is {value!r}, must be one of {', '.join(known)}"
      )
  for field, low, high in _RANGES:
    value = config
    for part in field.split("."):
      value = value[part]
    if not low <= value <= high:  # so written that NaN is refused too
      raise ValueError(f"config.{field} is {value}, must be in [{low}, {high}]")
  if not 1 <= config.selection.top_k <= config.rollout.codes:
    raise ValueError(
      f"config.selection.top_k is {config.selection.top_k}, must be in"
      f" [1, rollout.codes = {config.rollout.codes}]"
    )
  _check_combinations(config)
  profiled = tuple(config.profile_steps)
  if len(profiled) != 2 or min(profiled) < 0:
    raise ValueError(
      f"config.profile_steps is {profiled}, must be (first, count)"
    )
  if config.lora.rank:
    fields = config.lora
    lora.LoraConfig(fields.rank, fields.alpha, tuple(fields.targets))


def _check_combinations(config: Any) -> None:
  """Fields that are right by themselves and do not go together."""
  grpo_config, selection, book = config.grpo, config.selection, config.book
  models = {config.code.model, config.test.model}
  adapters = [r for r in ("code", "test") if config[r].adapter]
  for wrong, message in (
    (
      book.refresh > min(book.replay, book.max_archive),
      f"book.refresh is {book.refresh}, above book.replay = {book.replay} or"
      f" book.max_archive = {book.max_archive}",
    ),
    (
      config.lora.rank and len(models) > 1 and config.method != "self_play",
      f"lora.rank is {config.lora.rank}: code.model and test.model must be the"
      f" same base, not {' and '.join(sorted(models))}",
    ),
    (
      grpo_config.pack_length and grpo_config.share_prompts,
      f"grpo.pack_length is {grpo_config.pack_length} and grpo.share_prompts"
      f" {grpo_config.share_prompts}: one of them must be 0",
    ),
    (
      config.placement == "split" and config.method != "code_a1",
      f"placement is split: method {config.method} trains one policy only",
    ),
    (
      adapters and not config.lora.rank,
      f"{' and '.join(adapters)}.adapter needs a lora.rank above 0",
    ),
    (
      config.lora.rank and not reference.is_default(config.reference),
      f"lora.rank is {config.lora.rank}: the reference is the base itself, so"
      " that reference.dtype must be same and reference.placement device",
    ),
    (
      grpo_config.importance_cap and config.rollout.temperature != 1.0,
      "grpo.importance_cap needs rollout.temperature = 1: the sampler's"
      f" log-probs are those at 1, not at {config.rollout.temperature}",
    ),
    (
      grpo_config.behavior == "sampler" and config.rollout.temperature != 1.0,
      "grpo.behavior = sampler needs rollout.temperature = 1: the sampler's"
      f" log-probs are those at 1, not at {config.rollout.temperature}",
    ),
    (
      grpo_config.behavior == "sampler" and grpo_config.importance_cap,
      "grpo.behavior is sampler: grpo.importance_cap must be 0, as there is no"
      " gap to correct",
    ),
    (
      selection.refill and not selection.drop_zero_variance,
      f"selection.refill is {selection.refill}, which needs"
      " selection.drop_zero_variance = True",
    ),
    (
      selection.refill and config.method == "golden_tests",
      "selection.refill is not there for method golden_tests",
    ),
    (
      selection.drop_zero_variance and config.method == "sft",
      "selection.drop_zero_variance needs groups: method sft has none",
    ),
    (
      config.curriculum.enabled and config.method == "sft",
      "curriculum needs pass rates: method sft runs no codes",
    ),
    (
      config.quality.enabled and config.method in ("golden_tests", "sft"),
      f"quality filters written tests: method {config.method} has none",
    ),
    (
      config.quality.enabled
      and "stale" in config.quality.rules
      and not book.enabled,
      "quality.rules: stale needs book.enabled, which counts",
    ),
  ):
    if wrong:
      raise ValueError(f"config.{message}")


def check_context(config: Any, role: str, positions: int) -> None:
  """A prompt of the greatest length leaves room for an answer."""
  longest = config[role].max_prompt_tokens
  if longest >= positions:
    raise ValueError(
      f"config.{role}.max_prompt_tokens is {longest}, but the model has"
      f" {positions} positions for prompt and answer"
    )


def check_problems(config, problems, heldout) -> None:
  """Enough problems, and golden tests where they are needed."""
  if config.rollout.questions > len(problems):
    raise ValueError(
      f"rollout.questions is {config.rollout.questions}, but"
      f" {config.train_problems} has {len(problems)} problems"
    )
  needing = list(heldout)
  golden = config.method in ("golden_tests", "sft")
  if golden or config.evaluation.train_pass_rate:
    needing += problems
  for problem in needing:
    if not problem.golden_tests:
      raise ValueError(f"problem {problem.id} has no golden tests")
  for problem in problems if config.method == "sft" else ():
    if not problem.faulty_programs:
      raise ValueError(
        f"problem {problem.id} has no faulty programs: method sft needs them"
      )


def check_fields(config: Any, names: Sequence[str]) -> None:
  """Every name is a field of the config, or a group of fields."""
  for name in names:
    value = json.loads(config.to_json())
    for part in name.split("."):
      if not isinstance(value, dict) or part not in value:
        raise ValueError(f"--allow_config_change: no field config.{name}")
      value = value[part]


def holds_this_run(
  workdir: pathlib.Path, config: Any, allowed: Sequence[str] = ()
) -> bool:
  """Whether this config's run is in the workdir, but for `allowed` fields.

  Raises:
    ValueError: another config's run is; names the fields that differ.
  """
  path = workdir / "config.json"
  if not path.exists():
    return False
  try:
    theirs = json.loads(path.read_text())
  except ValueError as error:
    raise ValueError(f"{path} is not JSON: {error}") from error
  differing = {
    name: line
    for name, line in _differences(theirs, json.loads(config.to_json()))
    if not any(f"{name}.".startswith(f"{field}.") for field in allowed)
  }
  if differing:
    raise ValueError(
      f"{workdir} holds another config's run ({'; '.join(differing.values())}):"
      " choose another --workdir, or name what may change:"
      f" --allow_config_change={','.join(differing)}"
    )
  return True


def _differences(
  theirs: Any, mine: Any, name: str = ""
) -> list[tuple[str, str]]:
  """Field and "field: theirs there, mine here" of every leaf that differs."""
  if isinstance(theirs, dict) and isinstance(mine, dict):
    return [
      pair
      for key in sorted(theirs.keys() | mine.keys())
      for pair in _differences(
        theirs.get(key), mine.get(key), f"{name}.{key}".lstrip(".")
      )
    ]
  if theirs == mine:
    return []
  return [(name, f"{name}: {theirs} there, {mine} here")]


def check_ground_truths(problems: Sequence[Problem], pool: SandboxPool) -> None:
  """Runs every ground truth on its golden tests.

  Raises:
    ValueError: names the first problem, test and outcome that fail.
  """
  jobs = [evaluation.golden_job(p, p.ground_truth) for p in problems]
  for problem, result in zip(problems, pool.run(jobs)):
    verdicts = (result.load, *result.calls)
    if any(v.status is Status.INFRASTRUCTURE for v in verdicts):
      raise ValueError(
        f"the sandbox failed on problem {problem.id}: {verdicts}"
      )
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
