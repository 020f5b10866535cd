"""The manager in this process, its zygotes played by the test."""

import errno
import json
import os
import socket
import time
import types

import pytest

from codea1_jax.sandbox import Limits, wire
from codea1_jax.sandbox.manager import Manager
from codea1_jax.sandbox.wire import pack
from codea1_jax.sandbox.worker import Run


class _Part:
  """A part of a job that takes whatever its child claims."""

  request = (1.0, 1.0, 1 << 20, 1)
  longest_cpu_s = 1.0
  hash_seed = 0

  def start(self):
    return b"{}"

  def on_frame(self, frame):
    pass


@pytest.fixture
def manager():
  ours, theirs = socket.socketpair()
  with ours:
    made = Manager(theirs, os.getppid())
    made._limits = Limits()
    made.trainer = ours
    yield made
  theirs.close()


@pytest.fixture
def zygote():
  """Its socket, and the other end."""
  ours, theirs = socket.socketpair()
  with ours, theirs:
    yield types.SimpleNamespace(socket=ours, theirs=theirs)


def test_bytes_that_are_no_claim_gain_no_time(manager, zygote):
  run = Run(zygote, _Part(), Limits(), None)
  _, (job, result), _, _ = socket.recv_fds(zygote.theirs, 999, 2)
  frame = pack(b"L")
  os.write(result, frame[:-1])
  assert manager._read_claims(run) == len(frame) - 1
  assert run.deadline == 0.0
  os.write(result, frame[-1:])
  assert manager._read_claims(run) == 1
  assert run.deadline > time.monotonic()
  os.close(job)
  os.close(result)
  run.close_pipe()


def test_a_result_too_large_to_send_is_lost_alone(manager, monkeypatch):
  def send(value):
    job = types.SimpleNamespace(
      id=7, cpu_s=1.5, result=lambda: [7, 1.5, ["pass", None, ""], [value]]
    )
    manager._send_result(job)
    return json.loads(manager.trainer.recv(10**6)[4:])

  whole = send("x" * 100)
  assert whole[3] == ["x" * 100]
  size = len(wire.pack_json(whole)) - 4
  monkeypatch.setattr(wire, "MAX_MESSAGE", size)
  assert send("x" * 100) == whole
  lost = send("x" * 101)
  assert lost[:2] == [7, 1.5] and lost[2][0] == "infrastructure"
  assert lost[3] is None


def _overdue_after(manager, monkeypatch, deadline, last_turn):
  """Seeds whose runs and starts are buried in a turn of one second's poll."""
  buried = []
  monkeypatch.setattr(
    manager, "_bury", lambda _, seed, **__: buried.append(seed)
  )
  now = time.monotonic()
  run = types.SimpleNamespace(deadline=now + deadline)
  starting = types.SimpleNamespace(ready=False, start_deadline=now + deadline)
  worker = types.SimpleNamespace(runs={0: run}, zygotes={1: starting})
  manager._workers = [worker]
  manager._last_turn = now + last_turn
  manager._enforce_deadlines(1.0)
  manager._enforce_deadlines(1.0)  # what was given lasts
  return set(buried)


def test_time_in_which_the_manager_was_stopped_is_nobodys_fault(
  manager, monkeypatch
):
  assert _overdue_after(manager, monkeypatch, 0.5, -1.0) == set()
  assert _overdue_after(manager, monkeypatch, -0.5, -1.0) == {0, 1}
  assert _overdue_after(manager, monkeypatch, -0.5, -2.9) == {0, 1}
  assert _overdue_after(manager, monkeypatch, -50.0, -60.0) == set()
  assert _overdue_after(manager, monkeypatch, -60.0, -60.0) == {0, 1}


def test_a_zygote_that_cannot_be_sent_to_is_ended(zygote, monkeypatch):
  """As while a program has too many descriptors on their way."""
  ended = []

  def refuse(*_):
    raise OSError(errno.ETOOMANYREFS, "Too many references: cannot splice")

  monkeypatch.setattr(socket, "send_fds", refuse)
  zygote.process = types.SimpleNamespace(terminate=lambda: ended.append(0))
  before = os.listdir("/proc/self/fd")
  run = Run(zygote, _Part(), Limits(), None)
  assert ended == [0]  # its end then tells the manager to try again
  run.close_pipe()
  assert os.listdir("/proc/self/fd") == before
