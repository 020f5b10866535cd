"""Pins the levels of ARCHITECTURE: files import lower levels only."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "codea1_jax"

LEVELS = {
  "types": 0,
  "problems": 0,
  "prompts": 0,
  "parsing": 0,
  "anonymize": 0,
  "quality": 0,
  "curriculum": 0,
  "book_update": 0,
  "mistake_book": 0,
  "rewards": 0,
  "journal": 1,
  "subjects": 4,
  "code_evaluation": 3,
  "sweep": 1,
  "sweep_results": 3,
  "code_suites": 4,
  "ult": 4,
  "matches": 4,
  "scores": 0,
  "mutation": 2,
  "sandbox": 0,
  "evalplus": 0,
  "sanitizing": 0,
  "bigcodebench": 0,
  "bigcodebench_export": 4,
  "datasets": 0,
  "models": 1,
  "drawing": 1,
  "sampling": 1,
  "log_probs": 1,
  "aggregation": 1,
  "grpo": 1,
  "devices": 1,
  "hosts": 1,
  "optimizer": 1,
  "train_state": 1,
  "tiny": 1,
  "verification": 1,
  "counting": 1,
  "losses": 2,
  "update": 2,
  "generation": 2,
  "rollout": 2,
  "adapters": 3,
  "packing": 2,
  "checkpoint": 2,
  "checkpointing": 2,
  "jsonl": 0,
  "dumps": 0,
  "dump_records": 3,
  "show": 1,
  "terminal": 0,
  "metrics": 2,
  "evaluation": 2,
  "supervision": 2,
  "collaboration": 1,
  "judging": 2,
  "replay": 3,
  "reference": 3,
  "export": 3,
  "heldout": 3,
  "policy_export": 4,
  "player": 3,
  "report_charts": 3,
  "report_compare": 3,
  "report": 3,
  "sft": 3,
  "starting": 3,
  "checks": 3,
  "assembly": 3,
  "inputs": 3,
  "writing": 3,
  "run_log": 3,
  "usage": 3,
  "guards": 3,
  "boards": 3,
  "profiling": 1,
  "groups": 3,
  "game": 3,
  "trainer": 4,
  "flops": 2,
  "memory": 2,
  "catalog": 2,
  "programs": 4,
  "planner": 4,
}
# Of its own level a file imports only what stands here.
SAME_LEVEL = {
  ("dumps", "jsonl"),
  ("dump_records", "player"),
  ("game", "dump_records"),
  ("parsing", "types"),
  ("problems", "parsing"),
  ("problems", "types"),
  ("prompts", "anonymize"),
  ("prompts", "types"),
  ("anonymize", "parsing"),
  ("quality", "parsing"),
  ("quality", "types"),
  ("curriculum", "problems"),
  ("curriculum", "types"),
  ("book_update", "types"),
  ("book_update", "rewards"),
  ("mistake_book", "book_update"),
  ("mistake_book", "types"),
  ("sandbox", "types"),
  ("evalplus", "sandbox"),
  ("sanitizing", "parsing"),
  ("bigcodebench", "datasets"),
  ("bigcodebench", "sanitizing"),
  ("datasets", "anonymize"),
  ("datasets", "evalplus"),
  ("datasets", "parsing"),
  ("datasets", "problems"),
  ("datasets", "sandbox"),
  ("datasets", "types"),
  ("sampling", "models"),
  ("devices", "models"),
  ("log_probs", "models"),
  ("grpo", "aggregation"),
  ("grpo", "log_probs"),
  ("counting", "verification"),
  ("update", "losses"),
  ("sampling", "drawing"),
  ("rollout", "generation"),
  ("supervision", "evaluation"),
  ("packing", "rollout"),
  ("report", "report_charts"),
  ("report", "report_compare"),
  ("report_compare", "report_charts"),
  ("inputs", "checks"),
  ("writing", "assembly"),
  ("writing", "player"),
  ("game", "writing"),
  ("heldout", "writing"),
  ("assembly", "inputs"),
  ("assembly", "adapters"),
  ("assembly", "checks"),
  ("assembly", "player"),
  ("assembly", "reference"),
  ("checks", "reference"),
  ("player", "reference"),
  ("game", "assembly"),
  ("game", "player"),
  ("game", "groups"),
  ("groups", "player"),
  ("game", "run_log"),
  ("game", "usage"),
  ("usage", "assembly"),
  ("run_log", "boards"),
  ("run_log", "guards"),
  ("assembly", "boards"),
  ("checks", "guards"),
  ("heldout", "assembly"),
  ("heldout", "game"),
  ("run_log", "assembly"),
  ("code_suites", "subjects"),
  ("bigcodebench_export", "code_suites"),
  ("ult", "subjects"),
  ("matches", "subjects"),
  ("checkpointing", "checkpoint"),
  ("starting", "assembly"),
  ("starting", "checks"),
  ("run_log", "player"),
  ("run_log", "report"),
  ("memory", "flops"),
  ("planner", "programs"),
}
JAX_FREE = [name for name, level in LEVELS.items() if level == 0] + [
  "datasets.survey",
  "ult.counts",
  "tiny.corpus",
  "verification",
  "counting",
  "show",
]


def _imports(path: pathlib.Path):
  """Modules that a file imports for real: annotations' imports are none."""
  tree = ast.parse(path.read_text())
  for node in ast.walk(tree):
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
      node.body = []
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module
      yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(module: str) -> str | None:
  parts = module.split(".")
  known = len(parts) > 1 and parts[0] == "codea1_jax" and parts[1] in LEVELS
  return parts[1] if known else None


def _files():
  return [p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py"]


def test_every_file_has_a_level():
  rooms = {
    p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in _files()
  }
  assert rooms == set(LEVELS)


@pytest.mark.parametrize("path", _files(), ids=lambda p: p.stem)
def test_imports_lower_levels_only(path):
  room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
  for module in _imports(path):
    assert module.split(".")[0] not in ("configs", "experiments"), module
    other = _room(module)
    if other and other != room:
      lower = LEVELS[other] < LEVELS[room]
      assert lower or (room, other) in SAME_LEVEL, f"{room} imports {module}"


@pytest.mark.parametrize("module", JAX_FREE)
def test_needs_no_jax(module):
  check = f"import codea1_jax.{module}, sys; sys.exit('jax' in sys.modules)"
  done = subprocess.run([sys.executable, "-c", check], cwd=ROOT)
  assert done.returncode == 0


def test_one_file_knows_devices():
  forbidden = {
    "devices", "local_devices", "pmap", "psum", "pmean", "Mesh", "device_put",
    "shard_map",
  }  # fmt: skip
  for path in _files():
    if path.stem == "devices":
      continue
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Attribute):
        module, names = ast.unparse(node.value), {node.attr}
      elif isinstance(node, ast.ImportFrom):
        module, names = node.module, {alias.name for alias in node.names}
      else:
        continue
      if module.split(".")[0] in ("jax", "lax"):
        assert not names & forbidden, (path, names & forbidden)
