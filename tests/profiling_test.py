"""The trace of some steps holds their stages, and nothing of the others."""

import jax
import jax.numpy as jnp
from event_files import STAGES, traces

from codea1_jax import profiling, usage


def take_step(profile, number):
  clock = usage.Clock()
  with profile.step(number):
    for stage in STAGES:
      with clock.stage(stage):
        jnp.ones(8).sum().block_until_ready()


def test_stages_of_the_chosen_steps(tmp_path):
  with profiling.Profile(tmp_path, 1, 2) as profile:
    for number in range(4):
      take_step(profile, number)
    assert traces(tmp_path)  # written before the run ends
  (events,) = traces(tmp_path)
  assert [e["name"] for e in events] == ["train", *STAGES] * 2
  steps = [e for e in events if e["name"] == "train"]
  assert [e["args"]["step_num"] for e in steps] == ["1", "2"]
  for step, at in zip(steps, (0, 5)):
    first, *_, last = events[at + 1 : at + 5]
    assert step["ts"] <= first["ts"] < last["ts"]
    assert last["ts"] + last["dur"] <= step["ts"] + step["dur"] + 1
  assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))


def test_a_run_that_stops_early_leaves_its_trace(tmp_path):
  try:
    with profiling.Profile(tmp_path, 0, 5) as profile:
      take_step(profile, 0)
      with profile.step(1):
        raise KeyboardInterrupt
  except KeyboardInterrupt:
    pass
  (events,) = traces(tmp_path)
  assert [e["name"] for e in events][:5] == ["train", *STAGES]
  jax.profiler.start_trace(tmp_path / "another")  # none is running
  jax.profiler.stop_trace()


def test_no_trace_where_none_is_asked_for(tmp_path):
  for count, writes in ((0, True), (3, False)):
    with profiling.Profile(tmp_path, 0, count, writes) as profile:
      take_step(profile, 0)
  assert not list(tmp_path.iterdir())
