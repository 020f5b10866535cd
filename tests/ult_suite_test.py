"""Rounds, files, going on, and the mistakes of users."""

import json
import pathlib
import subprocess
import sys

import pytest
from ult_rows import CLIPPED, ROOTS, ROWS, write

from codea1_jax import jsonl
from codea1_jax.ult import evaluation, rounds, rows, suite

ROOT = pathlib.Path(__file__).parents[1]


def settings(tmp_path, **changes):
  given = {
    "model": "",
    "samples_file": "",
    "data": write(tmp_path),
    "fixed_sample": "",
    "modes": ("strict", "reference"),
    "limit": 0,
    "temperature": 0.0,
    "top_p": 1.0,
    "max_new_tokens": 8,
    "max_prompt_tokens": 512,
    "max_rows": 4,
    "dtype": "float32",
    "seed": 0,
  }
  return suite.Settings(**given | changes)


def samples(tmp_path, *lines):
  path = tmp_path / "samples.jsonl"
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  return str(path)


def test_the_command_on_a_samples_file(tmp_path):
  pytest.importorskip("cosmic_ray", reason="mutants need cosmic-ray")
  sample = tmp_path / "sample.json"
  sample.write_text('["task_0", "task_3"]')  # positions, not task ids
  answers = samples(
    tmp_path,
    {"task_id": "7", "tests": CLIPPED[:4] + CLIPPED[:1]},
    {"task_id": 9, "tests": ROOTS},
  )
  command = [sys.executable, "-m", "experiments.evaluate", "--suite=ult",
             f"--samples_file={answers}", f"--data={write(tmp_path)}",
             f"--fixed_sample={sample}", "--mode=strict,reference",
             "--workers=2", f"--out={tmp_path / 'out'}"]  # fmt: skip
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert "| pass@5 | 100.00 [100.00, 100.00] of 2 | 50.00 [" in done.stdout
  scores = json.loads((tmp_path / "out" / "scores.json").read_text())
  assert scores["strict"]["pass@5"]["value"] == 100
  assert scores["strict"]["pass@5"]["count"] == 2
  assert scores["reference"]["pass@5"]["value"] == 50
  for mode in ("strict", "reference"):
    assert scores[mode]["in the sample"] == 1
    assert scores[mode]["mut@5"]["count"] == 1
    assert 60 < scores[mode]["mut@5"]["value"] < 100
  product = scores["reference"]["pass@5"]["value"] / 100
  assert scores["reference"]["Mul"]["value"] == pytest.approx(
    product * scores["reference"]["mut@5"]["value"]
  )
  kept = json.loads((tmp_path / "out" / "settings.json").read_text())
  assert kept["temperature"] == 0
  lines = jsonl.read_jsonl(tmp_path / "out" / "ult" / "verdicts.jsonl")
  assert [line["task_id"] for line in lines] == ["7", "9"]
  assert set(lines[0]["strict"]["mutants"]) == {"1", "2", "5"}
  assert "mutants" not in lines[1]["strict"]


def test_a_real_policy_in_five_rounds(tmp_path):
  """The shipped Test LLM, which knows no English."""
  given = {"model": "shipped:test_llm", "max_prompt_tokens": 64}
  wanted = settings(tmp_path, **given)
  scores = suite.run(wanted, tmp_path / "out", workers=1)
  assert scores["strict"]["no test"] == 10
  assert scores["strict"]["pass@5"]["value"] == 0
  lines = jsonl.read_jsonl(tmp_path / "out" / "ult" / "samples.jsonl")
  assert [len(line["answers"]) for line in lines[-2:]] == [5, 5]
  assert all(a["tokens"] <= 8 for a in lines[-1]["answers"])
  again = suite.run(wanted, tmp_path / "out", workers=1)
  assert again["seconds"] == {"generation": 0, "execution": 0}
  with pytest.raises(ValueError, match=r"seed: 0 there, 1 here.*--out"):
    suite.run(settings(tmp_path, **given, seed=1), tmp_path / "out")


def test_it_goes_on_in_the_round_where_it_was_stopped(tmp_path):
  functions = rows.load(write(tmp_path))
  asked = []

  def ask(part, texts, first):
    asked.append((first, [len(said) for said in texts]))
    if len(asked) == 4:
      raise KeyboardInterrupt
    return [{"text": f"{f.name} {len(said)}"} for f, said in zip(part, texts)]

  def judge(part, texts):
    return [{"said": said} for said in texts]

  for _ in range(2):
    try:
      found, _ = evaluation.evaluate(
        functions, ask, judge, tmp_path / "out", chunk=2
      )
    except KeyboardInterrupt:
      with open(tmp_path / "out" / "samples.jsonl", "a") as file:
        file.write('{"task_id": "9", "answ')  # a kill's
  assert asked == [(0, [r, r]) for r in (0, 1, 2, 3, 3, 4)]
  assert found[1]["said"] == [f"_root {r}" for r in range(5)]


def test_the_chat(tmp_path):
  clip, _ = rows.load(write(tmp_path))
  first = rounds.chat(clip, [])
  assert [m["role"] for m in first] == ["system", "user"]
  assert ROWS[0]["code"] in first[1]["content"]
  assert "Clips." in first[1]["content"]
  third = rounds.chat(clip, ["one", "two"])
  assert [m["content"] for m in third[2::2]] == ["one", "two"]
  assert third[:2] == first and third[3] == third[5]
  assert rounds.shortened(third, rounds.HISTORY_TOKENS) == third
  cut = rounds.shortened(third, rounds.HISTORY_TOKENS + 1)
  assert cut == [third[0], third[4], third[5]]
  assert rounds.shortened(first, 10**6) == first


def test_prompts_are_cut_to_their_last_tokens(tmp_path):
  """And a round's draws depend on the round."""
  functions = rows.load(write(tmp_path))
  calls = []

  class Tokenizer:
    def __call__(self, texts, add_special_tokens):
      return {"input_ids": [[ord(c) for c in text] for text in texts]}

    def apply_chat_template(self, chats, tokenize, add_generation_prompt):
      return ["|".join(m["content"] for m in chat) for chat in chats]

  class Policy:
    tokenizer = Tokenizer()

  class Completion:
    text, tokens, finished = "test", (1, 2), True

  def sample(prompts, seed, first):
    calls.append((prompts, seed, first))
    return [[Completion] for _ in prompts]

  ask = rounds.make_ask(sample, Policy, 3, 100)
  answers = ask(functions, [["a"], ["b"]], 5)
  assert answers == [{"text": "test", "tokens": 2, "finished": True}] * 2
  ((prompts, seed, first),) = calls
  assert (seed, first) == ((3, 1), 5)
  assert [len(ids) for ids in prompts] == [100, 100]
  assert "".join(map(chr, prompts[0])).endswith("statements and branches.")


GOOD = {"task_id": "7", "tests": CLIPPED}


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"modes": ("lenient",)}, "--mode=lenient: known are"),
    ({"model": "x"}, "one of --model and --samples_file"),
    ({"model": "ground_truth", "samples_file": None}, "are no oracle"),
    ({"data": "none.jsonl"}, r"none\.jsonl: cannot be read"),
    ({"samples_file": [{"tests": CLIPPED}]}, r"jsonl:1: field 'task_id'"),
    ({"samples_file": [{"task_id": "7", "tests": "x"}]},
     r"jsonl:1: field 'tests': must be a list"),
    ({"samples_file": [GOOD, {"task_id": "9", "tests": ["x"]}]},
     r"jsonl:2: field 'tests': 1 texts, not 5"),
    ({"samples_file": [GOOD]}, "no answers to 9"),
    ({"fixed_sample": '["task_8"]'}, "names none of the 2 rows"),
    ({"fixed_sample": '["8"]'}, "'8' is no name such as task_17"),
    ({"fixed_sample": "{}"}, "must be a list"),
    ({"fixed_sample": "["}, "cannot be read"),
  ],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path, changes, message):
  lines = changes.get("samples_file", [GOOD, GOOD | {"task_id": "9"}])
  changes = changes | {
    "samples_file": samples(tmp_path, *lines) if lines else ""
  }
  if "fixed_sample" in changes:
    path = tmp_path / "sample.json"
    path.write_text(changes["fixed_sample"])
    changes["fixed_sample"] = str(path)
  with pytest.raises(ValueError, match=message) as raised:
    suite.run(settings(tmp_path, **changes), tmp_path / "out")
  assert "\n" not in str(raised.value)
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
  "field, value, message",
  [
    ("func_name", None, "field 'func_name': missing"),
    ("func_name", "a b", "field 'func_name': 'a b' is no name"),
    ("code", 5, "field 'code': must be a string"),
    ("prompt", " ", "field 'prompt': empty"),
    ("task_id", 1.5, "field 'task_id': must be a string or a number"),
    ("task_id", "7", "field 'task_id': 7 is there twice"),
    ("test_list", "x", "field 'test_list': must be a list"),
  ],
)
def test_a_malformed_row_is_named(tmp_path, field, value, message):
  path = write(tmp_path, [ROWS[0], ROWS[1] | {field: value}])
  with pytest.raises(ValueError, match=f"ult.jsonl:2: {message}"):
    rows.load(path)


def test_rows_as_lines(tmp_path):
  path = tmp_path / "lines.jsonl"
  path.write_text("\n".join(map(json.dumps, ROWS)))
  assert rows.load(path) == rows.load(write(tmp_path))
  path.write_text("[]")
  with pytest.raises(ValueError, match="no rows"):
    rows.load(path)
