"""Sweeps: which runs, what becomes of each, and what is made of them."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from process_tree import below, running, wait_until

from codea1_jax import sweep, sweep_results

ROOT = pathlib.Path(__file__).parents[1]

# Stands in for a training: four steps, a line each, then an evaluation. `do`
# says what else becomes of the run at its third step, the first time.
_TRAIN = """
import json, os, pathlib, signal, sys, time
workdir, do = pathlib.Path(sys.argv[1]), sys.argv[2]
workdir.mkdir(parents=True, exist_ok=True)
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
path, first = workdir / "metrics.jsonl", not (workdir / "tried").exists()
(workdir / "tried").touch()
done = len(path.read_text().splitlines()) if path.exists() else 0
for step in range(done, 4):
  if step == 2 and first and do == "fail":
    sys.exit("ValueError: no such field")
  if step == 2 and first and do == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
  if step == 2 and do == "wait":
    while not asked:
      time.sleep(0.01)
  if asked:
    sys.exit(0)
  with open(path, "a") as file:
    file.write(json.dumps({"step": step}) + "\\n")
score = {"step": 4, "eval/test/kill_rate": float(sys.argv[3])}
lines = [score | {"step": 0, "eval/test/kill_rate": 0.25}, score]
text = "".join(json.dumps(line) + "\\n" for line in lines)
(workdir / "eval.jsonl").write_text(text)
"""


def make_runs(tmp_path, count=4):
  changes = [{"a": n} for n in range(count)]
  return [
    sweep.SweepRun(name, one, tmp_path / name, 4)
    for name, one in zip(sweep.name_runs(changes), changes)
  ]


def command_of(**does):
  """name -> what becomes of it; of a name that is not given, nothing."""

  def command(run):
    do = does.get(run.name.replace("=", ""), "")
    score = str(0.5 + run.changes["a"] / 10)
    return [sys.executable, "-c", _TRAIN, str(run.workdir), do, score]

  return command


def test_which_runs():
  assert sweep.grid({"x": (1, 2), "y": ("a", "b")}) == [
    {"x": 1, "y": "a"},
    {"x": 1, "y": "b"},
    {"x": 2, "y": "a"},
    {"x": 2, "y": "b"},
  ]
  assert sweep.zipped({"x": (1, 2), "y": (3, 4)}) == [
    {"x": 1, "y": 3},
    {"x": 2, "y": 4},
  ]
  with pytest.raises(ValueError):
    sweep.zipped({"x": (1, 2), "y": (3,)})
  fields = {
    "lr": sweep.log_uniform(1e-5, 1e-2),
    "k": sweep.choice((1, 2, 4)),
  }
  found = sweep.drawn(200, fields, seed=3)
  assert found == sweep.drawn(200, fields, seed=3) != sweep.drawn(200, fields)
  rates = np.array([one["lr"] for one in found])
  assert rates.min() >= 1e-5 and rates.max() <= 1e-2
  assert 0.35 < (rates < 10**-3.5).mean() < 0.65
  assert {one["k"] for one in found} == {1, 2, 4}
  seeds = sweep.with_seeds([{"x": 1}, {"x": 2}], 2)
  assert [(s["x"], s["seed"]) for s in seeds] == [
    (1, 0), (1, 1), (2, 0), (2, 1)]  # fmt: skip


def test_names_say_what_is_special_and_are_safe():
  fields = ("code.optimizer.learning_rate", "test.optimizer.learning_rate")
  names = sweep.name_runs([
    {fields[0]: 1e-4, fields[1]: 3e-4, "code.model": "hub:a/b c", "seed": 0},
    {fields[0]: 1e-4, fields[1]: 3e-4, "code.model": "x" * 300, "seed": 0},
    {},
  ])  # fmt: skip
  assert names[0] == (
    "code.optimizer.learning_rate=0.0001,test.optimizer.learning_rate=0.0003"
    ",model=hub_a_b_c,seed=0"
  )
  assert len(names[1]) < 140 and names[2] == "default"
  with pytest.raises(ValueError, match="two runs a=1"):
    sweep.name_runs([{"a": 1}, {"a": 1}])
  with pytest.raises(ValueError, match="no runs"):
    sweep.name_runs([])


def test_one_that_fails_leaves_the_others_alone(tmp_path, capfd):
  runs = make_runs(tmp_path)
  command = command_of(a1="fail", a2="killed")
  failed = sweep.run_all(runs, command, tmp_path / "logs", parallel=2)
  assert failed == {"a=1": 1, "a=2": -signal.SIGKILL}
  assert [run.state(failed) for run in runs] == [
    "done",
    "failed (1) at step 2 of 4",
    "failed (-9) at step 2 of 4",
    "done",
  ]
  said = capfd.readouterr().err
  assert "a=1: failed (1), see" in said and "ValueError: no such field" in said
  # The same call again: they go on, what is done is not run again.
  begun = runs[0].workdir / "tried"
  before = begun.stat().st_mtime_ns
  assert sweep.run_all(runs, command, tmp_path / "logs") == {}
  assert all(run.done for run in runs) and begun.stat().st_mtime_ns == before
  assert "a=2: begins at step 2 of 4" in capfd.readouterr().err


def test_after_so_many_failures_none_begins(tmp_path):
  runs = make_runs(tmp_path)
  command = command_of(a0="fail", a1="fail")
  failed = sweep.run_all(runs, command, tmp_path / "logs", max_failures=1)
  assert list(failed) == ["a=0"]
  assert [run.steps_done for run in runs] == [2, 0, 0, 0]


_SWEEP = """
import sys
sys.path[:0] = [{tests!r}]
import pathlib, sweep_test
from codea1_jax import sweep
path = pathlib.Path({path!r})
command = sweep_test.command_of(a0="wait", a1="wait")
runs = sweep_test.make_runs(path)
print(sweep.run_all(runs, command, path / "logs", parallel=2))
"""


def _start(tmp_path):
  script = _SWEEP.format(tests=str(ROOT / "tests"), path=str(tmp_path))
  process = subprocess.Popen(
    [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
  )
  waiting = [tmp_path / f"a={n}" / "metrics.jsonl" for n in (0, 1)]
  assert wait_until(
    lambda: all(p.exists() and p.read_text().count("\n") == 2 for p in waiting),
    60,
  )
  return process


def test_a_signal_is_passed_on_and_nothing_stays(tmp_path):
  process = _start(tmp_path)
  family = below(process.pid)
  process.send_signal(signal.SIGTERM)
  output, _ = process.communicate(timeout=30)
  assert output.strip() == "{}"  # they stopped as asked
  assert not running(family)
  assert [run.steps_done for run in make_runs(tmp_path)] == [2, 2, 0, 0]


def test_what_a_killed_sweep_leaves_is_not_run_twice(tmp_path, capfd):
  process = _start(tmp_path)
  family = below(process.pid)
  process.kill()
  process.communicate()
  try:
    runs = make_runs(tmp_path, 2)
    assert sweep.run_all(runs, command_of(), tmp_path / "logs") == {}
    assert capfd.readouterr().err.count("another process is running it") == 2
    assert [run.steps_done for run in runs] == [2, 2]
  finally:
    for pid in running(family):
      os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not running(family), 10)
  sweep.run_all(runs, command_of(), tmp_path / "logs")
  assert all(run.done for run in runs)


def _results(tmp_path):
  changes = sweep.with_seeds(
    sweep.grid({"lr": (1e-4, 1e-2), "rewards.alpha": (0.5, 1.0)}), 2
  )
  runs = [
    sweep.SweepRun(name, one, tmp_path / name, 4)
    for name, one in zip(sweep.name_runs(changes), changes)
  ]
  for place, run in enumerate(runs[:-1]):  # the last one is not done
    run.workdir.mkdir()
    key = "eval/test/kill_rate"
    lines = [{"step": 0, key: 0.2}, {"step": 4, key: 0.4 + place / 100}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run.workdir / "eval.jsonl").write_text(text)
  return runs


def test_table_of_means_and_spread(tmp_path):
  rows = sweep_results.collect(_results(tmp_path))
  lines = sweep_results.markdown(rows).splitlines()
  assert lines[0] == (
    "| lr | rewards.alpha | seeds | Test: kill rate (fixed faulty programs) |"
  )
  assert lines[2] == "| 0.0001 | 0.5 | 2 | 20.0 -> 40.5 ± 0.5 |"
  assert lines[-1] == "| 0.01 | 1.0 | 1 | 20.0 -> 46.0 ± 0.0 |"
  assert len(lines) == 6


def test_the_picture_has_a_line_a_setting(tmp_path):
  pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
  rows = sweep_results.collect(_results(tmp_path))
  lines = sweep_results._lines(
    rows, "eval/test/kill_rate", "lr", ["rewards.alpha"]
  )
  values, means, low, high = lines["alpha 0.5"]
  assert values.tolist() == [1e-4, 1e-2]
  np.testing.assert_allclose(means, [40.5, 44.5])
  np.testing.assert_allclose(low, [40, 44])
  np.testing.assert_allclose(high, [41, 45])
  sweep_results.draw(rows, tmp_path / "sweep.svg")
  picture = (tmp_path / "sweep.svg").read_text()
  assert picture.count("<svg") == 1 and len(picture) > 5_000


def _program(tmp_path, *arguments, config="configs/sweep_tiny.py"):
  return subprocess.run(
    [sys.executable, "-m", "experiments.sweep", f"--config={config}",
     f"--workdir={tmp_path / 'my sweep'}", *arguments],
    cwd=ROOT, capture_output=True, text=True, timeout=120,
  )  # fmt: skip


def test_commands_for_a_scheduler(tmp_path):
  done = _program(tmp_path, "--shell", "--config.num_steps=9")
  lines = done.stdout.splitlines()
  assert done.returncode == 0 and len(lines) == 12
  words = shlex.split(lines[-1])
  name = "learning_rate=0.001,alpha=0.5,seed=1"
  assert words[1:3] == ["-m", "experiments.train"]
  assert words[3:5] == ["--config=configs/sweep_tiny.py",
                        "--config.num_steps=9"]  # fmt: skip
  assert words[-1] == f"--workdir={tmp_path / 'my sweep' / name}"
  assert "--config.rewards.alpha=0.5" in words
  assert not (tmp_path / "my sweep").exists()


@pytest.mark.parametrize(
  "text, message",
  [
    ("add({'rewards.alfa': 1.0})", "run alfa=1.0"),
    ("add({'rewards.alpha': 'x'})", "run alpha=x"),
    ("add({'rewards.alpha': 7.0})", "rewards.alpha"),
    ("add({'seed': 1}); add({'seed': 1})", "two runs seed=1"),
    (None, "has no function sweep"),
  ],
)
def test_mistakes_are_one_line_before_anything_runs(tmp_path, text, message):
  path = tmp_path / "mine.py"
  body = f"\ndef sweep(add):\n  {text}\n" if text else ""
  path.write_text(f"from configs.tiny import get_config\n{body}")
  done = _program(tmp_path, config=path)
  assert done.returncode == 2 and message in done.stderr
  assert done.stderr.count("\n") == 1, done.stderr
  assert not (tmp_path / "my sweep").exists()


def test_what_there_is(tmp_path):
  run = tmp_path / "my sweep" / "learning_rate=0.0001,alpha=0.2,seed=0"
  run.mkdir(parents=True)
  (run / "metrics.jsonl").write_text('{"step": 0}\n')
  (tmp_path / "my sweep" / "failed.json").write_text(json.dumps({run.name: 2}))
  started = time.monotonic()
  done = _program(tmp_path, "--list")
  print(f"{time.monotonic() - started:.1f} s")
  lines = done.stdout.splitlines()
  assert lines[0] == f"{run.name}: failed (2) at step 1 of 12"
  assert lines[1].endswith("seed=1: not begun") and len(lines) == 12
