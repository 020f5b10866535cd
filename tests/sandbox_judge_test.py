"""The judge alone, its children played by the test."""

from codea1_jax.sandbox import Limits, judge
from codea1_jax.sandbox.encoding import encode
from codea1_jax.sandbox.judge import JobState
from codea1_jax.sandbox.zygote import CPU_LIMIT, ENDED, End


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


def _statuses(state):
  return [status for status, *_ in state.result()[3]]


def test_calls_that_had_their_seconds_are_over_when_the_child_ends():
  state = _state(tuple(f"f({k})" for k in range(6)))
  state.start()
  for frame in (b"L", b"VN"):
    state.on_frame(frame)
  state.on_end(End(CPU_LIMIT, stage=4))  # it claimed to be in the fourth call
  state.start()
  state.on_frame(b"L")
  state.on_end(End(ENDED, stage=1))
  state.start()
  for frame in (b"L", b"VN"):
    state.on_frame(frame)
  assert _statuses(state) == ["pass"] + ["timeout"] * 3 + ["error", "pass"]


def test_a_stage_beyond_the_calls_is_no_more_than_all_of_them():
  state = _state()
  state.start()
  state.on_frame(b"L")
  state.on_end(End(ENDED, stage=2**64 - 1))
  assert _statuses(state) == ["error", "error"]


def _claims(values, **limits):
  """The state of a job whose calls returned these values, all claimed."""
  state = _state(("f(1)",) * len(values), **limits)
  state.start()
  for frame in (b"L", *(b"V" + encode(v, 10**6, 10**5) for v in values)):
    state.on_frame(frame)
  return state


def test_a_value_is_bounded_as_it_is_written():
  fits, too_long = "\x01" * 24, "\x01" * 25  # 4 characters each, and 2 quotes
  state = _claims([fits, too_long, [fits]], max_result_bytes=98)
  assert state.result()[3] == [
    ["pass", repr(fits), ""],
    ["error", None, "result too large"],
    ["error", None, "result too large"],
  ]


def test_the_values_of_a_job_are_bounded_together(monkeypatch):
  """Their message has a bound: a character takes up to 2 or 12 bytes of it."""
  monkeypatch.setattr(judge, "_MAX_VALUES", 2 * 12 + 12 * 3 + 2 * 11)
  state = _claims(["a" * 10, "é", "a" * 10, "a" * 9, 1])
  assert _statuses(state) == ["pass", "pass", "error", "pass", "error"]
