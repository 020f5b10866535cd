"""A trace of some steps: which stage keeps the devices busy, and with what."""

import contextlib
import pathlib
from collections.abc import Iterator

import jax


class Profile:
  """Traces steps first .. first + count - 1 into a directory.

  TensorBoard's profile plugin reads the directory; the `*.trace.json.gz` below
  it opens in Perfetto too. A context manager: what is still being traced when
  a run stops is written.
  """

  def __init__(
    self, directory: pathlib.Path, first: int, count: int, writes: bool = True
  ):
    self._directory = directory
    self._steps = range(first, first + count) if writes else range(0)
    self._running = False

  def __enter__(self) -> "Profile":
    return self

  def __exit__(self, *exception) -> None:
    self._stop()

  @contextlib.contextmanager
  def step(self, number: int) -> Iterator[None]:
    """Around one step, which the trace shows as `train`."""
    if number in self._steps and not self._running:
      self._start()
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
      yield
    if number + 1 not in self._steps:
      self._stop()

  def _start(self) -> None:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # every call of Python: slow, and huge
    jax.profiler.start_trace(self._directory, profiler_options=options)
    self._running = True

  def _stop(self) -> None:
    if self._running:
      self._running = False
      jax.profiler.stop_trace()
