"""Runs side by side, and the matrix of a cross-play."""

import json
import re

import pytest
from example_run import HOSTILE, write_run

from codea1_jax import jsonl, report, report_compare


@pytest.fixture
def runs(tmp_path):
  """Two runs of one name in two folders, which differ in their seed."""
  paths = []
  for seed, folder in enumerate(("one", "two")):
    path = tmp_path / folder / "run"
    path.mkdir(parents=True)
    write_run(path, steps=10 * (seed + 1))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"seed": seed}))
    paths.append(path)
  return paths


def test_curves_and_tables_of_both(runs):
  page = report.render_comparison(runs)
  assert "<title>one/run / two/run" in page
  assert "1 config fields differ" in page
  row = re.search(r"<th scope=row>seed</th><td>0</td><td>1</td>", page)
  assert row and "<th scope=row>num_steps" not in page
  data = json.loads(
    re.search(r'id="chart-data">(.*?)</script>', page, re.DOTALL)[1]
  )
  rewards = data[0]["values"]
  assert [sum(x is not None for x in line) for line in rewards] == [10, 20]
  training = jsonl.read_jsonl(runs[1] / "metrics.jsonl")
  assert rewards[1][-1] == float(f"{training[-1]['code/reward/mean']:.5g}")
  cells = re.search(r"Test: valid tests</th><td>(.*?)</td><td>(.*?)</td>", page)
  assert cells[1].startswith("40.0 % \u2192") and cells[1] != cells[2]


def test_labels_are_no_markup(tmp_path, runs):
  path = tmp_path / "<script>x"
  runs[0].rename(path)
  page = report.render_comparison([path, runs[1]])
  assert "<script>x" not in page and "&lt;script&gt;x" in page


@pytest.mark.parametrize(
  "chosen, message",
  [
    ([0], "of 2 to 8 runs, not 1"),
    ([0, 1, 0], "one is given twice"),
    ([0] * 9, "not 9"),
  ],
)
def test_what_cannot_be_compared(runs, chosen, message):
  with pytest.raises(ValueError, match=message):
    report.render_comparison([runs[i] for i in chosen])
  (runs[1] / "metrics.jsonl").unlink()
  with pytest.raises(ValueError, match=r"no metrics\.jsonl"):
    report.render_comparison(runs)


_MATRIX = {
  "code": ["runs/a:0", f"runs/{HOSTILE}:5"],
  "test": ["runs/a:0", "runs/a:5"],
  "golden_pass_rate": [0.5, 0.0],
  "kill_rate": [[0.25, 0.125], [None, None]],
}


def test_a_cross_play_is_a_matrix(runs):
  path = runs[0] / "cross_play.json"
  assert report_compare.cross_play(path) == ""
  path.write_text(json.dumps(_MATRIX))
  page = report.render_report(runs[0])
  assert "<h2>Cross-play</h2>" in page
  assert (
    "<th scope=row>a:0 (50.0 % right)</th><td>25.0 %</td><td>12.5 %" in page
  )
  assert "<td>-</td><td>-</td>" in page and HOSTILE not in page
  for broken in ("{", "[]", json.dumps(_MATRIX | {"code": ["a"]})):
    path.write_text(broken)
    with pytest.raises(ValueError, match=r"cross_play\.json: no cross-play"):
      report.render_report(runs[0])
