"""EvalPlus rows for tests: their questions, and whether a program passes.

Programs run in a plain subprocess with limits, in a namespace apart from the
test's. That is enough for a small model's greedy answers, no sandbox.
"""

import ast
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from codea1_jax import parsing

PARQUET = (
  pathlib.Path(__file__).parents[2] / "shared/data/evalplus_rows.parquet"
)
CPU_SECONDS = 20
MEMORY_BYTES = 4 << 30

_CHILD = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
sent = json.load(sys.stdin)
sys.stdin.close()
solution, test = {{"__name__": "solution"}}, {{"__name__": "test"}}
exec(sent["program"], solution)
exec(sent["test"], test)
test["check"](solution[sent["entry_point"]])
"""


def load(source: str, count: int) -> list[dict]:
  """The first rows of "humanevalplus" or "mbppplus"; skips without the file."""
  parquet = pytest.importorskip("pyarrow.parquet", reason="rows need pyarrow")
  if not PARQUET.is_file():
    pytest.skip(f"{PARQUET} is not there")
  rows = parquet.read_table(PARQUET).to_pylist()
  return [row for row in rows if row["data_source"] == source][:count]


def entry_point(row: dict) -> str:
  """The function that is asked for: in MBPP what `check` calls with *inp, for
  extra_info is sometimes wrong; HumanEval's `check` calls its parameter."""
  name = row["extra_info"]["function_name"]
  if row["data_source"] == "humanevalplus":
    return name
  calls = (
    node
    for node in ast.walk(ast.parse(row["test"]))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
  )
  for call in calls:
    if "*inp" in map(ast.unparse, call.args):
      return call.func.id
  return name


def passes(row: dict, completion: str) -> bool:
  """Whether the code in a completion passes the row's whole test."""
  name = entry_point(row)
  code = parsing.extract_code(completion, name)
  if code.error:
    return False
  return runs(row, f"{row['extra_info']['imports']}\n{code.source}")


def runs(row: dict, program: str) -> bool:
  """Whether a program passes; its own exit before the test's end is none."""
  sent = {
    "program": program,
    "test": row["test"],
    "entry_point": entry_point(row),
  }
  with tempfile.TemporaryDirectory() as directory:
    try:
      done = subprocess.run(
        [sys.executable, "-I", "-c", _CHILD + "print('\\nPASSED')"],
        input=json.dumps(sent).encode(),
        capture_output=True,
        cwd=directory,
        env={"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1"},
        timeout=4 * CPU_SECONDS,
      )
    except subprocess.TimeoutExpired:
      return False
  return done.returncode == 0 and done.stdout.endswith(b"\nPASSED\n")


def ground_truth(row: dict) -> str:
  """The row's own solution as a program."""
  before = row["problem"] if row["data_source"] == "humanevalplus" else ""
  return before + row["GT_code"]
