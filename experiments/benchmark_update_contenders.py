"""The updates that `benchmark_update` compares: job -> calls by name.

Every `update` call is one AdamW step on the whole batch of the job, and returns
the loss and the norm of its gradient before clipping. As in
benchmark_contenders every function imports what it needs.
"""

import os
from collections.abc import Callable
from typing import Any

_RATIO_LIMIT = 20.0  # of a log ratio


def _batch(job: dict[str, Any]) -> dict[str, Any]:
  """The arrays that `benchmark_update_jobs.random_batch` made."""
  import numpy as np

  with np.load(job["batch"]) as arrays:
    return dict(arrays)


def ours_update(job: dict[str, Any]):
  """`update.make_update` with `losses.grpo_loss` on one device."""
  import dataclasses

  import jax

  from codea1_jax import losses, optimizer, train_state, update
  from codea1_jax.models import convert

  options = job["options"]
  config, params = convert.load_pretrained(
    job["model"], dtype=job["dtype"], param_dtype="float32"
  )
  config = dataclasses.replace(
    config,
    scan_layers=options.get("scan_layers", False),
    remat=options.get("remat", "none"),
  )
  chunk = {k: options[k] or None for k in ("chunk_size",) if k in options}
  loss = losses.GrpoLossConfig(**job["loss"], **chunk)
  adamw = optimizer.make_optimizer(
    **job["optimizer"], warmup_steps=0, schedule="constant"
  )
  parallel = update.make_parallel("pmap", jax.local_devices()[:1])
  step = update.make_update(
    losses.grpo_loss(loss, config),
    adamw,
    parallel,
    micro_batch_size=options.get("micro_batch_size") or None,
  )
  batch = train_state.UpdateBatch(**_batch(job))
  state = parallel.replicate(train_state.create_policy_state(params, adamw))
  del params

  def call() -> dict[str, float]:
    nonlocal state
    state, metrics = step(state, batch)
    return {name: metrics[name] for name in ("loss", "grad_norm")}

  return {"update": call}


def _torch_model(job: dict[str, Any]):
  """transformers' model as it comes: not compiled, its default attention."""
  import torch
  from transformers import AutoModelForCausalLM

  torch.set_num_threads(os.cpu_count())
  return AutoModelForCausalLM.from_pretrained(
    job["model"], dtype=torch.float32, local_files_only=True
  ).train()


def _torch_calls(job: dict[str, Any], model, share: Callable):
  """AdamW steps on the sum of `share(part of the batch)`, each of which is
  divided by the tokens of all."""
  import torch

  batch = {name: torch.from_numpy(x) for name, x in _batch(job).items()}
  settings = job["optimizer"]
  groups = [[], []]  # matrices decay, norms and biases do not
  for parameter in model.parameters():
    groups[parameter.ndim < 2].append(parameter)
  adamw = torch.optim.AdamW(
    [
      {"params": groups[0], "weight_decay": settings["weight_decay"]},
      {"params": groups[1], "weight_decay": 0.0},
    ],
    lr=settings["learning_rate"],
    betas=(settings["b1"], settings["b2"]),
    eps=settings["eps"],
  )
  rows = len(batch["tokens"])
  size = job["options"].get("micro_batch_size") or rows

  def call() -> dict[str, float]:
    adamw.zero_grad()
    total = 0.0
    for start in range(0, rows, size):
      part = {name: x[start : start + size] for name, x in batch.items()}
      loss = share(part, batch["completion_mask"].sum())
      loss.backward()
      total += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(
      model.parameters(), settings["grad_clip"]
    )
    adamw.step()
    return {"loss": total, "grad_norm": norm.item()}

  return {"update": call}


def torch_update(job: dict[str, Any]):
  """The loss in plain PyTorch, bfloat16 by autocast."""
  import torch

  settings = job["loss"]
  model = _torch_model(job)
  half = job["dtype"] == "bfloat16"

  def log_probs_of(part):
    length = part["completion_mask"].shape[1]
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
      logits = model(
        part["tokens"],
        attention_mask=part["valid"],
        use_cache=False,
        logits_to_keep=length + 1,  # the last one predicts nothing
      ).logits[:, :-1]
    targets = part["tokens"][:, -length:, None].long()
    logits = logits.float()
    return logits.gather(-1, targets)[..., 0] - logits.logsumexp(-1)

  def share(part, num_tokens):
    log_probs = log_probs_of(part)
    advantages = part["advantages"][:, None]
    limits = -_RATIO_LIMIT, _RATIO_LIMIT
    ratio = (log_probs - part["behavior_log_probs"]).clamp(*limits).exp()
    clipped = ratio.clamp(
      1 - settings["clip_eps_low"], 1 + settings["clip_eps_high"]
    )
    loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    bounded = torch.minimum(loss, -advantages * settings["dual_clip"])
    loss = torch.where(advantages < 0, bounded, loss)
    difference = (part["ref_log_probs"] - log_probs).clamp(*limits)
    kl = (difference.exp() - difference - 1).clamp(-10, 10)
    loss = (loss + settings["kl_coef"] * kl) * part["completion_mask"]
    return loss.sum() / num_tokens

  return _torch_calls(job, model, share)


CONTENDERS = {f.__name__: f for f in (ours_update, torch_update)}
