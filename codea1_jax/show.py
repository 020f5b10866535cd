"""A rollout dump as text for a terminal: its steps, one step, one question."""

import collections
import os
import pathlib
from collections.abc import Iterator, Sequence

from codea1_jax import dumps
from codea1_jax.terminal import Terminal, cut, one_line, safe

_MAX_NAMED = 20  # steps or questions in an error
# Columns of the table of steps are known before its rows: a run may go on.
_STEP_LINE = "{:>6}  {:>9}  {:>5}  {:>5}  {:>5}  "
_STYLES = {
  "pass": "good",
  "fail": "bad",
  "error": "broken",
  "invalid": "broken",
  "timeout": "slow",
  "memory": "slow",
  "infrastructure": "slow",
}


def show(
  path: str | os.PathLike,
  terminal: Terminal,
  step: int | None = None,
  question: str | None = None,
  code: int | None = None,
) -> Iterator[str]:
  """The lines to print: no more in memory than a step.

  Args:
    path: of a dump.
    terminal: what they are printed on.
    step: the step to show question by question; None for a table of all.
    question: id, or place in the step from 0, of the question to show whole.
    code: place of its only code to show, then with prompts and whole texts.

  Raises:
    OSError, ValueError: no dump, or no such step, question or code in it.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(
      f"{path}: no such file; a run writes it at its first dumped step"
    )
  if step is None and question is not None:
    raise ValueError("a question is shown of one step: name the step too")
  if question is None and code is not None:
    raise ValueError("a code is shown of one question: name the question too")
  try:
    if step is None:
      yield from _steps(path, terminal)
      return
    records = _records_of(path, step)
    if question is None:
      yield from _questions(records, terminal)
    else:
      yield from _question(records, question, code, terminal)
  except (KeyError, TypeError, AttributeError, IndexError) as error:
    raise ValueError(f"{path}: no rollout record: {error!r}") from error


def _records_of(path: pathlib.Path, step: int) -> list[dict]:
  by_step = collections.defaultdict(list)
  for frame in dumps.frames(path):
    by_step[dumps.step_of(path, frame)].append(frame)
  if step not in by_step:
    raise ValueError(f"{path}: no step {step}, but {_named(sorted(by_step))}")
  return safe(
    [row for frame in by_step[step] for row in dumps.rows(path, frame)]
  )


def _steps(path: pathlib.Path, terminal: Terminal) -> Iterator[str]:
  """A line a step, printed as they are read."""
  yield f"{path}: mean rewards of codes and of tests, share of valid tests"
  head = _STEP_LINE.format("step", "questions", "code", "test", "valid")
  yield terminal.paint(head + "verdicts", "bold")
  for frame in dumps.frames(path):
    records = safe(list(dumps.rows(path, frame)))
    line = _STEP_LINE.format(
      records[0]["step"], len(records), *map(_number, _means(records))
    )
    room = max(terminal.width - len(head), 10)
    for part in Terminal(room).paragraph(_counts(_verdicts(records))):
      yield line + part
      line = " " * len(head)


def _questions(records: list[dict], terminal: Terminal) -> Iterator[str]:
  """A line a question."""
  header = ("", "id", "code", "test", "valid", "replayed", "verdicts")
  rows = []
  for i, record in enumerate(records):
    means = map(_number, _means([record]))
    replayed = str(len(record["replayed"]))
    name = cut(record["problem"]["id"], 24)
    rows.append([str(i), name, *means, replayed, _counts(_verdicts([record]))])
  yield terminal.paint(
    f"step {records[0]['step']}: {len(records)} questions; mean rewards", "bold"
  )
  yield from terminal.table(header, rows)


def _question(
  records: list[dict], wanted: str, code: int | None, terminal: Terminal
) -> Iterator[str]:
  """All of one question, or of one of its codes."""
  index = _find(records, wanted)
  record = records[index]
  problem, codes = record["problem"], record["codes"]
  if code is not None and not 0 <= code < len(codes):
    raise ValueError(
      f"question {one_line(problem['id'])} has the codes 0 to"
      f" {len(codes) - 1}, no {code}"
    )
  yield terminal.paint(
    f"step {record['step']}, question {index} of {len(records)}:"
    f" {one_line(problem['id'])}",
    "bold",
  )
  yield f"seed {', '.join(map(str, record['seed']))}"
  yield from ("", *terminal.paragraph(problem["question"]), "")
  yield from terminal.program(problem["signature"], 2)
  yield from ("", terminal.paint("Ground truth", "bold"))
  yield from terminal.program(problem["ground_truth"], 2)
  if code is not None:
    yield from _text("Prompt", record["prompt"]["text"], terminal, 0)
  for m in range(len(codes)) if code is None else [code]:
    yield ""
    yield from _code(m, record, terminal, whole=code is not None)


def _find(records: Sequence[dict], wanted: str) -> int:
  """Place of a question given by its id, else by that place itself."""
  names = [record["problem"]["id"] for record in records]
  if wanted in names:
    return names.index(wanted)
  if wanted.isdecimal() and int(wanted) < len(names):
    return int(wanted)
  raise ValueError(
    f"step {records[0]['step']} has no question {wanted}, but 0 to"
    f" {len(names) - 1}: {_named([one_line(name) for name in names])}"
  )


def _code(
  m: int, record: dict, terminal: Terminal, whole: bool
) -> Iterator[str]:
  code = record["codes"][m]
  yield (
    terminal.paint(f"Code {m}", "bold")
    + "  "
    + "  ".join(
      [
        f"reward {_number(code['reward'])}",
        "load " + terminal.paint(*_verdict(code["load"])),
        *(["selected"] if code["selected"] else []),
        _length(code),
      ]
    )
  )
  why_not = code["error"] or code["load_detail"]
  if why_not:
    yield from terminal.paragraph(why_not, 2, "broken")
  if whole or not code["source"]:
    yield from _text("Completion", code["text"], terminal, 2)
  if code["source"]:
    yield from terminal.program(code["source"], 2)
  if record["replayed"]:
    yield from _replayed(record, code, terminal)
  if whole:
    yield from _text(
      "Prompt of its suites", code["suite_prompt"]["text"], terminal, 2
    )
  for n, suite in enumerate(code["suites"]):
    yield ""
    yield from _suite(n, suite, terminal, whole)


def _replayed(record: dict, code: dict, terminal: Terminal) -> Iterator[str]:
  yield "  " + terminal.paint("Replayed from the book", "bold")
  rows = zip(
    record["replayed"], code["replayed_verdicts"], code["replayed_returned"]
  )
  yield from terminal.table(
    ("verdict", "test", "returned"),
    [
      (_verdict(status), one_line(test), _unless_passed(status, returned))
      for test, status, returned in rows
    ],
    indent=4,
  )


def _suite(
  n: int, suite: dict, terminal: Terminal, whole: bool
) -> Iterator[str]:
  yield f"  {terminal.paint(f'Suite {n}', 'bold')}  " + "  ".join(
    [
      f"reward {_number(suite['reward'])}",
      f"validity {_number(suite['validity'])}",
      f"invalid {suite['num_invalid']}",
      _length(suite),
    ]
  )
  if whole or not suite["tests"]:
    yield from _text("Completion", suite["text"], terminal, 4)
  if suite["tests"]:
    yield from terminal.table(
      ("verdict", "call", "predicted", "oracle", "returned"),
      [_test(test) for test in suite["tests"]],
      indent=4,
    )


def _test(test: dict) -> Sequence:
  """A row: the code's verdict, the call, and what three say it returns."""
  status = test["verdict"]
  why_not = test["rejected"] or test["oracle_status"]
  if status is None and why_not == "pass":
    why_not = "repeated"  # of an earlier call in the suite
  oracle = test["oracle"] if test["oracle_status"] == "pass" else None
  return (
    (f"- {one_line(why_not)}", "dim") if status is None else _verdict(status),
    one_line(test["call"]),
    (one_line(test["predicted"]), "good" if test["correct"] else "bad"),
    "-" if oracle is None else one_line(oracle),
    _unless_passed(status, test["returned"]),
  )


def _verdict(status: str) -> tuple[str, str]:
  return one_line(status), _STYLES.get(status, "")


def _unless_passed(status: str | None, returned: str | None) -> str:
  return "" if status in (None, "pass") else one_line(returned or "")


def _text(title: str, text: str, terminal: Terminal, indent: int):
  """A text as it is, under a title."""
  yield " " * indent + terminal.paint(title, "bold")
  yield from terminal.paragraph(text, indent + 2, "dim")


def _length(sample: dict) -> str:
  cut_short = "" if sample["finished"] else ", cut"
  return f"{len(sample['tokens'])} tokens{cut_short}"


def _means(records: Sequence[dict]) -> tuple[float | None, ...]:
  """Mean reward of the codes and of the suites, and mean validity; without
  what the infrastructure failed."""
  codes = [code for record in records for code in record["codes"]]
  suites = [suite for code in codes for suite in code["suites"]]
  counted = [suite for suite in suites if suite["reward"] is not None]
  return (
    _mean([c["reward"] for c in codes if c["reward"] is not None]),
    _mean([suite["reward"] for suite in counted]),
    _mean([suite["validity"] for suite in counted]),
  )


def _mean(values: Sequence[float]) -> float | None:
  return sum(values) / len(values) if values else None


def _number(value: float | None) -> str:
  return "-" if value is None else f"{value:.2f}"


def _verdicts(records: Sequence[dict]) -> collections.Counter:
  """How often each verdict fell, as the metrics count them."""
  counts: collections.Counter = collections.Counter()
  for code in (code for record in records for code in record["codes"]):
    counts.update([code["load"]] if code["load"] != "pass" else [])
    counts.update(code["replayed_verdicts"])
    for suite in code["suites"]:
      counts.update(t["verdict"] for t in suite["tests"] if t["verdict"])
  return counts


def _counts(counts: collections.Counter) -> str:
  """The counts, the best verdict first."""
  order = list(_STYLES)
  known = sorted(
    counts, key=lambda s: (s not in order, s in order and order.index(s))
  )
  return ", ".join(f"{one_line(status)} {counts[status]}" for status in known)


def _named(values: Sequence) -> str:
  """The values in a sentence; of many the first and the last."""
  texts = [str(value) for value in values]
  if len(texts) > _MAX_NAMED:
    half = _MAX_NAMED // 2
    texts = [*texts[:half], f"... {len(texts)} in all ...", *texts[-half:]]
  return ", ".join(texts) or "none"
