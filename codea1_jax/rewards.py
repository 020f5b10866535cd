"""Verdict counts -> rewards of both policies; pure numpy, presets by name.

Code-A1, arXiv 2603.15611. Letters: Q questions, M codes a question, N suites
a code, K tests a suite.
"""

import dataclasses

import numpy as np

PRESETS = ("paper", "corrected", "composite")

COMPOSITE_VALIDITY = 0.6
COMPOSITE_DIFFICULTY = 0.4
_COMPOSITE_INVALID_TEST = -0.5
_COMPOSITE_INVALID_CODE = -1.0
_COMPOSITE_BOOK_QUALITY = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class SuiteCounts:
  """What happened to every code and suite of a step, as counts."""

  code_valid: np.ndarray  # bool [Q, M]: loads and defines the function
  num_valid: np.ndarray  # [Q, M, N] distinct tests the ground truth accepts
  num_invalid: np.ndarray  # [Q, M, N] unparsed, refused, repeated or wrong
  num_passed: np.ndarray  # [Q, M, N] valid tests that the code passes
  num_failed: np.ndarray  # [Q, M, N] valid tests of the first K it fails
  num_new_failed: np.ndarray  # [Q, M, N] of num_failed: not in the book
  replayed_total: np.ndarray  # [Q, M] the book's tests the code faced
  replayed_passed: np.ndarray  # [Q, M] and those it passed
  nonprintable: np.ndarray  # [Q, M, N] share of characters, 0..1
  masked: np.ndarray  # bool [Q, M, N]: infrastructure failed, counts nothing


@dataclasses.dataclass(frozen=True, eq=False)
class Rewards:
  """Rewards of a step, float32; 0 where the mask says they do not count."""

  code: np.ndarray  # [Q, M] mean over the unmasked suites
  code_per_suite: np.ndarray  # [Q, M, N]
  test: np.ndarray  # [Q, M, N]
  validity: np.ndarray  # [Q, M, N] R_val
  code_mask: np.ndarray  # bool [Q, M]: True where the code's reward counts
  test_mask: np.ndarray  # bool [Q, M, N]: True where the suite's counts


def compute(
  preset: str, counts: SuiteCounts, *, alpha: float, tests_per_suite: int
) -> Rewards:
  """Rewards of all codes and all suites of a step.

  With g = passed / valid, f = failed / K, b = replayed passes / replayed,
  R_val = clip(min(valid / K, 1 - invalid / K), 0, 1):

    code = (g + b) / 2, g or b where only one exists, 0 with neither or for
           an invalid code
    test = alpha R_val + (1 - alpha) adv, 0 for an invalid code; minus the
           share of non-printable characters

  Presets:
    paper: adv = (f - (1 - b) + 1) / 2, f without replayed tests, 0 without
      valid ones.
    corrected: adv = new failures / K. Inside one code's group the b of
      `paper` is a constant that group normalization removes; all it does
      there is to halve the weight of f.
    composite: alpha is unused. Read as: every valid test scores 0.6, and 0.4
      more where the code fails it; every count of `num_invalid` scores -0.5
      (so a valid input with a wrong answer scores both); the sum is divided
      by K, so that tests never written score 0, and clipped to [-0.5, 1]. An
      invalid code gets -1, its suites 0 as elsewhere; other codes get the
      paper's reward. Non-printable characters cost nothing.

  Args:
    preset: one of `PRESETS`.
    counts: arrays [Q, M] and [Q, M, N].
    alpha: weight of validity, in [0, 1].
    tests_per_suite: K.

  Returns:
    Rewards in float32, with the masks that say which of them count.

  Raises:
    ValueError: for an unknown preset, alpha or K out of range, or counts that
      do not fit each other.
  """
  _check(preset, counts, alpha, tests_per_suite)
  validity = _validity(counts, tests_per_suite)
  code = _code_per_suite(counts)
  valid_code = counts.code_valid[..., None]
  if preset == "composite":
    code = np.where(valid_code, code, _COMPOSITE_INVALID_CODE)
    test = np.where(valid_code, _composite_test(counts, tests_per_suite), 0.0)
  else:
    adversarial = _adversarial(preset, counts, tests_per_suite)
    mixed = alpha * validity + (1 - alpha) * adversarial
    test = np.where(valid_code, mixed, 0.0) - counts.nonprintable
  test_mask = np.logical_not(counts.masked)
  num_suites = test_mask.sum(axis=-1)
  code_sum = np.where(test_mask, code, 0.0).sum(axis=-1)
  return Rewards(
    code=(code_sum / np.maximum(num_suites, 1)).astype(np.float32),
    code_per_suite=_masked(code, test_mask),
    test=_masked(test, test_mask),
    validity=_masked(validity, test_mask),
    code_mask=num_suites > 0,
    test_mask=test_mask,
  )


def enters_book(preset: str, failed: np.ndarray) -> np.ndarray:
  """Which valid tests of a valid code the Mistake Book takes.

  Args:
    preset: one of `PRESETS`. `paper` and `corrected` take what the code
      failed; `composite` takes quality above 0.5, where quality is 0.6 for
      being valid plus 0.4 for being failed: every valid test.
    failed: bool, whether the code failed each valid test; any shape.

  Returns:
    bool, of the shape of `failed`.
  """
  _check_preset(preset)
  failed = np.asarray(failed, bool)
  if preset != "composite":
    return failed
  quality = COMPOSITE_VALIDITY + COMPOSITE_DIFFICULTY * failed
  return quality > _COMPOSITE_BOOK_QUALITY


def _validity(counts: SuiteCounts, tests_per_suite: int) -> np.ndarray:
  """R_val [Q, M, N]."""
  share_valid = counts.num_valid / tests_per_suite
  share_not_invalid = 1 - counts.num_invalid / tests_per_suite
  return np.clip(np.minimum(share_valid, share_not_invalid), 0.0, 1.0)


def _code_per_suite(counts: SuiteCounts) -> np.ndarray:
  """The code's reward against each suite [Q, M, N]."""
  has_valid = counts.num_valid > 0
  has_replayed = np.broadcast_to(
    counts.replayed_total[..., None] > 0, has_valid.shape
  )
  pass_rate = counts.num_passed / np.maximum(counts.num_valid, 1)
  rates = has_valid * pass_rate + has_replayed * _replay_rate(counts)
  mean = rates / np.maximum(has_valid.astype(int) + has_replayed, 1)
  return np.where(counts.code_valid[..., None], mean, 0.0)


def _replay_rate(counts: SuiteCounts) -> np.ndarray:
  """b [Q, M, 1]; 0 where nothing was replayed."""
  total = np.maximum(counts.replayed_total, 1)
  return (counts.replayed_passed / total)[..., None]


def _adversarial(
  preset: str, counts: SuiteCounts, tests_per_suite: int
) -> np.ndarray:
  """adv [Q, M, N] of the presets `paper` and `corrected`."""
  if preset == "corrected":
    return counts.num_new_failed / tests_per_suite
  fail_rate = counts.num_failed / tests_per_suite
  with_replay = (fail_rate - (1 - _replay_rate(counts)) + 1) / 2
  has_replayed = counts.replayed_total[..., None] > 0
  adversarial = np.where(has_replayed, with_replay, fail_rate)
  return np.where(counts.num_valid > 0, adversarial, 0.0)


def _composite_test(counts: SuiteCounts, tests_per_suite: int) -> np.ndarray:
  """The composite score of a suite [Q, M, N], see `compute`."""
  score = (
    COMPOSITE_VALIDITY * counts.num_valid
    + COMPOSITE_DIFFICULTY * counts.num_failed
    + _COMPOSITE_INVALID_TEST * counts.num_invalid
  )
  return np.clip(score / tests_per_suite, _COMPOSITE_INVALID_TEST, 1.0)


def _masked(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """float32 `values`, 0 where `mask` is False (also over NaN)."""
  return np.where(mask, values, 0.0).astype(np.float32)


def _check_preset(preset: str) -> None:
  """ValueError that lists the presets."""
  if preset not in PRESETS:
    raise ValueError(f"unknown preset {preset!r}; known: {', '.join(PRESETS)}")


def _check(
  preset: str, counts: SuiteCounts, alpha: float, tests_per_suite: int
) -> None:
  """ValueError where the arguments of `compute` do not make sense."""
  _check_preset(preset)
  if not 0 <= alpha <= 1:
    raise ValueError(f"alpha is {alpha}, must be in [0, 1]")
  if tests_per_suite < 1:
    raise ValueError(f"tests_per_suite is {tests_per_suite}, must be >= 1")
  shape = counts.masked.shape
  if len(shape) != 3:
    raise ValueError(f"counts.masked has shape {shape}, must be [Q, M, N]")
  for field in dataclasses.fields(counts):
    per_code = field.name in ("code_valid", "replayed_total", "replayed_passed")
    wanted = shape[:2] if per_code else shape
    found = getattr(counts, field.name).shape
    if found != wanted:
      raise ValueError(f"counts.{field.name} has shape {found}, not {wanted}")
  for part, whole in (
    ("num_passed", "num_valid"),
    ("num_failed", "num_valid"),
    ("num_new_failed", "num_failed"),
    ("replayed_passed", "replayed_total"),
  ):
    if np.any(getattr(counts, part) > getattr(counts, whole)):
      raise ValueError(f"counts.{part} exceeds counts.{whole} somewhere")
