"""The manager: keeps the zygotes busy and hands the judge what they report.

Started by the trainer with subprocess; one thread, no jax. It runs no code of
any program and never forks. It lives as long as the trainer holds its socket.
"""

import collections
import contextlib
import functools
import json
import os
import select
import signal
import socket
import time
import warnings

from codea1_jax.sandbox import kernel, wire
from codea1_jax.sandbox.check import CheckState
from codea1_jax.sandbox.judge import JobState, row
from codea1_jax.sandbox.limits import Limits
from codea1_jax.sandbox.wire import FrameReader, pack_json
from codea1_jax.sandbox.worker import PIPE_BYTES, Run, Worker, Zygote
from codea1_jax.sandbox.zygote import OVERDUE, End
from codea1_jax.types import Status, Verdict

_MAX_START_FAILURES = 4  # in a row, before the machine is blamed
_CROWD = 30  # share of a CPU below which a machine is too busy to judge: 1/30
_TICK = 1.0  # seconds between looks at deadlines and at the trainer
# Seconds between looks at what children wrote. To wake up for each claim would
# cost more than to judge it; most children end before the first look.
_LOOK = 0.005
_STALL = 2.0  # of one turn, beyond its poll: then we were not running either
_TURN_CPU_S = 60.0  # of one turn: more is a claim or a test that stalls us
_CHUNK = 1 << 18


def main(socket_fd: int, trainer_pid: int) -> None:
  """Serves one trainer until it hangs up or dies."""
  warnings.simplefilter("ignore")  # "invalid escape sequence" in a test
  kernel.hide_memory()
  if kernel.IS_LINUX:
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
  manager = Manager(socket.socket(fileno=socket_fd), trainer_pid)
  try:
    manager.serve()
  finally:
    manager.close()


class Manager:
  """All state of the manager process; `serve` is its loop."""

  def __init__(self, connection: socket.socket, trainer_pid: int):
    connection.setblocking(False)
    self._connection = connection
    self._trainer_pid = trainer_pid
    self._reader = FrameReader(wire.MAX_MESSAGE)
    self._outgoing = bytearray()
    self._queue: collections.deque[JobState] = collections.deque()
    self._workers: list[Worker] = []
    self._start_failures = 0
    self._poll = select.poll()
    self._poll.register(connection, select.POLLIN)
    # What to do when a descriptor is readable; every handler takes no argument.
    self._handlers = {connection.fileno(): self._on_trainer}
    self._trainer_gone = False
    self._last_look = 0.0
    self._last_turn = time.monotonic()

  def serve(self) -> None:
    """Loops over events until the trainer is gone.

    A turn that takes too much CPU time kills the manager, by the signal's
    default action: the trainer then finds out which job it was.
    """
    while not self._trainer_gone:
      running = any(worker.runs for worker in self._workers)
      timeout = _LOOK if running else _TICK
      events = self._poll.poll(1000 * timeout)
      signal.setitimer(signal.ITIMER_PROF, _TURN_CPU_S)
      if not events and not running:
        _reap_orphans()  # some die later than their zygote
      for fd, _ in events:
        handler = self._handlers.get(fd)
        if handler is not None:  # not closed by an earlier event
          handler()
      self._look_at_children()
      if os.getppid() != self._trainer_pid:
        return
      self._enforce_deadlines(timeout)
      self._dispatch()

  def close(self) -> None:
    """Ends every zygote and waits for it."""
    for worker in self._workers:
      for zygote in worker.zygotes.values():
        zygote.close()

  def _listen(self, fd: int, handler) -> None:
    self._handlers[fd] = handler
    self._poll.register(fd, select.POLLIN)

  def _ignore(self, fd: int) -> None:
    if self._handlers.pop(fd, None):
      self._poll.unregister(fd)

  # The trainer's side.

  def _on_trainer(self) -> None:
    """Reads messages; also called when the socket can take more of ours."""
    with contextlib.suppress(BlockingIOError):
      try:
        data = self._connection.recv(_CHUNK)
      except ConnectionError:
        data = b""
      if not data:
        self._trainer_gone = True
        return
      for frame in self._reader.feed(data):
        self._on_message(json.loads(frame))
    self._flush()

  def _on_message(self, message: dict) -> None:
    if "limits" in message:
      self._limits = Limits(**message["limits"])
      self._zygote_arguments = message["numpy_path"], message["without"]
      self._workers = [Worker(self._limits) for _ in range(message["workers"])]
      for worker in self._workers:
        self._start(worker, 0)
      return
    state = CheckState if "test" in message else JobState
    job = state(message, self._limits)
    if job.done:
      self._send_result(job)
    else:
      self._queue.append(job)

  def _send(self, message) -> None:
    self._outgoing += pack_json(message)
    self._flush()

  def _send_result(self, job: JobState | CheckState) -> None:
    """Sends a job's result: one beyond the bound is lost, and no other."""
    frame = pack_json(job.result())
    if len(frame) > wire.MAX_MESSAGE + 4:
      verdict = Verdict(
        Status.INFRASTRUCTURE, detail="result too large to send"
      )
      frame = pack_json([job.id, job.cpu_s, row(verdict), None, []])
    self._outgoing += frame
    self._flush()

  def _flush(self) -> None:
    """Writes what the socket takes, and asks to be told when it takes more."""
    try:
      while self._outgoing:
        sent = self._connection.send(memoryview(self._outgoing)[:_CHUNK])
        del self._outgoing[:sent]
    except BlockingIOError:
      pass
    except ConnectionError:
      self._trainer_gone = True
    writing = select.POLLOUT if self._outgoing else 0
    self._poll.modify(self._connection, select.POLLIN | writing)

  # The zygotes' side.

  def _dispatch(self) -> None:
    """Gives each free worker a job."""
    for worker in self._workers:
      if not self._queue:
        return
      if worker.job is None:
        worker.job = self._queue.popleft()
        self._begin(worker)

  def _begin(self, worker: Worker) -> None:
    """Starts the worker's job, or the zygotes that it needs first."""
    seeds = [part.hash_seed for part in worker.job.parts]
    for seed in seeds:
      if seed not in worker.zygotes:
        self._start(worker, seed)
    if all(worker.zygotes[seed].ready for seed in seeds):
      worker.begin()
      for run in worker.runs.values():
        self._extend(run)

  def _start(self, worker: Worker, hash_seed: int) -> None:
    zygote = Zygote(hash_seed, *self._zygote_arguments)
    worker.zygotes[hash_seed] = zygote
    self._listen(
      zygote.socket.fileno(), lambda: self._on_zygote(worker, hash_seed)
    )

  def _look_at_children(self) -> None:
    """Reads what children wrote since the last look, if that is long ago."""
    now = time.monotonic()
    if now - self._last_look < _LOOK:
      return
    self._last_look = now
    for worker in self._workers:
      for run in worker.runs.values():
        self._read_claims(run)

  def _read_claims(self, run: Run) -> int:
    """Reads claims once; returns their bytes.

    A child that filled its pipe waits: from then on it is read at once.
    """
    if run.pipe < 0:
      return 0
    before = run.num_claims
    size = run.read_pipe()
    if run.num_claims > before:  # bytes alone are no progress
      self._extend(run)
    if size < 0:
      self._hang_up(run)
    elif size == PIPE_BYTES and run.pipe not in self._handlers:
      self._listen(run.pipe, functools.partial(self._read_claims, run))
    return max(size, 0)

  def _hang_up(self, run: Run) -> None:
    self._ignore(run.pipe)
    run.close_pipe()

  def _on_zygote(self, worker: Worker, hash_seed: int) -> None:
    zygote = worker.zygotes[hash_seed]
    was_ready = zygote.ready
    try:
      end = zygote.receive()
    except EOFError:
      self._bury(worker, hash_seed)
      return
    if zygote.ready and not was_ready:
      self._start_failures = 0
      self._send({"isolation": zygote.isolation})
      if worker.job is not None and not worker.runs:
        self._begin(worker)
    elif end is not None:
      self._finish(worker, hash_seed, end)

  def _finish(self, worker: Worker, hash_seed: int, end: End) -> None:
    """After a child's end: what is left in its pipe, then the judgement."""
    run = worker.runs.pop(hash_seed)
    while self._read_claims(run):
      pass
    self._hang_up(run)
    run.part.on_end(end)
    self._after(worker)

  def _after(self, worker: Worker) -> None:
    """Sends a finished job off, or starts its next child."""
    if worker.runs:  # the other child of a check
      return
    if worker.job.done:
      self._send_result(worker.job)
      worker.job = None
    else:
      self._begin(worker)

  def _bury(
    self, worker: Worker, hash_seed: int, overdue: bool = False
  ) -> None:
    """A zygote died: one that never started is started again, and the job of
    one that ran tries again, unless its own child is overdue; an idle one is
    replaced when it is needed.
    """
    zygote = worker.zygotes.pop(hash_seed)
    self._ignore(zygote.socket.fileno())
    zygote.close()
    _reap_orphans()
    self._start_failures += not zygote.ready
    if self._start_failures >= _MAX_START_FAILURES:
      self._give_up()
    elif not zygote.ready:
      time.sleep(0.05 * self._start_failures)
      self._start(worker, hash_seed)
    elif hash_seed in worker.runs:
      run = worker.runs.pop(hash_seed)
      self._hang_up(run)
      if overdue:
        run.part.on_end(End(OVERDUE))
      else:
        run.part.on_worker_death("its worker died")
      self._after(worker)

  def _give_up(self) -> None:
    """No zygote starts: tells the trainer, who ends us or runs out."""
    self._send({"fatal": "no sandbox worker starts on this machine"})

  def _extend(self, run: Run) -> None:
    """A child must show progress before this; the zygote acts first."""
    longest = run.part.longest_cpu_s
    patience = _CROWD * longest + 1.25 * self._limits.wall_factor * longest
    run.deadline = time.monotonic() + patience + 10.0

  def _enforce_deadlines(self, timeout: float) -> None:
    """Ends whoever is overdue, after a turn that polled for `timeout`.

    While this process was stopped or judged at length it read no claims.
    """
    now = time.monotonic()
    stall = now - self._last_turn - timeout
    self._last_turn = now
    if stall > _STALL:
      self._extend_all(stall)
    for worker in self._workers:
      for hash_seed, run in list(worker.runs.items()):
        if now > run.deadline:
          self._bury(worker, hash_seed, overdue=True)
      for hash_seed, zygote in list(worker.zygotes.items()):
        if not zygote.ready and now > zygote.start_deadline:
          self._bury(worker, hash_seed)

  def _extend_all(self, seconds: float) -> None:
    for worker in self._workers:
      for run in worker.runs.values():
        run.deadline += seconds
      for zygote in worker.zygotes.values():
        zygote.start_deadline += seconds


def _reap_orphans() -> None:
  """Collects what a dead zygote left to us as its subreaper.

  Maybe the zygote itself too, whose Popen then finds that it is gone.
  """
  with contextlib.suppress(ChildProcessError):
    while os.waitpid(-1, os.WNOHANG)[0]:
      pass
