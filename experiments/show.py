"""Prints a run's dumped rollouts: its steps, one step, one question.

  python -m experiments.show --workdir=runs/tiny
  python -m experiments.show --workdir=runs/tiny --step=10
  python -m experiments.show --workdir=runs/tiny --step=10 --question=3 \
    [--code=2] | less -R

A question is named by its id or by its place in the step, from 0; one code is
shown with its prompts and whole texts. In colour on a terminal, unless NO_COLOR
is set; COLUMNS sets the width elsewhere.
"""

import pathlib
import signal
import sys

from absl import app, flags

from codea1_jax import dumps, show, terminal
from experiments import command_line

_WORKDIR = flags.DEFINE_string("workdir", None, "The run.", required=True)
_STEP = flags.DEFINE_integer("step", None, "The step to show.", lower_bound=0)
_QUESTION = flags.DEFINE_string("question", None, "Its question to show.")
_CODE = flags.DEFINE_integer("code", None, "The only code of it to show.")


def main(arguments: list[str]) -> None:
  if len(arguments) > 1:
    raise app.UsageError(f"unexpected arguments: {arguments[1:]}")
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it in silence
  sys.stdout.reconfigure(errors="backslashreplace")
  try:
    for line in show.show(
      pathlib.Path(_WORKDIR.value, dumps.FILE),
      terminal.of(sys.stdout),
      _STEP.value,
      _QUESTION.value,
      _CODE.value,
    ):
      print(line)
  except (OSError, ValueError) as error:
    command_line.fail(error)


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
