"""The report as people see it, in a real browser."""

import browser
import pytest
from example_run import write_run
from process_tree import processes, wait_until

from codea1_jax import report


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
  """A run's report and a comparison of two."""
  folder = tmp_path_factory.mktemp("runs")
  for name in ("first", "second"):
    (folder / name).mkdir()
    write_run(folder / name, steps=30 if name == "first" else 20)
  files = {"run": folder / "run.html", "both": folder / "both.html"}
  files["run"].write_text(report.render_report(folder / "first"))
  names = [folder / "first", folder / "second"]
  files["both"].write_text(report.render_comparison(names))
  return files


@pytest.fixture(scope="module")
def page(tmp_path_factory):
  before = set(processes())
  with browser.start(tmp_path_factory.mktemp("profile")) as opened:
    yield opened
  assert wait_until(lambda: not _chromium() - before, 10), "a browser is left"


def _chromium():
  found = set()
  for pid in processes():
    try:
      with open(f"/proc/{pid}/cmdline", "rb") as file:
        if b"remote-debugging-pipe" in file.read():
          found.add(pid)
    except OSError:
      continue
  return found


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("name", ["run", "both"])
def test_it_fits_and_nothing_goes_wrong(page, pages, tmp_path, name, width):
  page.open(pages[name], width)
  assert page.run("document.documentElement.scrollWidth") <= width
  for place in ("", "document.querySelector('#rollouts-title')"
                ".scrollIntoView()"):  # fmt: skip
    page.run(place or "window.scrollTo(0, 0)")
    path = tmp_path / f"{name}_{width}{'_rollouts' if place else ''}.png"
    page.picture(path)
    assert path.stat().st_size > 10_000  # not an empty page
  assert page.run("document.querySelectorAll('figure svg path').length") > 3
  assert page.problems == []


def _shown(page):
  return page.run("document.querySelectorAll('#which option').length")


def test_search_and_verdict_hide_others(page, pages):
  page.open(pages["run"], 1280)
  everything = _shown(page)
  assert everything > 3
  type_in = """(() => {{
    const box = document.getElementById("{0}");
    box.value = "{1}";
    box.dispatchEvent(new Event("{2}"));
  }})()"""
  page.run(type_in.format("search", "no such text anywhere", "input"))
  assert _shown(page) == 0
  data = "JSON.parse(document.getElementById('rollout-data').textContent)"
  first = page.run(f"{data}[0].codes[0].suites[0].tests[0].call")
  page.run(type_in.format("search", first.split("(")[0], "input"))
  assert 0 < _shown(page) <= everything
  page.run(type_in.format("search", "", "input"))
  options = page.run("[...document.querySelectorAll('#verdict option')]"
                     ".map((o) => o.value).join()").split(",")  # fmt: skip
  assert "" in options and "fail" in options
  page.run(type_in.format("verdict", "fail", "change"))
  assert 0 < _shown(page) <= everything


def test_two_programs_line_by_line(page, pages):
  page.open(pages["run"], 1280)
  lines = page.run("""lineDiff("a\\nb\\nc\\nx\\ny", "x\\na\\nb\\nc\\nz")
    .map(([kind, line]) => line).join()""")
  assert lines == "+ x,  a,  b,  c,- x,- y,+ z"
  page.run("document.querySelector('.compare').open = true")
  assert page.run("document.querySelector('.diff').innerText.length") > 10
  page.run("""(() => {
    const [left, right] = document.querySelectorAll(".compare select");
    left.value = right.value;
    left.dispatchEvent(new Event("change"));
  })()""")
  assert page.run("document.querySelectorAll('.diff .gone, .diff .new')"
                  ".length") == 0  # fmt: skip


def test_the_keyboard_is_enough(page, pages):
  page.open(pages["run"], 1280)
  page.press("Tab")
  assert page.run("document.activeElement.className") == "skip"
  page.press("Enter")
  assert page.run("document.activeElement.id") == "rollouts-title"
  title = "document.querySelector('#view h3').textContent"
  newest = page.run(title)
  page.press("k")
  older = page.run(title)
  assert older != newest
  page.press("j")
  assert page.run(title) == newest
  page.press("/")
  assert page.run("document.activeElement.id") == "search"
  page.press("k")  # is typed now
  assert page.run("document.getElementById('search').value") == "k"
