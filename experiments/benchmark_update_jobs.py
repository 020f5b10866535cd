"""What the contenders of `benchmark_update` are asked to do, and what for."""

import dataclasses
import pathlib

import jax
import numpy as np

from codea1_jax import losses
from codea1_jax.models.config import QwenConfig
from experiments import benchmark_ceilings, benchmark_jobs

# As the paper has them, but for a KL term large enough to be seen in the loss.
LOSS = {
  "clip_eps_low": 0.2,
  "clip_eps_high": 0.28,
  "dual_clip": 10.0,
  "kl_coef": 0.1,
}
OPTIMIZER = {
  "learning_rate": 1e-6,
  "b1": 0.9,
  "b2": 0.999,
  "eps": 1e-8,
  "weight_decay": 0.1,
  "grad_clip": 1.0,
}
PAD = 0  # no other token: tunix tells padding by it
_DRIFT = 0.2  # of behavior and reference from the policy: some tokens clip
_SCORED_ROWS = 4  # at a time
# Largest differences: of numbers above 1 relative to them.
_TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}


@dataclasses.dataclass(frozen=True)
class Setting:
  """The flags that shape a batch."""

  prompts: int = 8
  samples: int = 8  # rows a prompt
  prompt_tokens: int = 64
  completion_tokens: int = 128
  shortest: int | None = None  # completion; None: all are whole


@dataclasses.dataclass(frozen=True)
class Job:
  """What every contender is asked; dtype and options are added for each."""

  model: str  # directory
  batch: str  # npz file, see `random_batch`
  prompt_tokens: int
  lengths: list[int]  # of the completions
  pad_id: int = PAD
  loss: dict[str, float] = dataclasses.field(default_factory=lambda: LOSS)
  optimizer: dict[str, float] = dataclasses.field(
    default_factory=lambda: OPTIMIZER
  )

  def describe(self) -> str:
    """What is asked, in a line or two."""
    return (
      f"{benchmark_jobs.describe_model(benchmark_jobs.read_config(self.model))};"
      f" {len(self.lengths)} rows of {self.prompt_tokens} +"
      f" {min(self.lengths)} to {max(self.lengths)} tokens;"
      f" {self.operations() / 1e9:.1f} GFLOP"
    )

  def operations(self) -> float:
    """That one update needs at least."""
    return benchmark_ceilings.update_operations(
      benchmark_jobs.read_config(self.model), self.prompt_tokens, self.lengths
    )


def random_job(directory: str, config: QwenConfig, setting: Setting) -> Job:
  """Writes random weights, and a batch of their size, to the directory."""
  config, params = benchmark_jobs.random_model(directory, config)
  batch = random_batch(config, params, setting)
  path = pathlib.Path(directory, "batch.npz")
  np.savez(path, **batch)
  lengths = batch["completion_mask"].sum(1).astype(int).tolist()
  return Job(directory, str(path), setting.prompt_tokens, lengths)


def random_batch(
  config: QwenConfig, params, setting: Setting
) -> dict[str, np.ndarray]:
  """The arrays of `UpdateBatch`: whole prompts, completions padded at the end.

  Log-probs of behavior and reference are the policy's with noise, so that
  ratios are about 1 and some of them outside of the clip.
  """
  rng = np.random.default_rng(0)
  rows, length = setting.prompts * setting.samples, setting.completion_tokens
  lengths = np.linspace(setting.shortest or length, length, rows).astype(int)
  mask = np.arange(length)[None] < lengths[:, None]
  valid = np.pad(mask, ((0, 0), (setting.prompt_tokens, 0)), constant_values=1)
  tokens = rng.integers(1, config.vocab_size, valid.shape)
  prompts = tokens[:: setting.samples, : setting.prompt_tokens]
  tokens[:, : setting.prompt_tokens] = prompts.repeat(setting.samples, 0)
  tokens = np.where(valid, tokens, PAD).astype(np.int32)
  log_probs = _score(config, params, tokens, valid, length)
  noise = rng.normal(scale=_DRIFT, size=(2, rows, length)).astype(np.float32)
  return {
    "tokens": tokens,
    "valid": valid,
    "completion_mask": mask.astype(np.float32),
    "advantages": rng.normal(size=rows).astype(np.float32),
    "behavior_log_probs": log_probs + noise[0],
    "ref_log_probs": log_probs + noise[1],
  }


def _score(config, params, tokens, valid, length):
  """[B, T] log-probs, some rows at a time."""

  @jax.jit
  def score(params, tokens, valid):
    return losses.completion_log_probs(
      params,
      config,
      tokens,
      valid,
      completion_length=length,
      chunk_size=None,
    )[0]

  parts = [
    slice(i, i + _SCORED_ROWS) for i in range(0, len(tokens), _SCORED_ROWS)
  ]
  return np.concatenate([score(params, tokens[p], valid[p]) for p in parts])


def check_agreement(results: dict[str, dict[str, float]]) -> None:
  """All contenders found the numbers of the first one in float32.

  Args:
    results: FAMILY:DTYPE... -> {"loss", "grad_norm"} of the same update.

  Raises:
    ValueError: names a contender that differs, and both numbers.
  """
  exact = [name for name in results if _dtype(name) == "float32"]
  for name, found in results.items():
    first = (exact or [name])[0]
    for key, value in found.items():
      expected = results[first][key]
      allowed = _TOLERANCES[_dtype(name)] * max(1.0, abs(expected))
      if not abs(value - expected) <= allowed:  # so that NaN fails
        raise ValueError(
          f"{key} of {name} is {value:.6g}, of {first} {expected:.6g}: they do"
          " not compute the same"
        )


def _dtype(name):
  return name.split(":")[1]
