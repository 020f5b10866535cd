"""The judge alone, its children played by the test."""

from codea1_jax.sandbox import Limits
from codea1_jax.sandbox.judge import JobState
from codea1_jax.sandbox.zygote import ENDED, End


def _state(calls=("f(1)", "f(2)"), **limits):
  """A job in the judge's hands, whose children are the test's to play."""
  message = {
    "id": 0,
    "program": "",
    "entry_point": "f",
    "calls": calls,
    "expected": [None] * len(calls),
    "hash_seed": 0,
    "tolerance": 0.0,
  }
  return JobState(message, Limits(**limits))


def test_a_child_without_frames_is_our_failure_only_if_it_never_started():
  state = _state()
  state.on_end(End(ENDED, started=False))
  assert not state.done
  state.on_end(End(ENDED))
  assert state.result()[2] == ["error", None, "exited with status 0"]
  state = _state()
  for _ in range(2):
    state.on_end(End(ENDED, started=False))
  assert state.result()[2][0] == "infrastructure"
