"""EvalPlus rows for tests: which there are, and whether a completion passes."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import pytest

from codea1_jax import evalplus, parsing
from codea1_jax.sandbox import CheckJob, SandboxPool

PARQUET = (
  pathlib.Path(__file__).parents[2] / "shared/data/evalplus_rows.parquet"
)

# One program and its test in one process, as without a sandbox.
_UNPROTECTED = """
import json, resource, sys
sent = json.load(sys.stdin)
solution, test = {"__name__": "solution"}, {"__name__": "test"}
exec(sent["program"], solution)
exec(sent["test"], test)
check, name = test["check"], sent["entry_point"]
test.setdefault(name, solution[name])
check(solution[name])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


def load(source: str = "", count: int | None = None) -> list[dict]:
  """The first rows, of "humanevalplus" or "mbppplus" or both; else skips."""
  parquet = pytest.importorskip("pyarrow.parquet", reason="rows need pyarrow")
  if not PARQUET.is_file():
    pytest.skip(f"{PARQUET} is not there")
  rows = parquet.read_table(PARQUET).to_pylist()
  return [row for row in rows if source in row["data_source"]][:count]


def passes(
  pool: SandboxPool, rows: Sequence[dict], completions: Sequence[str]
) -> list[bool]:
  """Whether the code in each completion passes its row's whole test."""
  programs = {}
  for number, (row, text) in enumerate(zip(rows, completions, strict=True)):
    code = parsing.extract_code(text, evalplus.entry_point(row))
    if not code.error:
      program = f"{row['extra_info']['imports']}\n{code.source}"
      programs[number] = evalplus.strict_job(row, program)
  results = dict(zip(programs, pool.check(list(programs.values()))))
  return [
    number in results and results[number].verdict.passed
    for number in range(len(rows))
  ]


def cpu_seconds(job: CheckJob) -> float:
  """What a right program and its test take in one process of their own."""
  sent = {
    "program": job.program,
    "test": job.test,
    "entry_point": job.entry_point,
  }
  done = subprocess.run(
    [sys.executable, "-I", "-c", _UNPROTECTED],
    input=json.dumps(sent).encode(),
    capture_output=True,
    env={"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1"},
    check=True,
  )
  return float(done.stdout.split()[-1])
