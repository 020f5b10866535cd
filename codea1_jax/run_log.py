"""What a run leaves behind for people: metrics, rollouts, progress, a table."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tqdm

from codea1_jax import boards, dumps, guards, jsonl, metrics, report
from codea1_jax.assembly import InputError, Run


class RunLog:
  """Writes a run's files; on resume drops what will be done once more."""

  def __init__(self, run: Run, step: int):
    self._run = run
    try:
      self._rollouts = dumps.DumpWriter(
        run.workdir / dumps.FILE, writes=run.hosts.writes
      )
      self._rollouts.truncate_after(step - 1)
    except ValueError as error:
      raise InputError(f"{error}; without that file the run goes on") from error
    self._metrics, self._evaluations = (
      jsonl.JsonlWriter(run.workdir / name, writes=run.hosts.writes)
      for name in ("metrics.jsonl", "eval.jsonl")
    )
    # A step's line carries the number of the step; an evaluation's the number
    # of steps done before it.
    self._metrics.truncate_after(step - 1)
    self._evaluations.truncate_after(step or -1)
    self._boards = self._open_boards(step)
    before = run.hosts.writes and self._rows(self._metrics)
    self._guards = guards.Guards(run.config.guards, run.hosts.first(before))
    self.breach = ""  # why a guard stops the run
    self._bar = None

  def _open_boards(self, step: int) -> boards.Boards:
    """On the host that writes; evaluations of `step` are not done again."""
    if not self._run.hosts.writes:
      return boards.Boards()
    kept = [r for r in self._rows(self._evaluations) if r["step"] == step]
    try:
      return boards.open_boards(self._run.config, self._run.workdir, step, kept)
    except ValueError as error:
      raise InputError(str(error)) from error

  def _rows(self, file: jsonl.JsonlWriter) -> list[dict]:
    return jsonl.read_jsonl(file.path) if file.path.exists() else []

  def progress(self, start: int, end: int) -> Iterable[int]:
    """Step numbers, behind a progress bar."""
    self._bar = tqdm.tqdm(
      range(start, end),
      initial=start,
      total=end,
      desc=self._run.config.method,
      file=sys.stderr,
      disable=not self._run.hosts.writes,
    )
    return self._bar

  def step(
    self, step: int, values: Mapping[str, float], rollouts: Sequence[dict]
  ) -> None:
    """Writes one step; then warns of a breach, or has it in `breach`, and
    refuses to go on with numbers that are none.

    Args:
      step: its number.
      values: its metrics.
      rollouts: its records, none where it is not dumped.
    """
    self._metrics.write(step, values)
    self._boards.write(step, values)
    self._rollouts.write(step, rollouts)
    self._bar.set_postfix_str(metrics.progress_line(values), refresh=False)
    broken = metrics.non_finite(values)
    if broken:
      self._boards.close()
      raise FloatingPointError(
        f"step {step}: {', '.join(broken)} not finite{_of_whom(broken)}; the"
        f" metrics are in {self._metrics.path}"
      )
    self._heed(self._guards.check(step, values))

  def _heed(self, breaches: Sequence[str]) -> None:
    """Says aloud what guards warn of, or keeps why the run must stop."""
    if self._run.config.guards.action == "stop":
      self.breach = "; ".join(breaches)
      return
    for line in breaches if self._run.hosts.writes else ():
      tqdm.tqdm.write(f"warning: {line}", file=sys.stderr)

  def evaluation_is_due(self, step: int) -> bool:
    """Whether a start at `step` owes an evaluation that a stop prevented."""
    rows = self._rows(self._evaluations)
    every = self._run.config.evaluation.every
    due = step % every == 0 or step == self._run.config.num_steps
    owed = due and step not in [row["step"] for row in rows]
    return self._run.hosts.first(owed)

  def evaluation(self, values: Mapping[str, float]) -> None:
    self._evaluations.write(values["step"], values)
    self._boards.write(values["step"], values, complete=False)
    numbers = ", ".join(
      f"{metrics.eval_name(k)} {v:.3f}"
      for k, v in values.items()
      if metrics.is_fraction(k)
    )
    if self._run.hosts.writes:
      tqdm.tqdm.write(f"step {values['step']}: {numbers}", file=sys.stderr)

  def finish(self, step: int) -> dict[str, float]:
    """Prints before -> after, writes the report, says how to go on.

    Raises:
      guards.Breach: a guard has stopped the run.
    """
    self._boards.close()
    self._run.hosts.gather(None)  # all lines are written
    evaluations = jsonl.read_jsonl(self._evaluations.path)
    if self._run.hosts.writes:
      self._say_end(step, evaluations)
    if self.breach:
      raise guards.Breach(self.breach)
    return evaluations[-1]

  def _say_end(self, step: int, evaluations: Sequence[dict]) -> None:
    workdir = self._run.workdir
    print(metrics.comparison_table(evaluations[0], evaluations[-1]))
    if step:
      page = workdir / "report.html"
      page.write_text(report.render_report(workdir), encoding="utf-8")
      print(f"report: {page}")
    if step < self._run.config.num_steps:
      print(
        f"stopped and saved at step {step}: the same command goes on from there"
      )


def _of_whom(names: Sequence[str]) -> str:
  """The policies whose metrics these are, in words."""
  known = (("code", "Code LLM"), ("test", "Test LLM"))
  found = [
    policy
    for role, policy in known
    if any(name.startswith(f"{role}/") for name in names)
  ]
  return f" ({' and '.join(found)})" if found else ""


class Leave(KeyboardInterrupt):
  """Raised by a signal where leaving at once loses nothing."""


class Stop:
  """SIGINT and SIGTERM ask for an end; a second one ends now.

  A machine that is taken away gives seconds, and a step may take minutes: in
  `leaving_at_once` the first signal raises Leave, but for what comes after
  `finishing`. Elsewhere, and with several hosts, who must leave together, the
  loop looks at `asked` after the step.

  Args:
    alone: whether this host is the only one.
  """

  def __init__(self, alone: bool = True):
    self.asked = False
    self._alone, self._open = alone, False
    self._previous: dict[int, Any] = {}

  @contextlib.contextmanager
  def leaving_at_once(self) -> Iterator[None]:
    self._open = self._alone
    try:
      if self._open and self.asked:
        raise Leave
      yield
    finally:
      self._open = False

  def finishing(self) -> None:
    """From here on something changes that must change as a whole."""
    self._open = False

  def __enter__(self) -> "Stop":
    for number in (signal.SIGINT, signal.SIGTERM):
      self._previous[number] = signal.signal(number, self._ask)
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def _ask(self, number, frame) -> None:
    if self.asked:
      raise KeyboardInterrupt
    self.asked = True
    # print() may be what the signal interrupted: it must not run twice.
    if not self._open:
      os.write(2, b"\nsaving after this step ...\n")
      return
    os.write(2, b"\nsaving ...\n")
    raise Leave
