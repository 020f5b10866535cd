"""What a step costs: seconds, rates, idle shares, memory, compilations."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping

import jax

from codea1_jax import catalog
from codea1_jax.assembly import Run

_ON_DEVICES = ("rollout", "score", "update")  # stages; the other is sandbox
_ROLES = ("code", "test")
_GIB = 2**30
_DEVICE_MEMORY = (
  ("device", "bytes_in_use"),
  ("device_peak", "peak_bytes_in_use"),  # since the start
)


class Clock:
  """Seconds of each stage of a step; a trace shows them by the same names."""

  def __init__(self):
    self.metrics: dict[str, float] = {}

  @contextlib.contextmanager
  def stage(self, name: str) -> Iterator[None]:
    """Around a stage, or a part of it: parts add up."""
    started = time.monotonic()
    with jax.profiler.TraceAnnotation(name):
      yield
    key = f"time/{name}_s"
    seconds = time.monotonic() - started
    self.metrics[key] = self.metrics.get(key, 0.0) + seconds


class Compilations:
  """How many programs jax has built for this run, and in what time.

  A run's shapes are few, so the count stands still after some steps; one that
  goes on rising is a bug. Programs from the persistent cache count too.
  """

  _EVENT = "/jax/core/compile/backend_compile_duration"

  def __init__(self):
    self.metrics = {"compile/programs": 0, "compile/seconds": 0.0}

  def __enter__(self) -> "Compilations":
    jax.monitoring.register_event_duration_secs_listener(self._listen)
    return self

  def __exit__(self, *exception) -> None:
    jax.monitoring.unregister_event_duration_listener(self._listen)

  def _listen(self, event: str, seconds: float, **_) -> None:
    if event == self._EVENT:
      self.metrics["compile/programs"] += 1
      self.metrics["compile/seconds"] += seconds


class Usage:
  """Measures steps of a run."""

  def __init__(self, run: Run, compilations: Compilations):
    self._pool, self._compilations = run.pool, compilations
    self._devices = {d for p in run.parallel.values() for d in p.devices}
    self._peak = _peak_flops(self._devices, run.config.logging.peak_tflops)
    self._step_s = 0.0
    self._jobs, self._job_s = 0, 0.0

  @contextlib.contextmanager
  def step(self) -> Iterator[None]:
    """Around one step, whose metrics are then there."""
    started, (jobs, job_s) = time.monotonic(), self._pool.usage
    yield
    self._step_s = time.monotonic() - started
    now, now_s = self._pool.usage
    self._jobs, self._job_s = now - jobs, now_s - job_s

  def metrics(self, numbers: Mapping[str, float]) -> dict[str, float]:
    """Of the last step, whose own numbers these are."""
    speed = {}
    if self._jobs:
      speed["sandbox/exec_per_s"] = self._jobs / self._job_s
    return {
      "time/step_s": self._step_s,
      **speed,
      **token_rates(numbers),
      **idle_shares(numbers, self._step_s),
      **utilization(numbers, self._step_s, self._peak),
      **_memory(self._devices),
      **self._compilations.metrics,
    }


def token_rates(numbers: Mapping[str, float]) -> dict[str, float]:
  """Tokens a second that both policies sampled, and that they trained on."""
  rates = {}
  for stage, done in (("rollout", "sampled"), ("update", "trained")):
    tokens = _of_both(numbers, f"tokens/{done}")
    if tokens:
      rates[f"{stage}/tokens_per_s"] = tokens / numbers[f"time/{stage}_s"]
  return rates


def idle_shares(
  numbers: Mapping[str, float], step_s: float
) -> dict[str, float]:
  """Shares of a step in which no stage that uses the devices, or the sandbox,
  runs; stages follow each other. Two halves of the devices count as one."""
  on_devices = sum(numbers.get(f"time/{s}_s", 0.0) for s in _ON_DEVICES)
  sandbox = numbers.get("time/sandbox_s", 0.0)
  return {
    "idle/device": max(1 - on_devices / step_s, 0.0),
    "idle/sandbox": max(1 - sandbox / step_s, 0.0),
  }


def utilization(
  numbers: Mapping[str, float], step_s: float, peak: float
) -> dict[str, float]:
  """MFU: operations that the model needs, of those that the devices could do.

  Args:
    numbers: `{role}/flops/{stage}`, see flops.py, and `time/{stage}_s`.
    step_s: seconds of the step.
    peak: FLOP/s of all devices; 0 where that is not known.

  Returns:
    mfu/{stage} and mfu/step; empty where the peak is not known.
  """
  if not peak:
    return {}
  shares, total = {}, 0.0
  for stage in _ON_DEVICES:
    needed = _of_both(numbers, f"flops/{stage}")
    if needed:
      shares[f"mfu/{stage}"] = needed / numbers[f"time/{stage}_s"] / peak
      total += needed
  return {**shares, "mfu/step": total / step_s / peak}


def _of_both(numbers: Mapping[str, float], name: str) -> float:
  return sum(numbers.get(f"{role}/{name}", 0.0) for role in _ROLES)


def _peak_flops(used, peak_tflops: float) -> float:
  """FLOP/s of all devices: of one as the config says, else as it is known."""
  kinds = {device.device_kind for device in used}
  each = [peak_tflops * 1e12 or catalog.peak_flops(kind) for kind in kinds]
  return len(used) * each[0] if len(each) == 1 else 0.0


def _memory(used) -> dict[str, float]:
  """GiB on the fullest of this host's devices, where they tell, and of this
  process."""
  sizes = {"host": _resident()}
  here = [d for d in used if d.process_index == jax.process_index()]
  told = [stats for d in here if (stats := d.memory_stats())]
  for name, field in _DEVICE_MEMORY:
    sizes[name] = max((stats.get(field, 0) for stats in told), default=0)
  return {
    f"memory/{name}_gib": size / _GIB for name, size in sizes.items() if size
  }


def _resident() -> int:
  """Bytes of this process that are in memory; 0 where there is no /proc."""
  try:
    with open("/proc/self/statm", encoding="ascii") as f:
      return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
  except OSError:
    return 0
