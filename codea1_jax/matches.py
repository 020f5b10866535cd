"""Policies of runs against and beside each other, on held-out problems.

Cross-play: every Test LLM attacks the codes of every Code LLM. Collaboration:
of a problem's codes the one is chosen that passes most of a Test LLM's tests.

One policy is on the devices at a time; prompts are those of its own run.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from codea1_jax import (
  checkpoint,
  collaboration,
  evaluation,
  judging,
  parsing,
  prompts,
  rollout,
  scores,
  subjects,
)
from codea1_jax import problems as problem_files
from codea1_jax.generation import SamplingConfig
from codea1_jax.inputs import resolve
from codea1_jax.sandbox import SandboxPool
from codea1_jax.types import Completion, ParsedCode, Problem

SUITES = ("cross_play", "collaboration")
_SHIPPED = "shipped:heldout"
_CODE, _TEST = 0, 1  # of seeds


@dataclasses.dataclass(frozen=True)
class Settings:
  """How much is written, and how it is drawn."""

  codes: int = 1  # n a problem
  suites: int = 1  # m a code
  tests: int = 8  # K that count of a suite
  temperature: float = 1.0
  top_p: float = 1.0
  max_new_tokens: int = 4096
  max_rows: int = 256
  dtype: str = "float32"
  seed: int = 0


def saved(name: str) -> list[str]:
  """Every checkpoint of "WORKDIR", or the one of "WORKDIR:STEP"; any other
  name, of a model, stands for itself."""
  workdir = pathlib.Path(re.fullmatch(r"(.*?)(:\d+)?", name)[1])
  if str(workdir) != name or not (workdir / "checkpoints").is_dir():
    return [name]
  return [f"{workdir}:{step}" for step in checkpoint.steps(workdir)]


def play(
  suite: str,
  coders: Sequence[str],
  testers: Sequence[str],
  data: str,
  limit: int,
  out: str,
  settings: Settings,
) -> str:
  """Plays a suite and writes what it found as JSON.

  Args:
    suite: of SUITES.
    coders: names, see `subjects.open_subject`; in cross-play a run without a
      step stands for all its checkpoints, in collaboration there is one name.
    testers: the same way.
    data: a problem file; empty: the held-out problems of the first run.
    limit: only so many of its problems; 0: all.
    out: the directory of the file; empty: the run, where it plays itself, or
      else no file is written.
    settings: how much is written.

  Returns:
    Lines for a terminal.

  Raises:
    ValueError, OSError: bad input; a line, before anything is loaded.
  """
  if not coders or not testers:
    raise ValueError(f"--suite={suite}: --code or --test is missing")
  if suite == "collaboration" and (len(coders) > 1 or len(testers) > 1):
    raise ValueError("--suite=collaboration: one --code and one --test")
  runs = [name for name in (*coders, *testers) if subjects.is_run(name)]
  data = data or (subjects.heldout_problems(runs[0]) if runs else _SHIPPED)
  chosen = problem_files.load_problems(resolve(data, ".jsonl"))
  chosen = chosen[: limit or None]
  if not out and coders == testers and pathlib.Path(coders[0]).is_dir():
    out = coders[0]  # whose report shows it
  if suite == "cross_play":
    coders, testers = (
      [one for name in names for one in saved(name)]
      for names in (coders, testers)
    )
  with SandboxPool() as pool:
    if suite == "cross_play":
      found = cross_play(coders, testers, chosen, settings, pool)
      text = cross_play_table(found)
    else:
      scored = collaborate(*coders, *testers, chosen, settings, pool)
      found = {name: vars(score) for name, score in scored.items()}
      text = "\n".join(f"{name}: {score}" for name, score in scored.items())
  if not out:
    return text
  path = pathlib.Path(out) / f"{suite}.json"
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(found, indent=2) + "\n")
  return f"{text}\nwrote {path}"


def cross_play(
  coders: Sequence[str],
  testers: Sequence[str],
  problems: Sequence[Problem],
  settings: Settings,
  pool: SandboxPool,
) -> dict[str, Any]:
  """All Test LLMs against the codes of all Code LLMs.

  Args:
    coders: [C] names, see `subjects.open_subject`.
    testers: [T].
    problems: with golden tests.
    settings: codes a problem and suites a code are drawn with it.
    pool: an open sandbox.

  Returns:
    JSON data: `code` and `test`, the names; `golden_pass_rate` [C], the share
    of codes that pass all golden tests; `kill_rate`, `attack_rate` and
    `validity` [C][T], see `evaluation.attack_scores`; None where a coder wrote
    nothing that runs.
  """
  targets, rates = [], []
  for _, completions in _write_codes(coders, problems, settings):
    shares = evaluation.golden_pass(problems, completions, pool)
    rates.append(evaluation.pass_rate(shares))
    targets.append(_targets(problems, _parse(problems, completions)))
  table: dict[str, Any] = {"code": list(coders), "test": list(testers)}
  table |= {"golden_pass_rate": rates}
  names = ("kill_rate", "attack_rate", "validity")
  table |= {name: [[] for _ in coders] for name in names}
  for writer in _writers(testers, "test", settings.suites, settings):
    for c, attacked in enumerate(targets):
      found = dict.fromkeys(names)
      if attacked:
        suites = writer.write_suites(attacked, settings)
        found = evaluation.attack_scores(attacked, suites, settings.tests, pool)
      for name in names:
        table[name][c].append(found[name])
  return table


def collaborate(
  coder: str,
  tester: str,
  problems: Sequence[Problem],
  settings: Settings,
  pool: SandboxPool,
) -> dict[str, scores.Score]:
  """Best of n codes by m suites a code, beside what chance would choose.

  Args:
    coder: a name, see `subjects.open_subject`.
    tester: another.
    problems: [P] with golden tests, which alone decide what is right.
    settings: n, m and the sampling.
    pool: an open sandbox.

  Returns:
    "pass@1", the mean share of codes that are right; "chosen", of the chosen
    ones; "pass@N", problems with any right code.
  """
  ((_, completions),) = _write_codes([coder], problems, settings)
  codes = _parse(problems, completions)
  shares = evaluation.golden_pass(problems, completions, pool)
  targets = _targets(problems, codes)
  (writer,) = _writers([tester], "test", settings.suites, settings)
  by_problem: dict[str, list] = {problem.id: [] for problem in problems}
  for (problem, _), row in zip(
    targets, writer.write_suites(targets, settings) if targets else ()
  ):
    by_problem[problem.id] += [
      parsing.parse_suite(c.text, problem.entry_point, settings.tests)
      for c in row
    ]
  suites = [by_problem[problem.id] for problem in problems]
  best = collaboration.best_codes(problems, codes, suites, pool)
  right = [[share == 1.0 for share in row] for row in shares]
  return {
    "pass@1": scores.mean_score([sum(row) / len(row) for row in right]),
    "chosen": scores.mean_score([row[n] for row, n in zip(right, best)]),
    f"pass@{settings.codes}": scores.mean_score([any(row) for row in right]),
  }


def cross_play_table(found: dict[str, Any]) -> str:
  """Markdown: the kill rate of each Test LLM on each Code LLM's codes."""
  names = [pathlib.Path(name).name for name in found["test"]]
  lines = [
    f"| kill rate, % | golden pass rate, % | {' | '.join(names)} |",
    "|---" * (2 + len(found["test"])) + "|",
  ]
  for name, rate, row in zip(
    found["code"], found["golden_pass_rate"], found["kill_rate"]
  ):
    cells = ["-" if x is None else f"{100 * x:.1f}" for x in row]
    lines.append(
      f"| {pathlib.Path(name).name} | {100 * rate:.1f} | {' | '.join(cells)} |"
    )
  return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Writer:
  """A policy that answers, with the prompts of its run, or the paper's."""

  subject: subjects.Subject
  sample: Any  # rollout.make_sampler's function

  def write_codes(self, problems, settings) -> list[list[Completion]]:
    preset = self.subject.setting("prompts.preset", "paper")
    chats = [prompts.code_messages(p, preset=preset) for p in problems]
    return self._answer("code", chats, (settings.seed, _CODE))

  def write_suites(self, targets, settings) -> list[list[Completion]]:
    setting = self.subject.setting
    chats = [
      prompts.test_messages(
        problem,
        program,
        settings.tests,
        preset=setting("prompts.preset", "paper"),
        visibility=setting("prompts.test_visibility", "white_box"),
        anonymize=setting("prompts.anonymize_code", False),
      )
      for problem, program in targets
    ]
    return self._answer("test", chats, (settings.seed, _TEST))

  def _answer(self, role, chats, seed):
    longest = self.subject.setting(f"{role}.max_prompt_tokens", 8192)
    encoded = rollout.encode_prompts(self.subject.policy, chats)
    cut = [ids[-longest:] for ids in encoded]
    return self.sample(self.subject.params, cut, seed)


def _writers(names, role, num_samples, settings) -> Iterator[_Writer]:
  """One after the other; those of one shape share what is compiled."""
  samplers: dict[Any, Any] = {}
  sampling = SamplingConfig(
    num_samples=num_samples,
    max_new_tokens=settings.max_new_tokens,
    temperature=settings.temperature,
    top_p=settings.top_p,
    max_rows=settings.max_rows,
  )
  for name in names:
    subject = subjects.open_subject(name, role, dtype=settings.dtype)
    shape = subject.policy.directory, subject.policy.model_config
    if shape not in samplers:
      samplers[shape] = rollout.make_sampler(
        subject.policy, sampling, subject.parallel
      )
    yield _Writer(subject, samplers[shape])


def _write_codes(coders, problems, settings):
  """(name, completions [P][n]) of each Code LLM."""
  for writer in _writers(coders, "code", settings.codes, settings):
    yield writer.subject.name, writer.write_codes(problems, settings)


def _parse(problems, completions) -> list[list[ParsedCode]]:
  texts = [[c.text for c in row] for row in completions]
  return judging.parse_codes(problems, texts)


def _targets(problems, codes) -> list[tuple[Problem, str]]:
  """The codes that can be attacked: those that are programs."""
  return [
    (problem, code.source)
    for problem, row in zip(problems, codes)
    for code in row
    if not code.error
  ]
