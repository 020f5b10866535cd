"""Runs every run of a config file's `sweep(add)`; again: what is not done yet.

  python -m experiments.sweep --config=configs/sweep_tiny.py \
    --workdir=runs/sweep [--parallel=2] [--max_failures=3] [--config.FIELD=...]
  python -m experiments.sweep --config=... --workdir=... --list
  python -m experiments.sweep --config=... --workdir=... --shell

Each run is a process of experiments.train in a directory of its own, its output
beside it; one that was stopped goes on where it was. --shell prints a command a
run instead, for a cluster's scheduler. At the end, and with --list, there are a
table (sweep.md) and a picture (sweep.svg) of what is done.
"""

import importlib.util
import pathlib
import shlex
import sys

from absl import app, flags
from ml_collections import config_flags

from codea1_jax import checks, sweep, sweep_results
from experiments import command_line

_CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the sweep.")
_PARALLEL = flags.DEFINE_integer(
  "parallel", 1, "Runs at a time.", lower_bound=1
)
_FAILURES = flags.DEFINE_integer("max_failures", 0, "Then stop; 0: never.")
_LIST = flags.DEFINE_bool("list", False, "Only say what there is.")
_SHELL = flags.DEFINE_bool("shell", False, "Only print the commands.")


def _load(filename: str, workdir: pathlib.Path) -> list[sweep.SweepRun]:
  """The runs of the file, every value checked."""
  path = filename.split(":")[0]
  spec = importlib.util.spec_from_file_location("sweep_config", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  if not hasattr(module, "sweep"):
    raise ValueError(f"{path} has no function sweep(add)")
  changes: list[sweep.Changes] = []
  module.sweep(lambda one: changes.append(dict(one)))
  runs = []
  for name, one in zip(sweep.name_runs(changes), changes):
    config = _CONFIG.value.copy_and_resolve_references()
    try:
      config.update_from_flattened_dict(one)
      checks.check_values(config)
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(f"{path}: run {name}: {error}") from error
    runs.append(sweep.SweepRun(name, one, workdir / name, config.num_steps))
  return runs


def _command(run: sweep.SweepRun) -> list[str]:
  """The same config and overrides, then what is special about the run."""
  given = [a for a in sys.argv[1:] if a.startswith(("--config=", "--config."))]
  changed = [f"--config.{name}={value}" for name, value in run.changes.items()]
  train = [sys.executable, "-m", "experiments.train"]
  return [*train, *given, *changed, f"--workdir={run.workdir}"]


def _results(runs, failed, workdir: pathlib.Path) -> None:
  for run in runs:
    print(f"{run.name}: {run.state(failed)}")
  if rows := sweep_results.collect(runs):
    table = sweep_results.markdown(rows)
    (workdir / "sweep.md").write_text(table + "\n")
    sweep_results.draw(rows, workdir / "sweep.svg")
    print(f"{table}\nwrote {workdir}/sweep.md and sweep.svg")


def main(_):
  workdir = pathlib.Path(_WORKDIR.value)
  path = workdir / "failed.json"
  try:
    runs = _load(
      config_flags.get_config_filename(flags.FLAGS["config"]), workdir
    )
    if _SHELL.value:
      print("\n".join(shlex.join(_command(run)) for run in runs))
      return
    failed = sweep.read_failures(path)
    if not _LIST.value:
      failed = sweep.run_all(
        runs, _command, workdir / "logs", _PARALLEL.value, _FAILURES.value
      )
      sweep.write_failures(path, failed)
    _results(runs, failed, workdir)
  except (ValueError, OSError) as error:
    command_line.fail(error)
  sys.exit(0 if _LIST.value or all(run.done for run in runs) else 1)


if __name__ == "__main__":
  flags.mark_flags_as_required(["config", "workdir"])
  app.run(main, flags_parser=command_line.parse)
