"""Writes a run's report, one HTML file that opens offline in any browser.

python -m experiments.report --workdir=runs/tiny [--out=report.html]
python -m experiments.report runs/a runs/b --out=compare.html
"""

import pathlib

from absl import app, flags

from codea1_jax import report
from experiments import command_line

_WORKDIR = flags.DEFINE_string(
  "workdir", None, "The run's folder, with metrics.jsonl in it."
)
_OUT = flags.DEFINE_string(
  "out", None, "The file to write; of one run WORKDIR/report.html by default."
)


def main(argv: list[str]) -> None:
  workdirs = [*([_WORKDIR.value] if _WORKDIR.value else []), *argv[1:]]
  try:
    if len(workdirs) == 1:
      page = report.render_report(workdirs[0])
    else:
      page = report.render_comparison(workdirs)
    if len(workdirs) > 1 and not _OUT.value:
      raise ValueError("--out is missing: where to write the comparison")
    out = pathlib.Path(_OUT.value or pathlib.Path(workdirs[0], "report.html"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
  except (ValueError, OSError) as error:
    command_line.fail(error)
  print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
