"""The trainer's side of the manager: starts it, feeds it, replaces it."""

import collections
import contextlib
import dataclasses
import json
import socket
import subprocess

from codea1_jax.sandbox import wire
from codea1_jax.sandbox.limits import Limits
from codea1_jax.sandbox.wire import FrameReader, pack_json
from codea1_jax.sandbox.worker import start_python
from codea1_jax.types import Status

_WINDOW = 128  # jobs with the manager at a time
_CHUNK = 1 << 18
_MAX_DEATHS = 2  # managers that one job may take with it


class ManagerClient:
  """One manager at a time; a dead one is replaced and its jobs run again."""

  def __init__(
    self,
    limits: Limits,
    workers: int,
    numpy_path: str = "",
    without: tuple[str, ...] = (),
  ):
    self._config = {
      "limits": dataclasses.asdict(limits),
      "numpy_path": numpy_path,
      "without": " ".join(without),
      "workers": workers,
    }
    self._process: subprocess.Popen | None = None
    self.isolation = ""  # known from the first worker's hello on

  def await_isolation(self) -> str:
    """Starts the manager where needed; the names of the layers it works in.

    Raises:
      RuntimeError: no worker starts on this machine.
    """
    self._ensure()
    while not self.isolation:
      try:
        self._receive()
      except EOFError:
        raise RuntimeError("sandbox: the manager does not start") from None
    return self.isolation

  def run(self, messages: list[dict]) -> list[list]:
    """Sends jobs, a window of them at a time; their results, in order."""
    try:
      return self._run(messages)
    except BaseException:
      self.stop()  # its late answers belong to nobody
      raise

  def stop(self) -> None:
    """Hangs up, which ends the manager and all below it."""
    if self._process is None:
      return
    self._socket.close()
    try:
      self._process.wait(10.0)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    self._process = None

  def _run(self, messages: list[dict]) -> list[list]:
    results: dict[int, list] = {}
    todo = collections.deque(range(len(messages)))
    deaths: collections.Counter[int] = collections.Counter()
    sent: set[int] = set()
    while todo or sent:
      self._ensure()
      try:
        while todo and _may_send(todo[0], sent, deaths):
          sent.add(todo[0])
          self._send(messages[todo[0]] | {"id": todo.popleft()})
        for row in self._receive():
          results[row[0]] = _written_out(row, messages[row[0]])
          sent.discard(row[0])
      except RuntimeError as error:  # no worker starts (any more)
        self.stop()
        lost = [*sent, *todo]
        results |= {k: _infrastructure(messages[k], str(error)) for k in lost}
        return [results[k] for k in range(len(messages))]
      except EOFError as error:
        self.stop()
        for k in sorted(sent, reverse=True):
          deaths[k] += 1
          if deaths[k] < _MAX_DEATHS:
            todo.appendleft(k)
          else:
            results[k] = _infrastructure(messages[k], str(error))
        sent.clear()
    return [results[k] for k in range(len(messages))]

  def _ensure(self) -> None:
    """Starts a manager where there is none."""
    if self._process is not None:
      return
    self._socket, theirs = socket.socketpair()
    with theirs:
      self._process = start_python("manager", theirs.fileno(), "random")
    self._reader = FrameReader(wire.MAX_MESSAGE)
    with contextlib.suppress(EOFError):  # receiving will tell
      self._send(self._config)

  def _send(self, message: dict) -> None:
    try:
      self._socket.sendall(pack_json(message))
    except ConnectionError:
      raise EOFError("the sandbox manager died") from None

  def _receive(self) -> list[list]:
    """Waits for messages; returns the results among them.

    Raises:
      EOFError: the manager is dead, or what it sends makes no sense.
      RuntimeError: it cannot work on this machine.
    """
    try:
      data = self._socket.recv(_CHUNK)
    except ConnectionError:
      data = b""
    if not data:
      raise EOFError("the sandbox manager died")
    results = []
    for message in self._messages(data):
      if isinstance(message, list):
        results.append(message)
      elif "isolation" in message:
        self.isolation = message["isolation"]
      else:
        raise RuntimeError(f"sandbox: {message['fatal']}")
    return results

  def _messages(self, data: bytes) -> list:
    try:
      return list(map(json.loads, self._reader.feed(data)))
    except ValueError as error:
      raise EOFError(f"the sandbox manager: {error}") from None


def _written_out(row: list, message: dict) -> list:
  """A result; its calls share the program's verdict where it names none."""
  if row[3] is None:
    row[3] = [row[2]] * len(message.get("calls", ()))
  return row


def _may_send(
  job: int, sent: set[int], deaths: collections.Counter[int]
) -> bool:
  """A job that was there when a manager died runs alone, to tell the guilty."""
  if job in deaths or any(other in deaths for other in sent):
    return not sent
  return len(sent) < _WINDOW


def _infrastructure(message: dict, detail: str) -> list:
  row = [Status.INFRASTRUCTURE.value, None, detail]
  return [None, 0.0, row, [row] * len(message.get("calls", ())), []]
