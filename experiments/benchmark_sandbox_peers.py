"""The other ways to run a program's asserts, in a bare process of their own.

  PYTHON benchmark_sandbox_peers.py NAME

The first line on standard input holds the programs, each of
benchmark_sandbox_programs.py as a dict; each other line asks for one turn. The
answer is a line of JSON: which programs passed. The process imports nothing
that the way itself does not need, so that forks of it cost as little as can be.
"""

import ast
import importlib
import json
import multiprocessing
import os
import subprocess
import sys


def _text(program):
  return "\n".join([program["source"], *program["asserts"]])


def floor(program):
  """fork, run, exit, wait: nothing is kept from the program."""
  pid = os.fork()
  if pid == 0:
    try:
      exec(_text(program), {})
      os._exit(0)
    finally:
      os._exit(1)
  return os.waitpid(pid, 0)[1] == 0


def _python(text):
  return subprocess.run([sys.executable, "-c", text]).returncode == 0


def python_per_program(program):
  return _python(_text(program))


def python_per_assert(program):
  source, asserts = program["source"], program["asserts"]
  return all([_python(f"{source}\n{text}") for text in asserts])


def _run(text):
  exec(text, {})


def _multiprocessing(method, program):
  context = multiprocessing.get_context(method)
  process = context.Process(target=_run, args=(_text(program),))
  process.start()
  process.join()
  return process.exitcode == 0


def multiprocessing_fork(program):
  return _multiprocessing("fork", program)


def multiprocessing_spawn(program):
  return _multiprocessing("spawn", program)


def evalplus(program):
  from evalplus.eval import PASS, untrusted_check

  count = len(program["expected"])
  status, _ = untrusted_check(
    "humaneval",
    program["source"],
    program["inputs"],
    program["entry_point"],
    program["values"],
    atol=0,
    ref_time=[0.1] * count,
  )
  return status == PASS


PEERS = {
  "fork, no protection": floor,
  "multiprocessing fork": multiprocessing_fork,
  "multiprocessing spawn": multiprocessing_spawn,
  "evalplus untrusted_check": evalplus,
  "python -c per program": python_per_program,
  "python -c per assert": python_per_assert,
}


def _prepare(program):
  """Adds the parsed arguments and values: evalplus takes them as they are."""
  calls = [ast.parse(call, mode="eval").body for call in program["calls"]]
  return program | {
    "inputs": [[ast.literal_eval(arg) for arg in call.args] for call in calls],
    "values": list(map(ast.literal_eval, program["expected"])),
  }


def main():
  answers = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)  # what libraries print is no answer
  run = PEERS[sys.argv[1]]
  programs = [_prepare(program) for program in json.loads(input())]
  if run is evalplus:
    importlib.import_module("evalplus.eval")  # before the clock runs
  print("ready", file=answers, flush=True)
  for _ in sys.stdin:
    print(json.dumps(list(map(run, programs))), file=answers, flush=True)


if __name__ == "__main__":
  main()
