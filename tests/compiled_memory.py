"""What XLA reports of a config's programs, from shapes alone: none is run."""

import contextlib
import dataclasses

import jax
import numpy as np

from codea1_jax import (
  adapters,
  assembly,
  generation,
  losses,
  packing,
  rollout,
  train_state,
  update,
)
from codea1_jax.devices import Parallel, make_parallel
from codea1_jax.models import lora, qwen

# The compiled function -> the program's name in a plan.
_NAMES = {
  "prefill": "prefill",
  "admit": "admit",
  "advance": "decode",
  "device_score": "scoring",
  "device_step": "update",
}
ALL = tuple(_NAMES.values())
_found = {}
_QUICK = {"xla_backend_optimization_level": 0}  # memory stays what it is


class _Done(Exception):
  """The last program has been compiled."""


@dataclasses.dataclass(frozen=True)
class _Recording(Parallel):
  """Compiles what it is asked to run and keeps the report instead."""

  def map(self, fn, *args, **kwargs):
    mapped = super().map(fn, *args, **kwargs)
    name = getattr(fn, "func", fn).__name__

    def call(*args):
      lowered = mapped.lower(*args)
      compiled = lowered.compile(_QUICK)
      if name in _NAMES:
        _found[_NAMES[name]] = compiled.memory_analysis()
      if name in ("advance", "device_score", "device_step"):
        raise _Done
      if self.kind == "pmap":
        return lowered.out_info
      return jax.tree.map(_shape, lowered.out_info, compiled.output_shardings)

    return call


def _shape(leaf, sharding=None):
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _placed(tree, parallel):
  """As `Parallel.place` would leave it."""
  if parallel.kind == "mesh":
    return jax.tree.map(_shape, tree, parallel.shardings(tree))
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct((len(parallel.devices), *x.shape), x.dtype),
    tree,
  )


def compiled(config, role, model, programs=ALL, devices=1):
  """{program: bytes on a device} of one role, arguments and results too."""
  parallel = make_parallel(
    config.parallel, jax.devices()[:devices], **config.mesh
  )
  parallel = _Recording(parallel.kind, parallel.devices, parallel.shape)
  _found.clear()
  for names, run in (
    (("prefill", "admit", "decode"), _sample),
    (("scoring",), _score),
    (("update",), _update),
  ):
    if set(names) & set(programs):
      with contextlib.suppress(_Done):
        run(config, role, model, parallel)
  return {name: _bytes(stats) for name, stats in _found.items()}


def _bytes(stats):
  return (
    stats.temp_size_in_bytes
    + stats.argument_size_in_bytes
    + stats.output_size_in_bytes
    - stats.alias_size_in_bytes
  )


def _shapes(config, model, parallel):
  """(the base of adapters or None, what is trained)."""
  params = jax.eval_shape(
    lambda key: qwen.init_params(model, key), jax.random.key(0)
  )
  if not config.lora.rank:
    return None, params
  settings = adapters.settings(config)
  trained = jax.eval_shape(
    lambda key: lora.init_adapters(model, settings, key), jax.random.key(0)
  )
  return _placed(params, parallel), trained


def _full(config, model, parallel):
  base, trained = _shapes(config, model, parallel)
  trained = _placed(trained, parallel)
  if base is None:
    return trained
  full = jax.eval_shape(adapters.binder(config), base, trained)
  return _placed(full, parallel) if parallel.kind == "mesh" else full


def _sizes(config, role):
  settings, bucket = config[role], config.rollout.bucket
  prompt = rollout.bucket_length(settings.max_prompt_tokens, bucket)
  length = rollout.bucket_length(settings.max_new_tokens, bucket)
  play = config.rollout
  prompts, samples = play.questions, play.codes
  if role == "test":
    prompts, samples = play.questions * play.codes, play.suites
  return prompt, length, prompts, samples


def _sample(config, role, model, parallel):
  prompt, _, prompts, samples = _sizes(config, role)
  generate = generation.make_generate(
    model,
    assembly._sampling(config, role, samples),
    parallel,
    eos_ids=(1,),
    pad_id=0,
  )
  generate(
    _full(config, model, parallel),
    np.zeros((prompts, prompt), np.int32),
    np.ones((prompts, prompt), bool),
    np.zeros((prompts, samples, 2), np.uint32),
    np.full((prompts, samples), config[role].max_new_tokens, np.int32),
  )


def _rows(config, role):
  _, _, _, samples = _sizes(config, role)
  return assembly.groups_a_step(config, role) * samples


def _score(config, role, model, parallel):
  prompt, length, _, _ = _sizes(config, role)
  score = update.make_score(
    model, parallel, micro_batch_size=config.grpo.micro_batch_size
  )
  shape = (_rows(config, role), prompt + length)
  tokens = np.zeros(shape, np.int32)
  batch = train_state.UpdateBatch(
    tokens, tokens == 0, np.ones((shape[0], length), np.float32)
  )
  score(_full(config, model, parallel), _laid_out(config, batch))


def _laid_out(config, batch):
  """As a player hands rows on; all of them have the same prompt here."""
  if not config.grpo.share_prompts:
    return batch
  return packing.share_prompts(
    batch,
    max_slots=config.grpo.share_prompts,
    rows_multiple=config.grpo.micro_batch_size,
    bucket=config.rollout.bucket,
    pad_id=1,
  )[0]


def _update(config, role, model, parallel):
  prompt, length, _, _ = _sizes(config, role)
  rows = min(_rows(config, role), config[role].minibatch_size)
  optimizer, _ = assembly._make_optimizer(config, role)
  base, trained = _shapes(config, model, parallel)
  step = update.make_update(
    losses.grpo_loss(assembly._loss_config(config, role), model),
    optimizer,
    parallel,
    micro_batch_size=config.grpo.micro_batch_size,
    bind=adapters.binder(config) if base is not None else None,
  )
  state = jax.eval_shape(
    lambda params: train_state.create_policy_state(params, optimizer), trained
  )
  tokens = np.zeros((rows, prompt + length), np.int32)
  numbers = np.zeros((rows, length), np.float32)
  batch = train_state.UpdateBatch(
    tokens=tokens,
    valid=tokens == 0,
    completion_mask=numbers + 1,
    advantages=numbers[:, 0],
    behavior_log_probs=numbers,
    ref_log_probs=numbers,
  )
  step(_placed(state, parallel), _laid_out(config, batch), base)
