"""AdamW with warm-up, as both policies use it."""

import jax
import optax

SCHEDULES = ("cosine", "constant")
_UNDECAYED = ("norm", "bias", "scale")


def make_schedule(
  *,
  learning_rate: float,
  warmup_steps: int,
  total_steps: int,
  schedule: str = "cosine",
) -> optax.Schedule:
  """Learning rate of an update, counted from 0.

  Warm-up is lr * (update + 1) / warmup_steps, so that no update is wasted on a
  rate of 0; then constant, or half a cosine that ends at 0 in `total_steps`.

  Raises:
    ValueError: unknown schedule, or a warm-up as long as the cosine's run.
  """
  if schedule not in SCHEDULES:
    raise ValueError(f"schedule {schedule!r} is not one of {SCHEDULES}")
  if schedule == "constant":
    after = optax.constant_schedule(learning_rate)
  elif total_steps > warmup_steps:
    after = optax.cosine_decay_schedule(
      learning_rate, total_steps - warmup_steps
    )
  else:
    raise ValueError(
      f"cosine schedule: total_steps {total_steps} <= warmup_steps "
      f"{warmup_steps}"
    )
  if not warmup_steps:
    return after
  warmup = optax.linear_schedule(
    learning_rate / warmup_steps,
    learning_rate * (1 + 1 / warmup_steps),
    warmup_steps,
  )
  return optax.join_schedules([warmup, after], [warmup_steps])


def make_optimizer(
  *,
  learning_rate: float = 1e-6,
  warmup_steps: int = 10,
  total_steps: int = 1000,
  schedule: str = "cosine",
  weight_decay: float = 0.1,
  grad_clip: float = 1.0,
  b1: float = 0.9,
  b2: float = 0.999,
  eps: float = 1e-8,
) -> optax.GradientTransformation:
  """Clip by global norm, then AdamW (arXiv 1711.05101) on the schedule.

  Args:
    learning_rate: peak rate.
    warmup_steps: updates until the peak.
    total_steps: updates of the whole run; the cosine ends there.
    schedule: "cosine" or "constant".
    weight_decay: decoupled decay, of matrices only: norms and biases keep 0.
    grad_clip: largest global gradient norm; 0 for none.
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added to the root of the second moment.

  Returns:
    An optax transformation; `make_schedule` with the same arguments is its
    learning rate.
  """
  rate = make_schedule(
    learning_rate=learning_rate,
    warmup_steps=warmup_steps,
    total_steps=total_steps,
    schedule=schedule,
  )
  return optax.chain(
    optax.clip_by_global_norm(grad_clip) if grad_clip else optax.identity(),
    optax.adamw(
      rate,
      b1=b1,
      b2=b2,
      eps=eps,
      weight_decay=weight_decay,
      mask=decay_mask,
    ),
  )


def decay_mask(params):
  """True at the leaves that decay. By name: a stack of norms is a matrix."""

  def decays(path, _):
    name = jax.tree_util.keystr(path).lower()
    return not any(word in name for word in _UNDECAYED)

  return jax.tree_util.tree_map_with_path(decays, params)
