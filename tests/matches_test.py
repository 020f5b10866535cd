"""Policies of runs against and beside each other."""

import json

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
