"""A workdir as training leaves it, for the tests of what reads one."""

import json
import math
import pathlib

import numpy as np

from codea1_jax import dumps, jsonl

HOSTILE = (
  '</script><script>document.title="owned"</script><img src=x>{{charts}}'
)
_CONFIG = {
  "method": "code_a1",
  "seed": 0,
  "num_steps": 60,
  "reward": {"preset": "corrected", "alpha": 0.5},
  "code": {"model": "tiny", "learning_rate": 3e-4},
  "note": HOSTILE,
}


def _training_row(step: int, rng: np.random.Generator) -> dict:
  up = 1 - math.exp(-step / 25)
  values = {
    "code/pass_rate": 0.3 + 0.4 * up,
    "test/validity": 0.4 + 0.5 * up,
    "test/attack_rate": 0.5 - 0.2 * up,
    "book/size": 150 * up,
    "book/questions": 40 * up,
    "sandbox/exec_per_s": 900,
    "time/rollout_s": 2,
    "time/sandbox_s": 0.7,
    "time/update_s": 1.1,
    "verdicts/pass": 300 + 200 * up,
    "verdicts/fail": 200 - 100 * up,
    "verdicts/error": 60 - 50 * up,
    "verdicts/timeout": 5,
    "verdicts/invalid": 80 - 60 * up,
  }
  for policy in ("code", "test"):
    values |= {
      f"{policy}/reward/mean": 0.25 + 0.4 * up,
      f"{policy}/loss": rng.normal(0, 0.03),
      f"{policy}/grad_norm": 1.1,
      f"{policy}/kl": 0.01 * step / 60,
      f"{policy}/entropy": 0.8 - 0.3 * up,
      f"{policy}/clip_fraction": 0.02,
    }
  noisy = {k: v * (1 + rng.normal(0, 0.05)) for k, v in values.items()}
  return noisy | {"time/step_s": 4.0}


def _evaluation_row(step: int) -> dict:
  up = 1 - math.exp(-step / 25)
  return {
    "eval/code/greedy_pass_rate": 0.25 + 0.4 * up,
    "eval/code/sampled_pass_rate": 0.22 + 0.35 * up,
    "eval/test/validity": 0.4 + 0.5 * up,
    "eval/test/kill_rate": 0.3 + 0.3 * up,
    "eval/test/attack_rate": 0.5 - 0.2 * up,
    "eval/num_problems": 64,
  }


def _suite(index: int) -> dict:
  tests = [
    ("f([])", "0", "0", "pass", "pass", "0"),
    ("f([1, 2])", "3", "3", "pass", "fail", "4"),
    ("f([True])", "1", "True", "pass", "error", "TypeError: no numbers"),
    ("f([-1, 4])", "2", "3", "pass", "pass", "3"),
    ("f(None)", "0", None, "error", None, None),
    ("f([9] * 9)", "81", "81", "pass", "timeout", "CPU time above the limit"),
  ]
  keys = ("call", "predicted", "oracle", "oracle_status", "verdict", "returned")
  return _completion(f"```python\nassert f([]) == 0\n```\nsuite {index}") | {
    "reward": 0.41,
    "validity": 0.75,
    "num_invalid": 2,
    "tests": [
      dict(zip(keys, x)) | {"correct": x[1] == x[2], "rejected": ""}
      for x in tests
    ],
  }


def _prompt(text: str) -> dict:
  return {"text": text, "tokens": [1, *range(5, 9)]}


def _completion(text: str) -> dict:
  return {"text": text, "tokens": list(range(70, 99)), "finished": True}


def rollout_row(problem: int, marker: str = "", suites: int = 2) -> dict:
  """A record as dump_records.describe makes them."""
  source = f"def f(xs):\n  # {marker}\n  return sum(xs)"
  code = _completion(f"Here it is:\n```python\n{source}\n```") | {
    "source": source,
    "error": "",
    "load": "pass",
    "load_detail": "",
    "reward": 0.5,
    "replayed_verdicts": ["pass", "fail"],
    "replayed_returned": ["1", "5"],
    "selected": True,
    "suite_prompt": _prompt(f"Break it: {source}"),
    "suites": [_suite(i) for i in range(suites)],
  }
  broken = code | {"source": "", "error": "no function f", "load": "invalid"}
  broken |= {
    "reward": 0.0,
    "selected": False,
    "finished": False,
    "replayed_verdicts": ["invalid"] * 2,
    "replayed_returned": ["no function f"] * 2,
  }
  masked = code | {"load": "infrastructure", "reward": None, "suites": []}
  masked["selected"] = False
  question = f"Add the numbers of a list, variant {problem}. " * 3
  return {
    "seed": [0, 1],
    "num_tests": 6,
    "prompt": _prompt(f"Solve it: {question}"),
    "problem": {
      "id": f"sum-{problem}",
      "question": question,
      "signature": "def f(xs):",
      "entry_point": "f",
      "ground_truth": "def f(xs):\n  return sum(xs)",
    },
    "replayed": ["assert f([1]) == 1", "assert f([2, 2]) == 4"],
    "codes": [code, broken, masked],
  }


def write_run(workdir: pathlib.Path, steps: int = 60) -> pathlib.Path:
  """A workdir as training leaves it, with a hostile program in it."""
  rng = np.random.default_rng(0)
  training = jsonl.JsonlWriter(workdir / "metrics.jsonl")
  evaluation = jsonl.JsonlWriter(workdir / "eval.jsonl")
  rollouts = dumps.DumpWriter(workdir / dumps.FILE)
  for step in range(steps + 1):
    if step:
      training.write(step, _training_row(step, rng))
    if step % 10 == 0:
      evaluation.write(step, _evaluation_row(step))
    if step % 20 == 1:
      marks = (f"seen at {step}", f"seen at {step}", HOSTILE)
      rollouts.write(step, [rollout_row(p, m) for p, m in enumerate(marks)])
  (workdir / "config.json").write_text(json.dumps(_CONFIG))
  return workdir
