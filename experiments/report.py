"""Writes a run's report, one HTML file that opens offline in any browser.

python -m experiments.report --workdir=runs/tiny [--out=report.html]
"""

import pathlib

from absl import app, flags

from codea1_jax import report
from experiments import command_line

_WORKDIR = flags.DEFINE_string(
  "workdir", None, "The run's folder, with metrics.jsonl in it.", required=True
)
_OUT = flags.DEFINE_string(
  "out", None, "The file to write; WORKDIR/report.html where not given."
)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments: {argv[1:]}")
  out = pathlib.Path(_OUT.value or pathlib.Path(_WORKDIR.value, "report.html"))
  try:
    page = report.render_report(_WORKDIR.value)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
  except (ValueError, OSError) as error:
    command_line.fail(error)
  print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
