"""Checks a file of a published dataset, and makes a problem file of it.

  python -m experiments.data --check=ROWS.jsonl \
    --against=ROWS.parquet,ULT.jsonl --clean --out=build/problems.jsonl
  python -m experiments.train --config.train_problems=build/problems.jsonl ...

Formats, known by their fields: Code-A1's, KodCode, AceCode-87K, TACO and APPS,
LiveCodeBench, UnLeakedTestBench and our own; JSON lines, a JSON array or
parquet (which needs pyarrow). Prints every row that is dropped and why, what is
left out of others, which problems are repeated, and which are in a file of
--against: by their words, their function's name or much of their wording.
"""

from absl import app, flags
from tqdm import tqdm

from codea1_jax.datasets import making, overlap, survey
from codea1_jax.datasets.recognizing import read_drafts
from experiments import command_line

_CHECK = flags.DEFINE_string("check", None, "The file.", required=True)
_AGAINST = flags.DEFINE_list("against", [], "Files of evaluation sets.")
_OUT = flags.DEFINE_string("out", "", "Problem file to write.")
_CLEAN = flags.DEFINE_bool(
  "clean", False, "Leave repeated and leaked problems out of --out."
)
_FORMAT = flags.DEFINE_string("format", "", "Where the fields do not say it.")
_TESTS = flags.DEFINE_integer("tests", 32, "The most a problem.", lower_bound=1)
_WORKERS = flags.DEFINE_integer("workers", None, "None: one a CPU.")


def main(_):
  try:
    drafts = (d for path in _AGAINST.value for d in read_drafts(path)[1])
    evaluation = overlap.Evaluation(drafts)
    with (
      making.open_sandboxes(_WORKERS.value) as sandboxes,
      survey.writer(_OUT.value) as write,
    ):
      report = survey.survey(
        _CHECK.value,
        _FORMAT.value,
        sandboxes,
        _TESTS.value,
        write,
        evaluation,
        _CLEAN.value,
        lambda rows, total: tqdm(rows, total=total, unit="row", disable=None),
      )
  except (OSError, ValueError, RuntimeError) as error:
    command_line.fail(error)
  print("\n".join(survey.lines(report)))
  if _OUT.value:
    print(f"wrote {_OUT.value}: {report.written} problems")


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
