"""Policies of runs against and beside each other."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest
from small_runs import small_config

from codea1_jax import assembly, devices, matches, problems, subjects
from codea1_jax.checkpointing import Checkpoints
from codea1_jax.sandbox import SandboxPool
from codea1_jax.tiny import DATA

SETTINGS = matches.Settings(codes=2, suites=2, tests=4, max_new_tokens=96)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A run with two checkpoints: the shipped pair, and one whose parameters are
  all zero, which writes nothing that runs."""
  workdir = tmp_path_factory.mktemp("run") / "pair"
  load = problems.load_problems
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(problems, "load_problems", lambda path: load(path)[:4])
    with (
      assembly.open_run(small_config(), workdir) as opened,
      Checkpoints(workdir, 2) as saved,
    ):
      state = opened.initial_state()
      saved.save(state, opened.parallel)
      nothing = {
        role: getattr(state, role).replace(
          params=jax.tree.map(lambda x: x * 0, getattr(state, role).params)
        )
        for role in ("code", "test")
      }
      saved.save(state.replace(step=1, **nothing), opened.parallel)
  return str(workdir)


@pytest.fixture(scope="module", autouse=True)
def one_device():
  make = devices.make_parallel
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      devices,
      "make_parallel",
      lambda kind="pmap", *_, **mesh: make(kind, jax.devices()[:1], **mesh),
    )
    yield


@pytest.fixture(scope="module")
def chosen():
  return problems.load_problems(DATA / "heldout.jsonl")[:8]


@pytest.fixture(scope="module")
def pool():
  with SandboxPool() as made:
    yield made


def test_a_run_stands_for_its_checkpoints(run):
  assert matches.saved(run) == [f"{run}:0", f"{run}:1"]
  assert matches.saved(f"{run}:1") == [f"{run}:1"]
  assert matches.saved("shipped:code_llm") == ["shipped:code_llm"]


def test_cross_play(run, chosen, pool):
  names = matches.saved(run)
  found = matches.cross_play(names, names, chosen, SETTINGS, pool)
  json.dumps(found)
  assert found["code"] == found["test"] == names
  real, nothing = found["golden_pass_rate"]
  assert real >= 0.25 and nothing == 0
  (by_real, by_nothing), of_nothing = found["kill_rate"]
  assert by_nothing == 0 and 0 <= by_real < 1
  assert of_nothing == [None, None]
  assert found["validity"][0][0] > 0.1 > found["validity"][0][1] == 0
  table = matches.cross_play_table(found)
  assert "| pair:1 | 0.0 | - | - |" in table


def test_collaboration(run, chosen, pool):
  scores = matches.collaborate(f"{run}:0", f"{run}:0", chosen, SETTINGS, pool)
  assert list(scores) == ["pass@1", "chosen", "pass@2"]
  assert scores["pass@1"].value <= scores["pass@2"].value
  assert scores["chosen"].value <= scores["pass@2"].value
  assert scores["pass@2"].count == len(chosen)


def test_a_checkpoint_is_the_policy_of_its_step(run):
  shipped = subjects.open_subject("shipped:test_llm")
  first, second = (
    subjects.open_subject(f"{run}:{step}", "test") for step in (0, 1)
  )
  assert first.name == "pair:0:test"
  for ours, theirs in zip(
    jax.tree.leaves(first.params), jax.tree.leaves(shipped.params), strict=True
  ):
    assert (ours == theirs).all()
  assert not any(leaf.any() for leaf in jax.tree.leaves(second.params))
  assert first.setting("prompts.preset", "paper") == "compact"
  assert shipped.setting("prompts.preset", "paper") == "paper"


def test_bad_names_are_one_line(run, tmp_path):
  with pytest.raises(OSError, match="which has 0, 1"):
    subjects.open_subject(f"{run}:7")
  (tmp_path / "checkpoints" / "3").mkdir(parents=True)
  with pytest.raises((ValueError, OSError), match=r"config\.json"):
    subjects.open_subject(str(tmp_path))


@pytest.fixture
def few(run, tmp_path):
  """The held-out problems that the run names: four of them."""
  path = tmp_path / "few.jsonl"
  chosen = problems.load_problems(DATA / "heldout.jsonl")[:4]
  problems.save_problems(path, chosen)
  config = pathlib.Path(run) / "config.json"
  text = config.read_text()
  changed = json.loads(text) | {"heldout_problems": str(path)}
  config.write_text(json.dumps(changed))
  yield path
  config.write_text(text)


def test_a_run_plays_on_its_own_heldout_problems(run, few, tmp_path):
  """Without an --out nothing is written; with one, what is printed."""
  names = [f"{run}:0"], [f"{run}:1"]
  before = sorted(pathlib.Path(run).iterdir())
  told = matches.play("collaboration", *names, "", 0, "", SETTINGS)
  assert [line.split(":")[0] for line in told.split("\n")] == [
    "pass@1",
    "chosen",
    "pass@2",
  ]
  assert sorted(pathlib.Path(run).iterdir()) == before
  out = tmp_path / "out"
  again = matches.play("collaboration", *names, "", 0, str(out), SETTINGS)
  assert again == f"{told}\nwrote {out / 'collaboration.json'}"
  found = json.loads((out / "collaboration.json").read_text())
  assert found["pass@2"]["count"] == 4
  assert f"pass@2: {found['pass@2']['value']:.2f} [" in told


def test_a_run_against_itself_is_cross_play_of_its_checkpoints(run):
  told = matches.play(
    "cross_play", [run], [run], str(DATA / "heldout.jsonl"), 8, "", SETTINGS
  )
  path = pathlib.Path(run) / "cross_play.json"
  assert told.endswith(f"wrote {path}")
  assert json.loads(path.read_text())["code"] == [f"{run}:0", f"{run}:1"]
  path.unlink()


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("collaboration", [], ["a"], ""), "--code or --test is missing"),
    (("cross_play", ["a"], [], ""), "--code or --test is missing"),
    (("collaboration", ["a", "b"], ["a"], ""), "one --code and one --test"),
    (("cross_play", ["a"], ["b"], "none.jsonl"), "none.jsonl"),
  ],
)
def test_wrong_matches_are_one_line_before_anything_is_loaded(
  arguments, message, monkeypatch
):
  monkeypatch.setattr(subjects, "open_subject", None)
  with pytest.raises((ValueError, OSError), match=message):
    matches.play(*arguments, 0, "", SETTINGS)


def _typed(program, *arguments):
  """The command as a user types it, on the first CPU device."""
  return subprocess.run(
    [sys.executable, "-m", f"experiments.{program}", *arguments],
    cwd=pathlib.Path(__file__).parents[1],
    env=os.environ | {"XLA_FLAGS": ""},
    capture_output=True,
    text=True,
    timeout=240,
  )


@pytest.mark.slow
def test_the_commands(run, few):
  """Both programs play the same match, evaluate's with its own defaults."""
  names = f"--code={run}:0", f"--test={run}:1", "--suite=collaboration"
  more = "--samples=2", "--suites=2", "--tests=4", "--max_new_tokens=96"
  done = [
    _typed("matches", *names, *more),
    _typed("evaluate", *names, *more, "--temperature=1", "--top_p=1"),
  ]
  assert [one.returncode for one in done] == [0, 0], done[0].stderr
  assert done[0].stdout == done[1].stdout
  assert done[0].stdout.startswith("pass@1: ")


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (["--code=none:1", "--suite=cross_play"], "--code or --test is missing"),
    (["--model=x", "--suite=mbppplus"], "--data or --out is missing"),
  ],
)
def test_what_is_missing_on_a_command_line_is_said(flags, message):
  done = _typed("evaluate", *flags)
  assert done.returncode == 2
  assert done.stderr.count("\n") == 1 and message in done.stderr
