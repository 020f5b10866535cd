"""Continuous batching: any number of prompts through a bounded decode batch.

The host keeps a queue a group. Whenever enough slots have ended, their samples
are read and the next ones begin in them; when nothing waits any more, the batch
shrinks with what is left of it. Shapes are few: one prompt length a call, and
the batch's size and some halves of it.

Letters: P prompts, N samples a prompt, C slots of W samples, T most new tokens,
G groups of slots (devices.py), U prompts of each prefilled together.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from codea1_jax import sampling
from codea1_jax.devices import Parallel
from codea1_jax.drawing import Filters
from codea1_jax.models import axes, decoding, qwen

_REFILL = 8  # a refill waits until one in so many slots has ended
_SMALLEST = 8  # rows; a smaller batch decodes no faster
_HALVINGS = 2  # of the batch when nothing waits; each costs a compilation
_SIZES = ("num_samples", "max_new_tokens", "bucket", "max_rows", "slot_samples")
PREFILL_TOKENS = 8192  # whose activations exist at a time


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
  """How to draw; temperature 0 is greedy."""

  num_samples: int
  max_new_tokens: int
  temperature: float = 1.0
  top_p: float = 1.0
  top_k: int = 0
  min_p: float = 0.0
  bucket: int = 32  # prompts are padded up to steps that are multiples of it
  max_rows: int = 512  # samples that a group decodes at a time
  slot_samples: int = 1  # of a prompt, that share its cache and begin together

  def __post_init__(self):
    _ = self.filters  # which checks them
    for name in _SIZES:
      if getattr(self, name) < 1:
        raise ValueError(f"{name} must be at least 1: {getattr(self, name)}")
    if not self.temperature >= 0:  # so written that NaN is refused too
      raise ValueError(f"temperature must not be below 0: {self.temperature}")

  @property
  def width(self) -> int:
    """W: never more than there are samples or rows."""
    return min(self.slot_samples, self.num_samples, self.max_rows)

  @property
  def parts(self) -> int:
    """Slots that the samples of one prompt take."""
    return -(-self.num_samples // self.width)

  @property
  def filters(self) -> Filters:
    return Filters(self.top_p, self.top_k, self.min_p)


@dataclasses.dataclass(frozen=True)
class _Device:
  """The compiled steps, each over all groups."""

  prepare: Callable
  prefill: Callable
  empty: Callable
  admit: Callable
  advance: Callable
  select: Callable
  collect: Callable


@functools.cache
def _compile(
  model_config: qwen.QwenConfig,
  width: int,
  max_new_tokens: int,
  filters: Filters,
  parallel: Parallel,
  eos_ids: tuple[int, ...],
  pad_id: int,
) -> _Device:
  """Everything that runs on devices; jit traces it once a shape.

  Shared by all samplers of policies of one shape: both roles', and those of
  training and evaluation, whatever their numbers of samples and temperatures.
  """

  def prefill(params, tokens, valid):
    micro_batch = max(1, PREFILL_TOKENS // tokens.shape[1])
    return decoding.prefill(
      params,
      model_config,
      tokens,
      valid,
      micro_batch=micro_batch,
      groups=groups,
    )

  def empty(prompts, slots):
    return sampling.empty_slots(
      model_config,
      groups * slots,
      width,
      prompt_length=prompts.valid.shape[1],
      max_new_tokens=max_new_tokens,
    )

  def advance(params, slots, stop_at, temperature):
    slots = sampling.advance(
      params,
      model_config,
      slots,
      stop_at,
      temperature=temperature.reshape(-1)[0],
      filters=filters,
      eos_ids=eos_ids,
    )
    return slots, slots.ended

  def prepare(params):
    params = qwen.unstack(
      params, model_config, by_rows=not parallel.cuts_layers
    )
    # A step would have to gather what is cut along fsdp, and all steps do.
    return axes.constrain_tree(params, whole=("embed",))

  groups = parallel.groups_inside
  return _Device(
    prepare=parallel.map(prepare, gives="held"),
    prefill=parallel.map(prefill, gives="held"),
    empty=parallel.map(empty, static=(1,), gives="held"),
    admit=parallel.map(
      functools.partial(sampling.admit, groups=groups),
      held=(0, 1),
      donate=(0,),
      gives="held",
    ),
    advance=parallel.map(
      advance, held=(0, 1), donate=(1,), gives=("held", "rows")
    ),
    select=parallel.map(
      functools.partial(sampling.select, groups=groups), gives="held"
    ),
    collect=parallel.map(functools.partial(sampling.collect, pad_id=pad_id)),
  )


@dataclasses.dataclass
class _Queue:
  """What waits and what runs, by part: W samples of a prompt, from one on.

  Part i belongs to prompt i // parts and begins with its sample
  i % parts * W.
  """

  config: SamplingConfig
  keys: np.ndarray  # [P, N, ...] uint32
  limit: np.ndarray  # [P, N] int32
  waiting: list[collections.deque[int]]  # a group
  held: np.ndarray  # [G, C] part in a slot, -1: none
  place: np.ndarray  # [P] where the prompt lies among those prefilled

  def enqueue(self, chunk: np.ndarray) -> None:
    """Lets the prompts [G, U] just prefilled wait; -1 is a filler."""
    for group, prompts in enumerate(chunk):
      for place, prompt in enumerate(prompts):
        if prompt >= 0:
          self.place[prompt] = place
          first = int(prompt) * self.config.parts
          self.waiting[group].extend(range(first, first + self.config.parts))

  def samples(self, part: int) -> tuple[int, slice]:
    """A part's prompt, and which of its samples it has."""
    prompt, index = divmod(part, self.config.parts)
    first = index * self.config.width
    last = min(first + self.config.width, self.config.num_samples)
    return prompt, slice(first, last)

  def fill(self):
    """Gives free slots to waiting parts: the arguments of `admit`, or None."""
    shape = (*self.held.shape, self.config.width)
    source = np.full(self.held.shape, -1, np.int32)
    keys = np.zeros((*shape, self.keys.shape[-1]), np.uint32)
    limit = np.zeros(shape, np.int32)
    for group, waiting in enumerate(self.waiting):
      for slot in np.flatnonzero(self.held[group] < 0)[: len(waiting)]:
        part = waiting.popleft()
        prompt, samples = self.samples(part)
        count = samples.stop - samples.start
        self.held[group, slot] = part
        source[group, slot] = self.place[prompt]
        keys[group, slot, :count] = self.keys[prompt, samples]
        limit[group, slot, :count] = self.limit[prompt, samples]
    return (source, keys, limit) if (source >= 0).any() else None

  def stop_at(self, more: bool, smaller: int) -> np.ndarray:
    """[G] slots at which to look again: for a refill, or to shrink."""
    running = (self.held >= 0).sum(1)
    if not more and not any(self.waiting):
      return np.full(len(running), smaller, np.int32)
    batch = max(1, self.held.shape[1] // _REFILL)
    waiting = [len(queue) or batch for queue in self.waiting]
    stop = running - np.minimum(waiting, batch)
    return np.maximum(stop, 0).astype(np.int32)


def _chunks(used: np.ndarray, groups: int, size: int) -> list[np.ndarray]:
  """Prompts in use as arrays [G, U] of their numbers, -1 for fillers."""
  prompts = np.flatnonzero(used)
  chunks = []
  for start in range(0, len(prompts), groups * size):
    chunk = np.full(groups * size, -1)
    part = prompts[start : start + groups * size]
    chunk[: len(part)] = part
    chunks.append(chunk.reshape(size, groups).T)
  return chunks


def _smaller(slots: int, width: int, full: int) -> int:
  """The next size of a batch of which nothing but an end is left; 0: none."""
  half = -(-slots // 2)
  fits = half * width >= _SMALLEST and half < slots
  return half if fits and half * 2**_HALVINGS >= full else 0


def make_generate(
  model_config: qwen.QwenConfig,
  config: SamplingConfig,
  parallel: Parallel,
  *,
  eos_ids: tuple[int, ...],
  pad_id: int,
) -> Callable[..., sampling.SampleOutput]:
  """Builds the sampler of one policy.

  Args:
    model_config: the policy's shape.
    config: how to draw, and in what batches.
    parallel: where the parameters lie.
    eos_ids: tokens that end a sample.
    pad_id: fills samples after their end.

  Returns:
    generate(placed params, tokens [P, L], valid [P, L], keys [P, N, ...],
    limit [P, N]) -> numpy arrays [P, N, T]. Keys are raw PRNG key data, limit
    is the most tokens of each sample. A prompt without a valid token has no
    completion. A sample depends on its key and prompt alone.
  """
  num, width = parallel.num_groups, config.width
  device = _compile(
    model_config,
    width,
    config.max_new_tokens,
    config.filters,
    parallel,
    eos_ids,
    pad_id,
  )
  temperature = np.full(num, config.temperature, np.float32)
  most = max(1, config.max_rows // width)

  def generate(params, tokens, valid, keys, limit):
    count, samples = len(tokens), config.num_samples
    limit = np.minimum(limit, config.max_new_tokens).astype(np.int32)
    output = _blank(count, config, pad_id)
    each = -(-count // num)
    size = max(1, min(each, config.max_rows // samples))
    chunks = _chunks(np.asarray(valid).any(-1), num, size)
    full = min(each * config.parts, most)
    held = np.full((num, full), -1)
    queues = [collections.deque() for _ in range(num)]
    place = np.zeros(count, np.int32)
    queue = _Queue(config, np.asarray(keys), limit, queues, held, place)
    params = _prepare(device, params, model_config, parallel)
    slots = None
    while chunks or any(queue.waiting) or (queue.held >= 0).any():
      if chunks and not any(queue.waiting):
        chunk = chunks.pop(0)
        # A filler's tokens are those of the last prompt, its mask is empty.
        used = valid[chunk] & (chunk >= 0)[..., None]
        prompts = device.prefill(params, tokens[chunk], used)
        queue.enqueue(chunk)
        if slots is None:
          slots = device.empty(prompts, full)
      admitted = queue.fill()
      if admitted:
        slots = device.admit(slots, prompts, *admitted)
      smaller = _smaller(queue.held.shape[1], width, full)
      stop_at = queue.stop_at(bool(chunks), smaller)
      slots, ended = device.advance(params, slots, stop_at, temperature)
      ended = parallel.to_host(ended).all(-1) & (queue.held >= 0)
      if ended.any():
        _read(parallel.to_host(device.collect(slots)), queue, ended, output)
      queue.held[ended] = -1
      if not (chunks or any(queue.waiting)) and smaller:
        slots = _shrink(device, slots, queue, smaller)
    return output

  return generate


def _prepare(device: _Device, params, model_config, parallel: Parallel):
  """Parameters for the decode loop; what stays as it is is not copied."""
  if parallel.kind == "mesh":  # what it is cut along does not stay
    return device.prepare(params)
  dtype = np.dtype(model_config.dtype)
  kept = {
    name: value
    for name, value in params.items()
    if name != "layers" and (value.dtype == dtype or name.endswith("norm"))
  }
  rest = {name: params[name] for name in params.keys() - kept.keys()}
  return kept | device.prepare(rest)


def _blank(count, config: SamplingConfig, pad_id) -> sampling.SampleOutput:
  shape = (count, config.num_samples, config.max_new_tokens)
  return sampling.SampleOutput(
    np.full(shape, pad_id, np.int32),
    np.zeros(shape, bool),
    np.zeros(shape, np.float32),
  )


def _read(collected, queue: _Queue, ended, output) -> None:
  """Copies the samples of ended slots to where they belong."""
  for at in zip(*np.nonzero(ended), strict=True):
    prompt, samples = queue.samples(int(queue.held[at]))
    for all, new in zip(output, collected, strict=True):
      all[prompt, samples] = new[at][: samples.stop - samples.start]


def _shrink(device: _Device, slots, queue: _Queue, size: int) -> Any:
  """The slots that go on in a batch of `size`, if they fit on every device."""
  running = queue.held >= 0
  if running.sum(1).max() > size or not running.any():
    return slots
  chosen = np.argsort(~running, axis=1, kind="stable")[:, :size]
  queue.held = np.take_along_axis(queue.held, chosen, 1)
  return device.select(slots, chosen)
