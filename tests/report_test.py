"""The report page: complete, bounded, and safe against what models write."""

import base64
import hashlib
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from example_run import HOSTILE, rollout_row, write_run

from codea1_jax import dumps, jsonl, report


class _Page(html.parser.HTMLParser):
  """What a browser would see: attributes, scripts, and the visible text."""

  def __init__(self, page: str):
    super().__init__()
    self.links, self.scripts, self.text, self.tags = [], [], [], []
    self.policy = ""
    self.feed(page)

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    attrs = dict(attrs)
    self.links += [attrs[k] for k in ("src", "href", "data") if k in attrs]
    if attrs.get("http-equiv") == "Content-Security-Policy":
      self.policy = attrs["content"]
    if tag == "script":
      self.scripts.append((attrs.get("id"), ""))

  def handle_data(self, data):
    if self.cdata_elem == "script":
      name, text = self.scripts[-1]
      self.scripts[-1] = (name, text + data)
    elif self.cdata_elem is None:
      self.text.append(data)

  @property
  def visible(self) -> str:
    return " ".join("".join(self.text).split())

  def data(self, name: str) -> list:
    return json.loads(dict(self.scripts)[name])


@pytest.fixture(scope="module")
def workdir(tmp_path_factory) -> pathlib.Path:
  return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(workdir) -> str:
  return report.render_report(workdir)


def test_page_is_one_file_that_runs_only_its_own_script(page):
  seen = _Page(page)
  assert seen.links == ["data:,", "#rollouts-title"]
  assert not re.search(r"(@import|url\(|https?://)", page)
  assert [name for name, _ in seen.scripts] == [
    "chart-data",
    "rollout-data",
    None,
  ]
  digest = hashlib.sha256(seen.scripts[-1][1].encode()).digest()
  source = f"'sha256-{base64.b64encode(digest).decode()}'"
  assert f"script-src {source};" in seen.policy
  assert "default-src 'none'" in seen.policy


def test_hostile_texts_stay_text(page):
  seen = _Page(page)
  assert "img" not in seen.tags
  assert page.count("<script") == 3
  sources = [c["source"] for r in seen.data("rollout-data") for c in r["codes"]]
  assert f"def f(xs):\n  # {HOSTILE}\n  return sum(xs)" in sources
  assert HOSTILE in seen.visible  # the config's note, shown as it is


def test_header_says_how_far_the_run_is_and_what_it_ran(page, workdir):
  text = _Page(page).visible
  assert text.count(workdir.name) == 2  # title and heading
  assert "60 training steps, the last is step 60, 0.1 hours" in text
  assert "7 evaluations" in text
  shown = text[: text.index("Whole config")]
  assert "reward.preset corrected" in re.sub("(preset)", r"\1 ", shown)
  assert "note" not in shown


def test_comparison_has_the_first_and_the_last_evaluation(page):
  text = page[page.index("<table class=comparison>") :]
  text = text[: text.index("</table>")]
  cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", text)
  assert cells[4:8] == [
    "Code: greedy pass rate",
    "25.0 %",
    "61.4 %",  # 0.25 + 0.4 (1 - exp(-60 / 25))
    "+36.4 points",
  ]
  assert "step 0 -&gt; step 60, 64 held-out problems" in page


def test_every_curve_has_its_figure_and_numbers(page):
  charts = _Page(page).data("chart-data")
  titles = re.findall("<figcaption>([^<]*)", page)
  assert len(charts) == len(titles) == 14
  greedy = charts[titles.index("Held-out pass rate of the Code LLM")]
  assert greedy["steps"] == [0, 10, 20, 30, 40, 50, 60]
  assert greedy["values"][0][0] == 0.25
  assert "Not recorded in this run" not in page


def test_missing_files_are_said(tmp_path):
  jsonl.JsonlWriter(tmp_path / "metrics.jsonl").write(
    1, {"code/reward/mean": 0.5}
  )
  text = _Page(report.render_report(tmp_path)).visible
  assert "This run has no config.json" in text
  assert "eval.jsonl is missing" in text
  assert "no rollouts.jsonl.zst" in text
  assert "Not recorded in this run: Held-out pass rate" in text


def test_empty_metrics_is_a_run_without_steps(tmp_path):
  (tmp_path / "metrics.jsonl").touch()
  text = _Page(report.render_report(tmp_path)).visible
  assert "No training step is written down yet." in text


def test_no_run_is_one_line(tmp_path):
  with pytest.raises(ValueError, match=r"no metrics\.jsonl") as error:
    report.render_report(tmp_path)
  assert "\n" not in str(error.value)


def test_broken_config_is_named(tmp_path):
  (tmp_path / "metrics.jsonl").touch()
  (tmp_path / "config.json").write_text("{")
  with pytest.raises(ValueError, match=r"config\.json: not JSON"):
    report.render_report(tmp_path)


def test_page_stays_under_its_bound_with_oldest_and_newest(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(report, "MAX_BYTES", 150_000)
  write_run(tmp_path, steps=1)
  (tmp_path / dumps.FILE).unlink()
  writer = dumps.DumpWriter(tmp_path / dumps.FILE)
  for step in range(1, 21):
    marker = "<" * 500  # six bytes each in JSON
    writer.write(step, [rollout_row(step, marker)])
  page = report.render_report(tmp_path)
  assert 90_000 < len(page.encode()) < 150_000
  steps = [r["step"] for r in _Page(page).data("rollout-data")]
  kept = len(steps)
  assert 2 <= kept < 20
  newest = (kept + 1) // 2
  expected = [*range(1, kept - newest + 1), *range(21 - newest, 21)]
  assert steps == expected
  assert f"{kept} of 20 written rollouts" in page
  assert f"{20 - kept} are left out" in page


def test_a_rollout_too_large_is_passed_over(tmp_path, monkeypatch):
  monkeypatch.setattr(report, "MAX_BYTES", 100_000)
  write_run(tmp_path, steps=1)
  writer = dumps.DumpWriter(tmp_path / dumps.FILE)
  writer.write(2, [rollout_row(7, suites=500)])
  steps = [
    r["step"]
    for r in _Page(report.render_report(tmp_path)).data("rollout-data")
  ]
  assert steps == [1, 1, 1]


def test_long_texts_are_cut_and_say_so(tmp_path):
  write_run(tmp_path, steps=1)
  rollout = rollout_row(1, "x" * 10_000)
  rollout["codes"][0]["suites"][0]["tests"][0]["predicted"] = "1" * 700
  dumps.DumpWriter(tmp_path / dumps.FILE).write(1, [rollout])
  seen = _Page(report.render_report(tmp_path)).data("rollout-data")[-1]
  source = rollout["codes"][0]["source"]
  note = f" [... {len(source) - 6000} characters left out]"
  assert seen["codes"][0]["source"] == source[:6000] + note
  cut = seen["codes"][0]["suites"][0]["tests"][0]["predicted"]
  assert cut == "1" * 600 + " [... 100 characters left out]"


def test_predictions_are_judged_as_values(page):
  tests = _Page(page).data("rollout-data")[0]["codes"][0]["suites"][0]["tests"]
  # 0 == 0, 3 == 3, 1 == True, 2 != 3, no oracle, 81 == 81
  assert [t["right"] for t in tests] == [True, True, True, False, None, True]


@pytest.mark.parametrize(
  "predicted, oracle, expected",
  [
    ("1", "1.0", True),
    ("[1, 2]", "[1,2]", True),
    ("(1, 2)", "[1, 2]", False),
    ("oops(", "1", False),
    ("(" * 5000, "1", False),
  ],
)
def test_same_value(predicted, oracle, expected):
  assert report._same_value(predicted, oracle) is expected


def test_lone_surrogate_does_not_stop_the_page(tmp_path):
  write_run(tmp_path, steps=1)
  config = json.dumps({"method": "a\ud800b"})
  (tmp_path / "config.json").write_text(config)
  assert "a?b" in report.render_report(tmp_path)


def _command(*arguments) -> subprocess.CompletedProcess:
  root = pathlib.Path(__file__).parents[1]
  command = [sys.executable, "-m", "experiments.report", *arguments]
  return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_command_writes_the_page(workdir, page, tmp_path):
  out = tmp_path / "deep" / "page.html"
  done = _command(f"--workdir={workdir}", f"--out={out}")
  assert done.returncode == 0, done.stderr
  assert out.read_text(encoding="utf-8") == page


def test_command_says_in_one_line_what_is_missing(tmp_path):
  done = _command(f"--workdir={tmp_path}")
  assert done.returncode == 2
  assert done.stderr.strip().count("\n") == 0
  assert "no metrics.jsonl" in done.stderr


@pytest.mark.slow
def test_chromium_shows_the_rollouts_and_runs_nothing_else(page, tmp_path):
  browser = shutil.which("chromium") or shutil.which("google-chrome")
  if not browser:
    pytest.skip("neither chromium nor google-chrome is installed")
  file = tmp_path / "page.html"
  file.write_text(page, encoding="utf-8")
  flags = "--headless --no-sandbox --disable-gpu --no-first-run --dump-dom"
  profile = f"--user-data-dir={tmp_path / 'profile'}"
  done = subprocess.run(
    [browser, *flags.split(), profile, file.as_uri()],
    capture_output=True,
    text=True,
    timeout=120,
  )
  shown = done.stdout
  assert "<title>owned" not in shown and "<img" not in shown
  assert "(9 of 9 match)" in shown
  assert "Step 41, question sum-2" in shown
  assert "! wrong answer" in shown
