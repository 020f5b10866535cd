"""The updates that `benchmark_update` compares: job -> calls by name.

Every `update` call is one AdamW step on the whole batch of the job, and returns
the loss and the norm of its gradient before clipping. As in
benchmark_contenders every function imports what it needs.
"""

import os
from collections.abc import Callable
from typing import Any

_RATIO_LIMIT = 20.0  # of a log ratio
_BUCKET = 32  # of lengths of rows that share prompts
_PAD = 0  # benchmark_update_jobs has no other token


def _batch(job: dict[str, Any]) -> dict[str, Any]:
  """The arrays that `benchmark_update_jobs.random_batch` made."""
  import numpy as np

  with np.load(job["batch"]) as arrays:
    return dict(arrays)


def ours_update(job: dict[str, Any]):
  """`update.make_update` with `losses.grpo_loss` on one device."""
  import dataclasses

  import jax

  from codea1_jax import (
    devices,
    losses,
    optimizer,
    packing,
    train_state,
    update,
  )
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
  parallel = devices.make_parallel("pmap", jax.local_devices()[:1])
  step = update.make_update(
    losses.grpo_loss(loss, config),
    adamw,
    parallel,
    micro_batch_size=options.get("micro_batch_size") or None,
  )
  batch = train_state.UpdateBatch(**_batch(job))
  if options.get("share_prompts"):
    batch, _ = packing.share_prompts(
      batch,
      max_slots=options["share_prompts"],
      rows_multiple=options.get("micro_batch_size") or 1,
      bucket=_BUCKET,
      pad_id=_PAD,
    )
  state = parallel.place(train_state.create_policy_state(params, adamw))
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


def trl_update(job: dict[str, Any]):
  """The loss of TRL's GRPOTrainer, on the same model."""
  from datasets import Dataset
  from tokenizers import Tokenizer, models
  from transformers import PreTrainedTokenizerFast
  from trl import GRPOConfig, GRPOTrainer

  settings = job["loss"]
  model = _torch_model(job)
  # A tokenizer and a question that nobody asks for.
  tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel({"-": 0}, unk_token="-")),
    pad_token="-",
    eos_token="-",
  )
  trainer = GRPOTrainer(
    model,
    reward_funcs=lambda completions, **_: [0.0] * len(completions),
    args=GRPOConfig(
      output_dir=job["model"],
      use_cpu=True,
      bf16=False,
      gradient_checkpointing=False,  # nobody here has it
      beta=0.0,  # else it would load a reference model
      use_bias_correction_kl=False,
      epsilon=settings["clip_eps_low"],
      epsilon_high=settings["clip_eps_high"],
      delta=settings["dual_clip"],
      loss_type="dapo",  # the mean over tokens of all micro-batches
      report_to=[],
      num_generations=2,
      per_device_train_batch_size=2,
      gradient_accumulation_steps=1,
    ),
    train_dataset=Dataset.from_list([{"prompt": "-"}]),
    processing_class=tokenizer,
  )
  trainer.beta = settings["kl_coef"]
  trainer.current_gradient_accumulation_steps = 1  # as `train` would set it

  def share(part, num_tokens):
    start = part["tokens"].shape[1] - part["completion_mask"].shape[1]
    tokens = part["tokens"].long()
    inputs = {
      "prompt_ids": tokens[:, :start],
      "prompt_mask": part["valid"][:, :start].long(),
      "completion_ids": tokens[:, start:],
      "completion_mask": part["completion_mask"].long(),
      "advantages": part["advantages"],
      "old_per_token_logps": part["behavior_log_probs"],
      "ref_per_token_logps": part["ref_log_probs"],
      "num_items_in_batch": num_tokens,
    }
    return trainer.compute_loss(model, inputs)

  return _torch_calls(job, model, share)


def tunix_update(job: dict[str, Any]):
  """The step of google-tunix's RL trainer with its GRPO loss."""
  import types

  import jax.numpy as jnp
  from tunix.models.qwen2 import params as loader
  from tunix.rl import algo_core, common, trainer
  from tunix.sft import peft_trainer

  from codea1_jax import optimizer
  from experiments.benchmark_contenders import tunix_config

  settings, batch = job["loss"], _batch(job)
  model = loader.create_model_from_safe_tensors(
    job["model"], tunix_config(job), dtype=jnp.float32
  )
  adamw = optimizer.make_optimizer(
    **job["optimizer"], warmup_steps=0, schedule="constant"
  )
  config = types.SimpleNamespace(
    beta=settings["kl_coef"],
    kl_loss_mode="low_var_kl",
    kl_clamp_value=10.0,
    epsilon=settings["clip_eps_low"],
    epsilon_high=settings["clip_eps_high"],
    epsilon_c=settings["dual_clip"],
    loss_algo="grpo",
    loss_agg_mode="token-mean",
    temperature=1.0,
  )

  def loss(model, example):
    # It tells padding by its token; no token ends a row.
    return algo_core.grpo_loss_fn(model, example, config, job["pad_id"], -1)

  start = batch["tokens"].shape[1] - batch["completion_mask"].shape[1]
  example = common.TrainExample(
    prompt_ids=batch["tokens"][:, :start],
    prompt_mask=batch["valid"][:, :start],
    completion_ids=batch["tokens"][:, start:],
    completion_mask=batch["completion_mask"],
    advantages=batch["advantages"],
    ref_per_token_logps=batch["ref_log_probs"],
    old_per_token_logps=batch["behavior_log_probs"],
  )
  own = trainer.Trainer(
    model,
    adamw,
    peft_trainer.TrainingConfig(eval_every_n_steps=1, max_steps=1),
    custom_checkpoint_metadata_fn=dict,
  )
  own.with_loss_fn(loss, has_aux=True)
  own.with_gen_model_input_fn(lambda example: {"example": example})
  step, _ = own.jit_train_and_eval_step(cache_nnx_graph=True)

  def call() -> dict[str, float]:
    found, _, norm = step(example)
    return {"loss": float(found), "grad_norm": float(norm)}

  return {"update": call}


CONTENDERS = {
  f.__name__: f for f in (ours_update, torch_update, trl_update, tunix_update)
}
