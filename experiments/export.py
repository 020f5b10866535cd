"""Exports a run's Mistake Book and validated tests as a problem file.

  python -m experiments.export --workdir=runs/tiny --out=build/tests.jsonl
  python -m experiments.train --config=configs/tiny.py --workdir=runs/exported \
    --config.method=golden_tests --config.train_problems=build/tests.jsonl

The problems are the run's training problems that have such tests; their golden
tests are replaced.
"""

import json
import pathlib

from absl import app, flags

from codea1_jax import checkpoint, dumps, export, inputs, problems
from experiments import command_line

_WORKDIR = flags.DEFINE_string("workdir", None, "The run.", required=True)
_OUT = flags.DEFINE_string("out", None, "The file to write.", required=True)
_MOST = flags.DEFINE_integer("most", 32, "Tests a problem.", lower_bound=1)


def main(_):
  workdir, out = pathlib.Path(_WORKDIR.value), pathlib.Path(_OUT.value)
  try:
    config = json.loads((workdir / "config.json").read_text())
    known = problems.load_problems(
      inputs.resolve(config["train_problems"], ".jsonl")
    )
    book = checkpoint.read_book(workdir)
    dump = workdir / dumps.FILE
    written = export.validated_tests(dump) if dump.exists() else {}
    exported = export.with_tests(known, book, written, _MOST.value)
    if not exported:
      raise ValueError(f"{workdir} has no test of any of its problems")
    out.parent.mkdir(parents=True, exist_ok=True)
    problems.save_problems(out, exported)
  except (OSError, ValueError, KeyError) as error:
    command_line.fail(error)
  tests = sum(len(problem.golden_tests) for problem in exported)
  print(f"wrote {out}: {len(exported)} problems, {tests} tests")


if __name__ == "__main__":
  app.run(main, flags_parser=command_line.parse)
