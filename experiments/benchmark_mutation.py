"""Our mutants and verdicts beside those of cosmic-ray's own `exec`.

  python -m experiments.benchmark_mutation --data=ULT.jsonl --functions=20

Each function of UnLeakedTestBench is tested by those of its own asserts that it
passes; those that use `random` are left out, as no two verdicts on them need be
equal. cosmic-ray writes every mutant to disk and starts a process for it, with
its local distributor, one after the other, and gives it 10 s as the published
evaluation does. Ours is strict, which gives less, and runs on all cores, or on
--workers of them. That a mutant runs out of time kills it in both.

Python takes a cached bytecode file for that of a source of the same second and
size, as most mutants are: cosmic-ray's processes must not write one.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from codea1_jax import mutation
from experiments import command_line

_DATA = flags.DEFINE_string("data", None, "Functions, a JSON array.")
_FUNCTIONS = flags.DEFINE_integer("functions", 20, "How many.", lower_bound=1)
_MOST = flags.DEFINE_integer("most_mutants", 200, "Larger ones are left out.")
_WORKERS = flags.DEFINE_integer("workers", 0, "Of ours; 0: the cores.")
_CONFIG = """
[cosmic-ray]
module-path = "mutated.py"
timeout = {seconds}
excluded-modules = []
test-command = "{python} -B tests.py"
[cosmic-ray.distributor]
name = "local"
"""


def passing(rows):
  """(program, tests) of rows whose function passes some of its asserts."""
  rows = [row for row in rows if "random" not in row["code"]]
  pairs = [(row["code"], t) for row in rows for t in row["test_list"]]
  passed = iter(mutation.passes(pairs))
  for row in rows:
    tests = [t for t in row["test_list"] if next(passed)]
    if tests:
      yield row["code"], "\n".join(tests) + "\n"


def theirs(program: str, tests: str, folder: pathlib.Path):
  """{(operator, occurrence): killed} and the seconds of cosmic-ray's exec."""
  (folder / "mutated.py").write_text(program)
  # All names, also those that `import *` leaves out.
  whole = f"import mutated\nglobals().update(vars(mutated))\n{tests}"
  (folder / "tests.py").write_text(whole)
  (folder / "config.toml").write_text(
    _CONFIG.format(seconds=mutation.REFERENCE_S, python=sys.executable)
  )
  cosmic = [sys.executable, "-m", "cosmic_ray.cli"]

  def call(*arguments):
    done = subprocess.run(
      [*cosmic, *arguments], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
      raise ValueError(f"cosmic-ray {arguments[0]}: {done.stderr[-500:]}")
    return done.stdout

  call("init", "config.toml", "work.sqlite")
  started = time.perf_counter()
  call("exec", "config.toml", "work.sqlite")
  seconds = time.perf_counter() - started
  found = {}
  for line in call("dump", "work.sqlite").splitlines():
    item, result = json.loads(line)
    (change,) = item["mutations"]
    if result["worker_outcome"] == "no-test":
      continue
    place = change["operator_name"], change["occurrence"]
    found[place] = result["test_outcome"] != "survived"
  return found, seconds


def main(_):
  try:
    rows = json.loads(pathlib.Path(_DATA.value).read_text())
    pairs = []
    for program, tests in passing(rows):
      if len(mutation.make_mutants(program)) <= _MOST.value:
        pairs.append((program, tests))
      if len(pairs) == _FUNCTIONS.value:
        break
    started = time.perf_counter()
    results = mutation.run_mutants(pairs, workers=_WORKERS.value or None)
    ours_s = time.perf_counter() - started
    theirs_s, total, wrong = 0.0, 0, []
    for (program, tests), result in zip(pairs, results):
      with tempfile.TemporaryDirectory() as folder:
        found, seconds = theirs(program, tests, pathlib.Path(folder))
      theirs_s += seconds
      ours = {
        (m.operator, m.occurrence): killed
        for m, killed in zip(result.mutants, result.killed)
      }
      total += len(ours)
      wrong += [k for k in ours.keys() | found if ours.get(k) != found.get(k)]
  except (ValueError, OSError) as error:
    command_line.fail(error)
  print(f"{len(pairs)} functions, {total} mutants, {len(wrong)} disagreements")
  for place in wrong[:20]:
    print(f"  {place}")
  print(
    f"ours {ours_s:.1f} s with mutants made, cosmic-ray exec {theirs_s:.1f} s:"
    f" {theirs_s / ours_s:.1f} x"
  )


if __name__ == "__main__":
  flags.mark_flags_as_required(["data"])
  app.run(main, flags_parser=command_line.parse)
