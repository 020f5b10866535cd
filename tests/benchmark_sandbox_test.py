"""The real driver with real contenders on a few programs; no test of a time."""

import ast
import importlib.util
import pathlib
import subprocess
import sys

import pytest

from codea1_jax.sandbox import SandboxPool
from experiments import benchmark_sandbox as benchmark
from experiments import benchmark_sandbox_contenders as contenders
from experiments import benchmark_sandbox_programs as programs

pytestmark = pytest.mark.skipif(
  not pathlib.Path("/proc/self/stat").exists(), reason="needs Linux's /proc"
)

_EVALPLUS = sys.executable if importlib.util.find_spec("evalplus") else None


@pytest.fixture(scope="module")
def measured():
  """One round of two programs, and what was said."""
  said = []
  return benchmark.run(1, 2, _EVALPLUS, say=said.append), said


def test_every_contender_has_its_turn_at_every_size(measured):
  (turns, scaling), said = measured
  names = set(contenders.CONTENDERS)
  if _EVALPLUS is None:
    names -= {"evalplus untrusted_check"}
    assert said[0] == "evalplus untrusted_check skipped: no --evalplus_python"
  assert turns[0].keys() == {1, 8, 64}
  for costs in turns[0].values():
    assert costs.keys() == names
    assert all(cost.cpu_s >= 0 and cost.wall_s > 0 for cost in costs.values())
  assert [cost.programs for cost in scaling[0]] == [4, 4]


def test_the_table_and_the_targets_count_what_was_measured(measured):
  turns, scaling = measured[0]
  lines = benchmark.summarize(turns)
  cost = turns[0][8]["python -c per program"]
  cell = lines["python -c per program"][8]
  assert cell["wall_ms"] == pytest.approx(1e3 * cost.wall_s / cost.programs)
  ours = turns[0][8]["ours"]
  assert cell["x_wall"] == pytest.approx(
    cost.wall_s / cost.programs / (ours.wall_s / ours.programs)
  )
  rows = benchmark.table(lines).splitlines()
  assert len(rows) == 2 + len(lines)
  assert len({row.count("|") for row in rows}) == 1
  found = list(benchmark.verdicts(lines, scaling))
  assert len(found) == 5
  assert all(type(met) is bool for *_, met in found)


def test_a_step_and_two_epochs_of_ground_truths_run(monkeypatch):
  ran, run = [], SandboxPool._run
  monkeypatch.setattr(
    SandboxPool,
    "_run",
    lambda pool, jobs, *rest: ran.append(len(jobs)) or run(pool, jobs, *rest),
  )
  costs = benchmark.step(16, num_calls=3)
  assert [cost.programs for cost in costs.values()] == [16, 2, 2]
  # Others to warm up, the step, two ground truths twice, and nothing more.
  assert ran[1:] == [9, 9, 16, 2, 2, 0, 0]


@pytest.mark.parametrize("num_calls", [1, 8, 64])
def test_programs_have_as_many_distinct_calls_and_right_answers(num_calls):
  for program in programs.make_programs(20, num_calls, seed=3):
    assert len(set(program.calls)) == num_calls
    namespace = {}
    exec(program.source, namespace)
    for text in program.asserts:
      exec(text, namespace)


def test_a_step_has_right_and_faulty_codes_on_calls_of_their_own():
  step, truths = programs.make_step(4, 8, 16, seed=0)
  assert len(step) == 32 and len(truths) == 4
  for k, truth in enumerate(truths):
    codes = step[8 * k : 8 * k + 8]
    assert [code.source == truth.source for code in codes] == [True, False] * 4
    assert len({code.calls for code in codes}) == 8


def test_cpu_of_living_and_of_ended_descendants_counts():
  code = (
    "import subprocess, sys, time\n"
    "spin = 't = time.process_time()\\nwhile time.process_time() - t < .2: 0'\n"
    "subprocess.run([sys.executable, '-c', 'import time\\n' + spin])\n"
    "exec(spin)\n"
    "print('done', flush=True)\n"
    "sys.stdin.read()\n"
  )
  before = contenders.tree_cpu_s()
  with subprocess.Popen(
    [sys.executable, "-c", code],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as process:
    assert process.stdout.readline() == "done\n"
    alive = contenders.tree_cpu_s() - before
    process.stdin.close()
  assert alive >= 0.36  # twice 0.2, in clock ticks
  assert contenders.tree_cpu_s() - before >= 0.4


def test_a_contender_that_fails_is_named():
  (program,) = programs.make_programs(1, 1, seed=0)
  call = ast.parse(program.calls[0]).body[0].value
  wrong = programs.Program(
    f"def {call.func.id}(*_): return object()",
    program.entry_point,
    program.calls,
    program.expected,
  )
  for name in ("ours", "python -c per program", "multiprocessing fork"):
    with pytest.raises(contenders.ContenderError, match="1 right programs"):
      contenders.measure(name, [wrong], None)
  with pytest.raises(contenders.ContenderError, match="ended with code"):
    contenders.measure_peer("no such peer", [program], sys.executable)
