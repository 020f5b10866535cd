"""Which tests pass, what they reach and what they kill, by both readings."""

import pytest
from ult_rows import CLIP, CLIPPED, ROOT, ROOTS, fenced, plain

from codea1_jax import mutation
from codea1_jax.ult import counts, rows, verdicts

FUNCTIONS = [
  rows.Function("7", 0, "clip", CLIP, "Clips."),
  rows.Function("9", 1, "_root", ROOT, "A root."),
]
RAISES = fenced(
  "import pytest", "from some.module import clip", "def test_it():",
  "  with pytest.raises(TypeError, match='not supported'):",
  "    clip('a', 2, 5)",
)  # fmt: skip
LOOP = fenced(
  "import solution", "def high(): return 5", "def test_it():",
  "  for x in (6, 7):", "    assert solution.clip(x, 2, high()) == 5",
)  # fmt: skip


@pytest.fixture(scope="module")
def pool():
  with verdicts.open_pool(2) as made:
    yield made


def judged(pool, *texts, function=FUNCTIONS[0], modes=verdicts.MODES):
  (found,) = verdicts.judge([function], [texts], modes, pool)
  return found


def test_the_formatters_cases_run(pool):
  """What the published program cannot keep fails there, and passes here."""
  unittest = fenced("import unittest", "class TestIt(unittest.TestCase):",
                    "  def test_it(self):",
                    "    self.assertEqual(clip(1, 2, 5), 2)")  # fmt: skip
  lines = fenced("def test_it():", "  assert clip(", "    1, 2, 5) == 2")
  found = judged(pool, RAISES, LOOP, lines, unittest, CLIPPED[0])
  assert found["strict"]["statuses"] == ["pass"] * 5
  files = found["reference"]["files"]
  assert [files[k]["passed"] for k in "125"] == [0, 0, 1]
  assert not any(file["all"] for file in files.values())


def test_what_does_not_pass(pool):
  found = judged(
    pool,
    RAISES.replace("'a'", "1"),  # raises nothing
    RAISES.replace("supported", "there"),  # raises another
    fenced("def test_it(unknown):", "  assert clip(1, 2, 5) == 2"),
    fenced("def test_it():", "  yield", "  assert clip(1, 2, 5) == 2"),
    fenced("import sys", "def test_it():", "  sys.exit(0)", "  assert clip"),
    fenced("import pytest", "@pytest.mark.skip", "def test_it():",
           "  assert clip(1, 2, 5) == 2"),
    modes=("strict",),
  )  # fmt: skip
  assert found["strict"]["statuses"] == ["fail"] * 6
  found = judged(
    pool, *plain("clip(1, 2, 5) == 3"), "None.",
    fenced("x = 1 / 0", "def test_it():", "  assert clip(1, 2, 5) == 2"),
    fenced("import os", "def test_it():", "  os._exit(0)", "  assert clip"),
    "",
    modes=("strict",),
  )["strict"]  # fmt: skip
  assert found["statuses"] == ["fail", "invalid", "error", "error", "invalid"]
  assert found["hits"][1] is None


def test_a_test_that_hangs_loses_its_file(pool, monkeypatch):
  monkeypatch.setattr(verdicts, "_FILE_S", 0.5)
  hangs = fenced("def test_it():", "  while True: pass", "  assert clip")
  with verdicts.open_pool(2) as short:
    found = judged(short, CLIPPED[0], hangs, *CLIPPED[1:4])
  assert found["strict"]["statuses"] == ["pass", "timeout", *["pass"] * 3]
  files = found["reference"]["files"]
  assert [files[k]["passed"] for k in "125"] == [1, 0, 0]
  assert files["5"] == {
    "status": "timeout", "passed": 0, "all": False, "hits": None
  }  # fmt: skip


def test_what_tests_see_of_the_program(pool):
  """All of it; in the reference what `import *` gives, and no test_*."""
  found = judged(pool, *ROOTS, function=FUNCTIONS[1])
  assert found["strict"]["statuses"] == ["pass"] * 5
  assert found["reference"]["files"]["5"]["passed"] == 0
  named = rows.Function("1", 0, "test_f", "def test_f(x):\n  return x\n", "")
  texts = plain("test_f(1) == 1")
  found = judged(pool, *texts, function=named)
  assert found["strict"]["statuses"] == ["pass"]
  assert found["reference"]["files"]["1"]["passed"] == 0
  assert verdicts.program(named, "reference") == named.code.replace(
    "test_f", "test_1_f"
  )


def test_the_table(pool):
  """Counted by hand: lines 3 to 5, where 3 has the two branches."""
  wrong, below, *others = CLIPPED[4], *CLIPPED[:4]
  texts = [[wrong, *others, below], [*ROOTS[:4], "No."]]
  found = verdicts.judge(FUNCTIONS, texts, verdicts.MODES, pool)
  strict = [v["strict"] for v in found]
  assert [v["statuses"].count("pass") for v in strict] == [4, 4]
  table = counts.table(FUNCTIONS, strict, "strict", set())
  value = {k: v["value"] for k, v in table.items() if isinstance(v, dict)}
  assert table["tests"] == 10 and table["passed"] == 8
  assert table["no test"] == 1
  assert (value["pass@1"], value["pass@2"], value["pass@5"]) == (50, 75, 80)
  # What only the wrong test reaches does not count, until another does.
  assert (value["line@1"], value["line@2"], value["line@5"]) == (25, 75, 100)
  assert (value["branch@1"], value["branch@2"]) == (0, 50)
  assert (value["branch@5"], table["mut@1"], table["Mul"]) == (100, None, None)
  reference = [v["reference"] for v in found]
  table = counts.table(FUNCTIONS, reference, "reference", set())
  value = {k: v["value"] for k, v in table.items() if isinstance(v, dict)}
  assert value["pass@5"] == 40  # _root is not seen
  # With 14 imports and the line of `def`; nothing of _root's own line.
  assert value["line@1"] == pytest.approx(100 * (14 + 3 + 14 + 1) / (18 + 16))


def test_mutants_by_both_readings(pool):
  pytest.importorskip("cosmic_ray", reason="mutants need cosmic-ray")
  texts = [CLIPPED[:4] + CLIPPED[:1], ROOTS]
  found = verdicts.judge(FUNCTIONS, texts, verdicts.MODES, pool)
  expected = {
    k: mutation.run_mutants(
      [(CLIP, "\n".join(t.split("\n")[2].strip() for t in texts[0][:k]))]
    )[0]
    for k in verdicts.KS
  }
  for mode in verdicts.MODES:
    clip, root = verdicts.mutate(
      FUNCTIONS, [v[mode] for v in found], mode, workers=2
    )
    for k, result in expected.items():
      marks = "".join("01"[killed] for killed in result.killed)
      assert clip[str(k)]["killed"] == marks
    if mode == "reference":
      assert root == {}  # nobody sees it: its tests fail
    else:  # a function without mutants
      assert root["5"] == {"killed": "", "equal": ""}
  assert expected[5].score() > expected[1].score()


def test_kill_rates():
  """No mutants: full marks in the reference, left out in strict."""
  base = {"tests": ["x"] * 5, "statuses": ["pass"] * 5, "hits": [[]] * 5}
  files = {
    str(k): {"status": "pass", "passed": k, "hits": []} for k in (1, 2, 5)
  }
  base |= {"files": files}
  some = base | {"mutants": {"5": {"killed": "110?", "equal": "0010"}}}
  none = base | {"mutants": {"5": {"killed": "", "equal": ""}}}
  failed = base | {"mutants": {}}
  functions = [FUNCTIONS[0], FUNCTIONS[1], FUNCTIONS[1]]
  for mode, value, count in (("strict", 200 / 3, 1), ("reference", 250 / 3, 2)):
    table = counts.table(functions, [some, none, failed], mode)
    assert table["mut@5"]["value"] == pytest.approx(value)
    assert table["mut@5"]["count"] == count
    assert table["Mul"]["value"] == pytest.approx(value)
    assert table["mut@1"] is None and table["mutants"] == 4
    unequal = table.get("mut@5 unequal", {"value": 100})
    assert unequal["value"] == 100
